"""Nodes that configure themselves: how long until a job lets its owner in, and what a second run takes.

    python -m bench.bootstrap [--quick] [--check]

A controller, two login nodes and three workers, each a machine of its own with the real lifecycle scripts,
Slurm, MariaDB, sshd and PAM; HyperPod's agent is a stand-in. All share the cores of this machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median

from bench.pam import added, p95
from bench.report import Goal, report
from hpctools.sandbox import cgroups
from hpctools.sandbox.hosts import Fleet, Host, Hosts, hosts, image
from hpctools.slurm.run import run

AGAIN_SECONDS, ADDED_SECONDS = 3.0, 0.050
LIMIT_SECONDS, POLL_SECONDS = 180.0, 0.02
USER, WORKER, CONTROLLER = "ben", "worker-1", "controller-1"
PLAIN_PORT = 2222
P95_FROM = 20  # of fewer runs the largest is shown
SITE = """\
cluster: {name: uni-gpu, slurm: "22.05", provider: hyperpod, controllers: [controller]}
node_groups:
  - {name: worker, instance_type: ml.g5.12xlarge, count: 3, gpus: {type: a10g, count: 4}}
  - {name: login, role: login, count: 2}
departments:
  - name: astro
    supervisor: ada
    partition: {node_groups: [worker], max_time: 1-00:00:00}
    labs: [{name: stars, supervisor: cleo, members: [ben]}]
tiers: {normal: {priority: 100, default: true}}
lifecycle:
  users: {ada: 20001, ben: 20002, cleo: 20003}
  mounts:
    - {source: "fs-0123@tcp:/abcd", path: /fsx, kind: lustre}
    - {source: "fs-home:/fsx", path: /home, kind: nfs}
access: {administrators: {users: [ubuntu]}}
"""
# The stack as the operating system has it, for an sshd whose name is that of the service.
PLAIN = """\
set -eu
cp /etc/pam.d/sshd /etc/pam.d/sshd-plain
ln -s /usr/sbin/sshd /usr/local/bin/sshd-plain
/usr/local/bin/sshd-plain -p "$1" -o PidFile=none
"""


def main() -> int:
    """Measure, report, and return the exit code."""
    parser = argparse.ArgumentParser(description="Nodes that configure themselves.")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--check", action="store_true", help="fail when a goal is not met")
    given = parser.parse_args()
    repeats, logins = (2, 20) if given.quick else (5, 100)
    with tempfile.TemporaryDirectory(prefix="hpctools-bench-") as folder:
        bundle = _bundle(Path(folder))
        with hosts(bundle, Fleet(partition="worker")) as cluster:
            return _measure(cluster, repeats, logins, check=given.check)


def _bundle(folder: Path) -> Path:
    (folder / "site.yaml").write_text(SITE)
    program = str(Path(sys.executable).parent / "hpctools")
    words = ["hyperpod", "bundle", str(folder / "site.yaml"), "--out", str(folder / "bundle")]
    run([program, *words, "--cgroup", cgroups.version()], timeout=LIMIT_SECONDS)
    return folder / "bundle"


def _measure(cluster: Hosts, repeats: int, logins: int, *, check: bool) -> int:
    cluster[WORKER].run(["sh", "-c", PLAIN, "plain", str(PLAIN_PORT)])
    rows, whole = [], _seconds(lambda: _bring_up(cluster))
    rows.append(_row("six empty nodes to an admitted job", [whole]))
    again: dict[str, list[float]] = {}
    for host in cluster:
        again[host.machine.role] = [_seconds(partial(_provision, host)) for _ in range(repeats)]
    rows += [_row(f"all steps again, {role}", each) for role, each in again.items()]
    ways = {"plain sshd": PLAIN_PORT, "with our PAM stack": 22}
    seconds = _logins(cluster, ways, logins)
    rows += [_row(f"a login to a worker, {name}", each) for name, each in seconds.items()]
    _release(cluster)
    fresh = cluster.replace(WORKER)
    rows.append(_row("a replaced worker to an admitted job", [_seconds(lambda: _join(cluster, fresh))]))
    plain, ours = seconds.values()
    goals = [
        Goal(
            "all steps again, slowest role, median",
            max(map(median, again.values())),
            "s",
            "<=",
            AGAIN_SECONDS,
        ),
        Goal("added to a login by PAM, p95", p95(ours) - p95(plain), "s", "<=", ADDED_SECONDS),
        Goal("login with PAM beside plain sshd, median", median(ours) / median(plain), "times", "<=", 2.0),
    ]
    return report("bootstrap", rows, goals, check=check)


def _row(name: str, seconds: Sequence[float]) -> Mapping[str, object]:
    most = p95(seconds) if len(seconds) >= P95_FROM else max(seconds)
    return {"what": name, "median s": median(seconds), "p95 s": most, "runs": len(seconds)}


def _seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _provision(host: Host) -> None:
    host.run(["bash", f"{image.BUNDLE}/on_create.sh"], timeout=LIMIT_SECONDS)


def _bring_up(cluster: Hosts) -> None:
    """All nodes configure themselves at once; a job is submitted as soon as it can be, and logged in to."""
    image.write_slurm_conf(cluster[CONTROLLER], cluster.fleet)
    with ThreadPoolExecutor() as pool:
        list(pool.map(_provision, cluster))
    _admitted(cluster)


def _join(cluster: Hosts, host: Host) -> None:
    _provision(host)
    _admitted(cluster)


def _admitted(cluster: Hosts) -> None:
    """Submit a job for the worker and wait until its owner is let in."""
    where = f"-p astro -w {cluster[WORKER].machine.hostname}"
    submit = f"sbatch --parsable {where} --wrap 'sleep 3600'"
    _until(lambda: cluster["login-1"].ssh(USER, submit, check=False).code == 0)
    _until(lambda: cluster[WORKER].ssh(USER, "true", check=False).code == 0)


def _release(cluster: Hosts) -> None:
    cluster[CONTROLLER].run(["scancel", "--user", USER])
    _until(lambda: not cluster[CONTROLLER].run(["squeue", "-h"]).stdout)


def _until(look: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not look():
        if time.monotonic() > end:
            raise SystemExit(f"not so within {LIMIT_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def _logins(cluster: Hosts, ways: Mapping[str, int], repeats: int) -> dict[str, list[float]]:
    """Logins of somebody with a job, by port; both sshds have the same configuration."""
    command = cluster[WORKER].ssh_command(USER, "true")
    place = command.index(f"{USER}@{cluster[WORKER].machine.address}")
    return added(
        {name: [*command[:place], "-p", str(port), *command[place:]] for name, port in ways.items()}, repeats
    )


if __name__ == "__main__":
    sys.exit(main())
