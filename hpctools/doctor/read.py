"""The edge: one snapshot of an installation, taken once, with all slow questions asked at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from hpctools.doctor import ask, host
from hpctools.doctor.ask import see
from hpctools.doctor.conf_lines import settings
from hpctools.doctor.installation import Answer, Installation, Missing, Seen
from hpctools.slurm.cli import CommandClient
from hpctools.slurm.types import Node

_Value = TypeVar("_Value")
_Other = TypeVar("_Other")


def read(folder: Path) -> Installation:
    """Take the snapshot; changes nothing. What cannot be seen is Missing.

    Args:
        folder: Slurm's configuration folder on this host.
    """
    files = see(lambda: host.files(folder))
    text = {} if isinstance(files, Missing) else settings(files, "slurm.conf")
    controllers = see(ask.controllers)
    silent = _silence(controllers)
    client = CommandClient()
    with ThreadPoolExecutor() as pool:

        def of_slurmctld(question: Callable[[], _Value]) -> Future[Seen[_Value]]:
            return pool.submit(lambda: see(question) if silent is None else silent)

        asked = of_slurmctld(client.config)
        nodes, partitions = of_slurmctld(client.nodes), of_slurmctld(client.partitions)
        slurmdbd = pool.submit(lambda: see(ask.slurmdbd))
        release, credential = (
            pool.submit(lambda: see(lambda: client.release)),
            pool.submit(see, ask.credential),
        )
        config = asked.result()
        cluster = ask.cluster_name(config, text)
        accounting = pool.submit(lambda: then(cluster, ask.accounting))
        unended = then(cluster, ask.unended)
        # Asked after slurmdbd: a job that ends meanwhile is still known, for MinJobAge.
        jobs = of_slurmctld(lambda: frozenset(job.id for job in client.jobs()))
    daemons = host.daemons()
    place = _setting(config, text, "StateSaveLocation")
    return Installation(
        now=int(time.time()),
        folder=str(folder),
        release=release.result(),
        controllers=controllers,
        config=config,
        nodes=then(nodes.result(), tuple),
        partitions=then(partitions.result(), tuple),
        jobs=jobs.result(),
        unended=unended,
        slurmdbd=slurmdbd.result(),
        accounting=accounting.result(),
        credential=credential.result(),
        files=files,
        secrets=see(host.secrets),
        state=then(place, lambda path: host.state(Path(path))),
        state_of=then(place, lambda path: host.state_of(Path(path))),
        unresolved=then(nodes.result(), lambda found: host.unresolved(_addresses(found))),
        log=then(_setting(config, text, "SlurmctldLogFile"), lambda path: host.log(Path(path))),
        daemons=daemons,
        adopts=see(host.adopts),
        strangers=then(accounting.result(), lambda known: host.strangers(user for user, _ in known.members)),
        paths=then(
            files,
            lambda found: host.paths([settings(found, "job_container.conf").get("basepath", "")], daemons),
        ),
        rdma=see(host.rdma),
    )


def then(seen: Seen[_Value], go_on: Callable[[_Value], _Other]) -> Seen[_Other]:
    """What follows from something that was seen; what was not seen stays missing, for the same reason."""
    return seen if isinstance(seen, Missing) else see(lambda: go_on(seen))


def _silence(controllers: Seen[tuple[Answer, ...]]) -> Missing | None:
    """Why slurmctld need not be asked; each question would wait for its answer in vain."""
    if isinstance(controllers, Missing):
        return controllers
    if any(answer.up for answer in controllers):
        return None
    names = ", ".join(answer.host for answer in controllers)
    return Missing(f"no slurmctld answers (asked {names})", unreachable=True)


def _addresses(nodes: list[Node]) -> list[str]:
    """Of nodes that should be there; cloud nodes get theirs when they wake up."""
    return [node.address for node in nodes if "CLOUD" not in node.flags and node.state != "FUTURE"]


def _setting(config: Seen[Mapping[str, str]], text: Mapping[str, str], key: str) -> Seen[str]:
    """A setting as slurmctld has it, or else as slurm.conf says."""
    value = text.get(key.lower(), "") if isinstance(config, Missing) else config.get(key, "")
    if value in ("", "(null)"):
        return Missing(f"{key} is not known: slurmctld does not answer or has none, and slurm.conf says none")
    return value
