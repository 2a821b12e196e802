"""Runs inside private_slurm.sh: puts configurations before the real daemons and prints what they say.

Usage: real_slurm.py BEFORE AFTER SITE...
Prints one JSON object; test_real_slurm.py judges it.
"""

import json
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpctools import conf
from hpctools.errors import CommandError
from hpctools.site import Site, load
from hpctools.slurm.run import run, start
from hpctools.slurm.versions import parse_release

FOLDER = Path("/etc/slurm")
RELEASE = parse_release(run(["slurmctld", "-V"], timeout=10).stdout)
HOSTS = Path("/etc/hosts")  # a private one
LOG = Path("/var/log/slurm/slurmctld.log")
AS_SLURM = ("setpriv", "--reuid", "slurm", "--regid", "slurm", "--clear-groups")


def facts(site: Site) -> conf.Facts:
    """Every node on loopback: its name resolves nowhere here."""
    names = [name for group in site.node_groups if not group.addresses for name in group.names]
    return conf.Facts(
        slurm_version=RELEASE,
        cgroup="v1",
        slurm_user="slurm",
        slurmdbd_endpoint=conf.Endpoint("127.0.0.1", 6819),
        node_endpoints={name: conf.Endpoint("127.0.0.1", 17001 + n) for n, name in enumerate(names)},
    )


def until(true: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + 20
    while not true():
        if time.monotonic() > limit:
            sys.exit(f"{what} within 20 s")
        time.sleep(0.05)


@contextmanager
def daemon(name: str) -> Iterator[None]:
    """Run slurmctld or slurmdbd in the foreground, as the Unix account slurm."""
    with Path(f"/var/log/slurm/{name}.out").open("ab") as out:
        process = start([*AS_SLURM, name, "-D"], stdout=out, stderr=out)
    probe = ["scontrol", "ping"] if name == "slurmctld" else ["sacctmgr", "-nP", "show", "cluster"]

    def answers() -> bool:
        if process.poll() is not None:
            sys.exit(Path(f"/var/log/slurm/{name}.out").read_text())
        try:
            done = run(probe, timeout=5, check=False)
        except CommandError:
            return False
        return "is UP" in done.stdout.partition("\n")[0] if name == "slurmctld" else done.code == 0

    try:
        until(answers, f"{name} does not answer")
        yield
    finally:
        process.kill()  # its state is thrown away; ending in order takes slurmctld two seconds
        process.wait(timeout=20)


def configure(site: Site, *, daemon_files: bool = False) -> conf.AccountTree:
    """Put a site's files into /etc/slurm; slurmdbd.conf only where asked: one slurmdbd serves all sites."""
    bundle = conf.compile(site, facts(site))
    kept = bundle.files if daemon_files else tuple(f for f in bundle.files if f.path != "slurmdbd.conf")
    conf.write(replace(bundle, files=kept), FOLDER)
    shutil.chown(FOLDER / "slurmdbd.conf", "slurm", "slurm")
    return bundle.accounts


def show(what: str) -> list[dict[str, str]]:
    lines = run(["scontrol", "--oneliner", "show", what], timeout=10).stdout.splitlines()
    return [dict(part.split("=", 1) for part in line.split() if "=" in part) for line in lines]


def settings() -> dict[str, str]:
    """Everything that slurmctld says of its configuration."""
    lines = run(["scontrol", "show", "config"], timeout=10).stdout.splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def settle(site: Site) -> conf.AccountTree:
    """Make this host the site's controller, which has never run before."""
    _take_the_name(*site.cluster.controllers)
    LOG.unlink(missing_ok=True)
    state = Path(site.cluster.configuration.state_folder or "/var/spool/slurmctld")
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    shutil.chown(state, "slurm")
    for path in FOLDER.iterdir():
        if path.name != "slurmdbd.conf":
            path.unlink()
    for program in programs(site):
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    return configure(site)


def programs(site: Site) -> list[Path]:
    """The programs that slurmctld looks for when it starts; those of the examples stand in Slurm's folder."""
    power, scripts = site.cluster.power_saving, site.cluster.scripts
    named = [scripts.prolog_slurmctld, scripts.epilog_slurmctld]
    if power:
        named += [power.resume_program, power.suspend_program, power.resume_fail_program]
    return [Path(path) for path in named if path]


def _take_the_name(ours: str, *others: str) -> None:
    """Be the host `ours`, with the other controllers at addresses that answer soon.

    24.11 and 26.05 wait for the others before they serve, half a minute when that is themselves; 22.05 tries
    unreachable addresses for seconds.
    """
    socket.sethostname(ours)
    kept = [line for line in HOSTS.read_text().splitlines() if "controller" not in line]
    network = "127.0.0" if RELEASE < (24, 11) else "192.0.2"
    lines = [f"{network}.{n} {name} # controller" for n, name in enumerate(others, 2)]
    HOSTS.write_text("\n".join([*kept, f"127.0.0.1 {ours} # controller", *lines, ""]))


def boot(path: str) -> dict[str, Any]:
    """Start slurmctld for the first time on a site whose cluster and QoS slurmdbd has just heard of."""
    site = load(Path(path))
    wanted = settle(site)
    for command in conf.bootstrap_commands(wanted, live(site)):
        told("--immediate", *command)
    with daemon("slurmctld"):
        return {
            "nodes": {row["NodeName"]: row.get("Gres", "") for row in show("node")},
            "partitions": {row["PartitionName"]: row for row in show("partition")},
            "addresses": {row["NodeName"]: row["NodeAddr"] for row in show("node")},
            "states": {row["NodeName"]: row["State"] for row in show("node")},
            "switches": [] if site.cluster.topology is None else show("topology"),
            "settings": settings(),
            "log": LOG.read_text().splitlines(),
        }


def accounts(*paths: str) -> list[dict[str, Any]]:
    """Bring slurmdbd to one site after the other; note what each second look would still do."""
    settle(load(Path(paths[0])))
    with daemon("slurmctld"):
        return [_converge(load(Path(path))) for path in paths]


def _converge(site: Site) -> dict[str, Any]:
    tree = conf.compile(site, facts(site)).accounts
    file = conf.load_file(tree, live(site))
    if file.text:
        run(["sacctmgr", "--immediate", "load", "file=/dev/stdin"], timeout=20, stdin=file.text)
    commands = conf.sync_commands(tree, file.live)
    for command in commands:
        told("--immediate", *command)
    after = live(site)
    return {
        "loaded": len(file.text.splitlines()),
        "commands": [" ".join(command) for command in commands],
        "left": conf.sync_commands(tree, after),
        "accounts": {account.name: account.parent for account in after.accounts},
        "defaults": after.default_accounts,
    }


def live(site: Site) -> conf.AccountTree:
    # All at once: each waits a third of a second for acknowledgements, not for slurmdbd.
    with ThreadPoolExecutor() as pool:
        answers = pool.map(lambda query: told("-nP", *query), conf.live_queries())
        return conf.parse_live(*answers, cluster=site.cluster.name)


def told(*arguments: str) -> str:
    return run(["sacctmgr", *arguments], timeout=20).stdout


def main(year: Sequence[str], sites: Sequence[str]) -> dict[str, Any]:
    configure(load(Path(year[0])), daemon_files=True)
    with daemon("slurmdbd"):
        return {"boots": {path: boot(path) for path in sites}, "syncs": accounts(*year)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:3], sys.argv[3:])))
