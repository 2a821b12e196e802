"""Runs inside private_slurm.sh for `bench.config`: one size of site before daemons of its own.

Usage: python -m bench.config_inside NODES DEPARTMENTS USERS [each]
The last line that it prints has medians in seconds, as JSON. With `each` it is the peer that is measured: the
same accounts, told to a slurmdbd that knows nobody by one sacctmgr call for each of them.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median

from bench.big_site import big_site
from hpctools import conf
from hpctools.conf.slurmdbd import Slurmdbd, tell
from hpctools.errors import CommandError
from hpctools.site import load
from hpctools.slurm.run import Process, run, start
from hpctools.slurm.throwaway import resolver
from hpctools.slurm.versions import parse_release

FOLDER, STATE = Path("/etc/slurm"), Path("/var/spool/slurmctld")
SITE = FOLDER / "site.yaml"
HPCTOOLS = str(Path(sys.executable).with_name("hpctools"))
AS_SLURM = ("setpriv", "--reuid", "slurm", "--regid", "slurm", "--clear-groups")
# 26.05 does not start without its state where slurmdbd knows the cluster, unless it is told to.
OPTIONS = {"slurmctld": ("-i",)}
REPEATS = 3
SAMPLE = 20  # sacctmgr calls for one person each; a thousand of them would take minutes
LIMIT = 600.0
FACTS = """\
cgroup: v1
slurm_user: slurm
slurmdbd_endpoint: {address: 127.0.0.1, port: 6819}
"""


# What the measured commands remember is thrown away with the namespaces.
os.environ["HPCTOOLS_STATE"] = "/run/hpctools"


def main(nodes: int, departments: int, users: int) -> None:
    """Measure everything and print it."""
    _prepare(big_site(nodes, departments, users))
    site = load(SITE)
    found: dict[str, float] = {"people": len(conf.compile(site).accounts.associations)}
    found["render"] = _median([HPCTOOLS, "render", str(SITE)])
    hpctools = [HPCTOOLS, "render", str(SITE), "--out", str(FOLDER), "--slurm", _release(), "--cgroup", "v1"]
    run(hpctools, timeout=LIMIT)
    _own_slurmdbd_conf()
    with _slurmdbd():
        Slurmdbd(site.cluster.name).bootstrap(_bundle().accounts)
        found["slurmctld"] = median(_starts() for _ in range(REPEATS))
        with _daemon("slurmctld", ["scontrol", "ping"]):
            found |= _sync()
            found |= _asked()
            found["per_user"] = _per_user(departments)
    print(json.dumps(found))


def each(nodes: int, departments: int, users: int) -> None:
    """Measure the peer and print it."""
    _prepare(big_site(nodes, departments, users))
    wanted = _bundle().accounts
    with _slurmdbd():
        store = Slurmdbd(load(SITE).cluster.name)
        store.bootstrap(wanted)
        with _daemon("slurmctld", ["scontrol", "ping"]):
            calls = [one for call in conf.sync_commands(wanted, store.read()) for one in _one_each(call)]
            kinds = [" ".join(call[:2]) for call in calls]
            seconds = [_timed(["sacctmgr", "--immediate", *call]) for call in calls]
            left = store.left(wanted, prune=False)
    if left:
        sys.exit(f"not settled: {left[:3]}")
    of_kind = {
        kind: sum(each for each, of in zip(seconds, kinds, strict=True) if of == kind) for kind in set(kinds)
    }
    print(json.dumps({"calls": of_kind}))


def _one_each(call: conf.Command) -> Iterator[conf.Command]:
    """The call, once for each of its names."""
    place = next((at for at, word in enumerate(call) if word.startswith(("name=", "names="))), None)
    if place is None:
        yield call
        return
    key, _, names = call[place].partition("=")
    yield from ((*call[:place], f"{key}={name}", *call[place + 1 :]) for name in names.split(","))


def _prepare(text: str) -> None:
    (Path("/run") / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1\n")
    run(["mount", "--bind", "/run/resolv.conf", "/etc/resolv.conf"], timeout=10)
    resolver.serve({"localhost", "ctl-1"})
    here = {
        "/shared/slurmctld": str(STATE),
        "/opt/site/resume": "/bin/true",
        "/opt/site/suspend": "/bin/true",
    }
    for word, found in here.items():
        text = text.replace(word, found)
    SITE.write_text(text)
    (FOLDER / "facts.yaml").write_text(FACTS + f'slurm_version: "{_release()}"\n')


def _release() -> str:
    return run(["slurmctld", "-V"], timeout=10).stdout.split()[-1]


def _bundle() -> conf.Bundle:
    facts = conf.Facts(
        slurm_version=parse_release(_release()),
        cgroup="v1",
        slurm_user="slurm",
        slurmdbd_endpoint=conf.Endpoint("127.0.0.1", 6819),
    )
    bundle = conf.compile(load(SITE), facts)
    conf.write(bundle, FOLDER)
    _own_slurmdbd_conf()
    return bundle


def _own_slurmdbd_conf() -> None:
    if (FOLDER / "slurmdbd.conf").exists():
        shutil.chown(FOLDER / "slurmdbd.conf", "slurm", "slurm")


def _starts() -> float:
    """A bare slurmctld, from its start to its first answer."""
    shutil.rmtree(STATE)
    STATE.mkdir()
    shutil.chown(STATE, "slurm")

    begin = time.perf_counter()
    with _daemon("slurmctld", ["scontrol", "ping"]):
        return time.perf_counter() - begin


def _sync() -> dict[str, float]:
    """All that apply tells slurmdbd of a cluster that knows nobody yet, and what of it makes coordinators.

    What stands in the one file with the people, as on 24.11, counts with them.
    """
    spans: list[tuple[float, float]] = []

    def told(argv: Sequence[str], stdin: str) -> str:
        begin = time.perf_counter()
        try:
            return tell(argv, stdin)
        finally:
            if _makes_coordinators(argv, stdin):
                spans.append((begin, time.perf_counter()))

    store, wanted = Slurmdbd(load(SITE).cluster.name, told), _bundle().accounts
    begin = time.perf_counter()
    store.add(wanted)
    store.settle(wanted, prune=False)
    seconds = time.perf_counter() - begin
    left = store.left(wanted, prune=False)
    if left:
        sys.exit(f"not settled: {left[:3]}")
    starts, ends = zip(*spans, strict=True) if spans else ((0.0,), (0.0,))
    return {"sync": seconds, "coordinators": max(ends) - min(starts)}


def _makes_coordinators(argv: Sequence[str], stdin: str) -> bool:
    people = [line for line in stdin.splitlines() if line.startswith("User")]
    return "coordinator" in argv or (bool(people) and all("Coordinator=" in line for line in people))


def _asked() -> dict[str, float]:
    """The commands that a person waits for, and what asking alone costs."""
    plan = _median([HPCTOOLS, "plan", str(SITE), "--check"])
    _timed([HPCTOOLS, "apply", str(SITE), "--yes"])
    return {
        "plan": plan,
        "asking": _median(["scontrol", "--oneliner", "show", "node"])
        + _median(["sacctmgr", "-nP", "show", "association", "WOPLimits"]),
        "preflight": _median([HPCTOOLS, "preflight", str(SITE)]),
        "no_op": _median([HPCTOOLS, "apply", str(SITE)]),
    }


def _per_user(departments: int) -> float:
    """One sacctmgr call for one person, on the whole tree."""
    calls = [
        ["sacctmgr", "--immediate", "add", "user", f"name=x{number}", f"account=d{number % departments}"]
        for number in range(SAMPLE)
    ]
    return median(_timed(argv) for argv in calls)


def _median(argv: Sequence[str]) -> float:
    return median(_timed(argv) for _ in range(REPEATS))


def _timed(argv: Sequence[str]) -> float:
    """Seconds of a command; one that fails ends the measurement with its words."""
    begin = time.perf_counter()
    done = run(argv, timeout=LIMIT, check=False)
    if done.code:
        sys.exit(f"{shlex.join(argv)} ended with {done.code}:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - begin


def _slurmdbd() -> AbstractContextManager[None]:
    return _daemon("slurmdbd", ["sacctmgr", "-nP", "show", "cluster"])


@contextmanager
def _daemon(name: str, probe: Sequence[str]) -> Iterator[None]:
    """Run a daemon in the foreground until it is no longer needed."""
    log = Path(f"/var/log/slurm/{name}.out")
    with log.open("ab") as out:
        process = start([*AS_SLURM, name, "-D", *OPTIONS.get(name, ())], stdout=out, stderr=out)
    try:
        _until_it_answers(process, probe, log)
        yield
    finally:
        process.kill()  # its state is thrown away
        process.wait(timeout=20)


def _until_it_answers(process: Process, probe: Sequence[str], log: Path) -> None:
    limit = time.monotonic() + LIMIT
    while process.poll() is None and time.monotonic() < limit:
        try:
            done = run(probe, timeout=30, check=False)
        except CommandError:
            continue
        if done.code == 0 and "DOWN" not in done.stdout:
            return
        time.sleep(0.02)
    sys.exit(f"no answer from {' '.join(probe)}: {log.read_text()[-2000:]}")


if __name__ == "__main__":
    measure = each if sys.argv[4:] == ["each"] else main
    measure(*map(int, sys.argv[1:4]))
