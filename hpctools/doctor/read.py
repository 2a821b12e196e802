"""The edge: one snapshot of an installation, taken once, with all slow questions asked at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from hpctools.doctor import ask, host
from hpctools.doctor.ask import see
from hpctools.doctor.conf_lines import includes, settings, with_includes
from hpctools.doctor.installation import Accounting, Answer, ConfFile, Installation, Missing, Seen, Slurmdbd
from hpctools.slurm import munge
from hpctools.slurm.cli import CommandClient
from hpctools.slurm.types import Node, Partition
from hpctools.slurm.versions import Release, parse_release, reconfigure_starts_anew

_Value = TypeVar("_Value")
_Other = TypeVar("_Other")


@dataclass(frozen=True)
class _Told:
    """What the daemons said; the fields are those of Installation."""

    controllers: Seen[tuple[Answer, ...]]
    release: Seen[Release]
    config: Seen[Mapping[str, str]]
    nodes: Seen[list[Node]]
    partitions: Seen[list[Partition]]
    jobs: Seen[frozenset[int]]
    unended: Seen[frozenset[int]]
    slurmdbd: Seen[Slurmdbd]
    accounting: Seen[Accounting]
    credential: Seen[str]


def read(folder: Path) -> Installation:
    """Take the snapshot; changes nothing. What cannot be seen is Missing.

    Args:
        folder: Slurm's configuration folder on this host.
    """
    files = see(lambda: host.files(folder))
    text = {} if isinstance(files, Missing) else settings(files, "slurm.conf")
    told = _ask(_stuck(files), text)
    daemons = host.daemons()
    place = then(_setting(told.config, text, "StateSaveLocation"), Path)
    log = then(_setting(told.config, text, "SlurmctldLogFile"), lambda path: host.log(Path(path)))
    return Installation(
        now=int(time.time()),
        folder=str(folder),
        release=told.release,
        controllers=told.controllers,
        config=told.config,
        nodes=then(told.nodes, tuple),
        partitions=then(told.partitions, tuple),
        jobs=told.jobs,
        unended=told.unended,
        slurmdbd=told.slurmdbd,
        accounting=told.accounting,
        credential=told.credential,
        files=files,
        secrets=see(host.secrets),
        state=then(place, host.state),
        state_of=then(place, host.state_of),
        unresolved=then(told.nodes, lambda nodes: host.unresolved(_addresses(nodes))),
        read_at=_read_at(log, told.config),
        log=log,
        daemons=daemons,
        adopts=see(host.adopts),
        strangers=then(told.accounting, lambda known: host.strangers(user for user, _ in known.members)),
        paths=then(files, lambda found: host.paths(_places(found), daemons)),
        rdma=see(host.rdma),
    )


def _ask(stuck: Missing | None, text: Mapping[str, str]) -> _Told:
    """Ask the daemons, all at the same time where no answer is needed for another question."""
    credential = see(lambda: munge.credential(text.get("authtype", ""), text.get("authinfo", "")))
    stuck = stuck or _powerless(credential)
    controllers = see(ask.controllers) if stuck is None else stuck
    silent = _silence(controllers)
    client = CommandClient()
    with ThreadPoolExecutor() as pool:

        def unless(hindrance: Missing | None, question: Callable[[], _Value]) -> Future[Seen[_Value]]:
            return pool.submit(lambda: see(question) if hindrance is None else hindrance)

        config, nodes = unless(silent, client.config), unless(silent, client.nodes)
        partitions = unless(silent, client.partitions)
        slurmdbd, release = unless(stuck, ask.slurmdbd), unless(stuck, lambda: client.release)
        cluster = ask.cluster_name(config.result(), text) if stuck is None else stuck
        accounting = pool.submit(lambda: then(cluster, ask.accounting))
        unended = then(cluster, ask.unended)
        # Asked after slurmdbd: a job that ends meanwhile is still known, for MinJobAge.
        jobs = unless(silent, lambda: frozenset(job.id for job in client.jobs()))
    return _Told(
        controllers=controllers,
        release=release.result(),
        config=config.result(),
        nodes=nodes.result(),
        partitions=partitions.result(),
        jobs=jobs.result(),
        unended=unended,
        slurmdbd=slurmdbd.result(),
        accounting=accounting.result(),
        credential=credential,
    )


def then(seen: Seen[_Value], go_on: Callable[[_Value], _Other]) -> Seen[_Other]:
    """What follows from something that was seen; what was not seen stays missing, for the same reason."""
    return seen if isinstance(seen, Missing) else see(lambda: go_on(seen))


def _stuck(files: Seen[tuple[ConfFile, ...]]) -> Missing | None:
    """Why Slurm's commands need not be run: they wait 60 s for a file that slurm.conf includes (22.05.8)."""
    if isinstance(files, Missing):
        return None
    there = {file.path for file in files if file.there}
    wanted = [name for file in with_includes(files, "slurm.conf") for name in includes(file)]
    gone = next((name for name in wanted if name not in there), None)
    if gone is None:
        return None
    return Missing(f"no Slurm command works here: slurm.conf includes {gone}, which is not there", True)


def _powerless(credential: Seen[str]) -> Missing | None:
    """Why Slurm's commands need not be run: each tries for 50 s to get a credential (22.05.8)."""
    if isinstance(credential, Missing):
        return credential if credential.unreachable else None
    return Missing(f"no Slurm command works here: munge says {credential}", True) if credential else None


def _silence(controllers: Seen[tuple[Answer, ...]]) -> Missing | None:
    """Why slurmctld need not be asked; each question would wait for its answer in vain."""
    if isinstance(controllers, Missing):
        return controllers
    if any(answer.up for answer in controllers):
        return None
    names = ", ".join(answer.host for answer in controllers)
    return Missing(f"no slurmctld answers (asked {names})", unreachable=True)


def _places(files: tuple[ConfFile, ...]) -> list[str]:
    """Folders that compute nodes need."""
    return [settings(files, "job_container.conf").get("basepath", "")]


def _addresses(nodes: list[Node]) -> list[str]:
    """Of nodes that should be there; cloud nodes get theirs when they wake up."""
    return [node.address for node in nodes if "CLOUD" not in node.flags and node.state != "FUTURE"]


def _read_at(log: Seen[tuple[str, ...]], config: Seen[Mapping[str, str]]) -> Seen[float]:
    """When slurmctld last read its files: its log says, and later releases start anew when they do."""
    stamp = None if isinstance(log, Missing) else host.beginning(log)
    if stamp is not None:
        return stamp
    if isinstance(config, Missing):
        return config
    if reconfigure_starts_anew(parse_release(config["SLURM_VERSION"])):
        return datetime.fromisoformat(config["BOOT_TIME"]).timestamp()
    if isinstance(log, Missing):
        return log
    return Missing(
        "slurmctld's log, the only place that says it, does not reach back to when it read its files"
    )


def _setting(config: Seen[Mapping[str, str]], text: Mapping[str, str], key: str) -> Seen[str]:
    """A setting as slurmctld has it, or else as slurm.conf says."""
    value = text.get(key.lower(), "") if isinstance(config, Missing) else config.get(key, "")
    if value in ("", "(null)"):
        return Missing(f"{key} is not known: slurmctld does not answer or has none, and slurm.conf says none")
    return value
