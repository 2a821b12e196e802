"""SlurmAdministration by pyslurm, which speaks Slurm's protocol itself.

pyslurm reads jobs, nodes, partitions and slurmdbd, and updates nodes; what it does not do as well as Slurm's
commands (sbatch with all its options, scancel, the whole configuration) is left to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timezone
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from hpctools.errors import CommandError, UnreachableError
from hpctools.slurm.cli import CommandClient, told
from hpctools.slurm.client import check_node_change
from hpctools.slurm.parse import unfold
from hpctools.slurm.parse_nodes import gres
from hpctools.slurm.states import is_waiting
from hpctools.slurm.types import Job, Node, Partition, PastJob

_Answer = TypeVar("_Answer")


class NativeClient:
    """The cluster, asked through pyslurm (its classes of 23.2 and later).

    Args:
        pyslurm: the module, of the release of the cluster; see `choose`.
        commands: what does the rest.
    """

    def __init__(self, pyslurm: ModuleType, commands: CommandClient | None = None) -> None:
        self._pyslurm: Any = pyslurm
        self._commands = commands or CommandClient()

    def submit(self, options: Sequence[str], script: Path, arguments: Sequence[str] = ()) -> int:
        """Submit a batch script with sbatch; see SlurmClient."""
        return self._commands.submit(options, script, arguments)

    def cancel(self, job_ids: Sequence[int]) -> None:
        """Cancel jobs with scancel; see SlurmClient."""
        self._commands.cancel(job_ids)

    def shorten(self, job_id: int, minutes: int) -> None:
        """Lower a job's time limit with scontrol; see RunClient."""
        self._commands.shorten(job_id, minutes)

    def exclude(self, job_id: int, nodes: Sequence[str]) -> None:
        """Have a job that waits not get some nodes, with scontrol; see RunClient."""
        self._commands.exclude(job_id, nodes)

    def dependencies(self, user: str) -> Mapping[int, str]:
        """What the user's waiting jobs wait for, from squeue; see RunClient."""
        return self._commands.dependencies(user)

    def depend(self, job_id: int, dependency: str) -> None:
        """Have a job that waits wait for something else, with scontrol; see RunClient."""
        self._commands.depend(job_id, dependency)

    def ended_as(self, job_id: int) -> str:
        """The state of a job as slurmdbd knows it, with sacct; see RunClient."""
        return self._commands.ended_as(job_id)

    def config(self) -> Mapping[str, str]:
        """What slurmctld runs with, from scontrol: pyslurm has four of its settings."""
        return self._commands.config()

    def jobs(
        self, *, ids: Sequence[int] = (), user: str | None = None, nodes: Sequence[str] = ()
    ) -> list[Job]:
        """Jobs in the queue; see SlurmClient. pyslurm loads them all."""
        found = (_job(each) for each in self._ask("load jobs", self._pyslurm.Jobs.load).values())
        wanted = (
            job
            for job in found
            if (not ids or job.id in ids)
            and (user is None or job.user == user)
            and (not nodes or set(nodes) & set(job.nodes))
        )
        return sorted(wanted, key=lambda job: job.id)

    def partitions(self) -> list[Partition]:
        """All partitions; see SlurmClient."""
        found = self._ask("load partitions", self._pyslurm.Partitions.load)
        return [_partition(each) for each in found.values()]

    def nodes(self, names: Sequence[str] = ()) -> list[Node]:
        """All nodes, or some; see SlurmAdministration."""
        found = self._ask("load nodes", self._pyslurm.Nodes.load)
        wanted = frozenset(names)
        return [_node(each) for name, each in found.items() if not wanted or name in wanted]

    def update_nodes(self, nodes: Sequence[str], state: str, reason: str = "") -> None:
        """Change the state of nodes; see SlurmAdministration."""
        check_node_change(state, reason)
        if nodes:
            said = {"reason": reason} if reason else {}
            changes = self._pyslurm.Node(state=state.upper(), **said)
            self._ask("update nodes", lambda: self._pyslurm.Nodes(list(nodes)).modify(changes))

    def past_jobs(self, first: date, end: date, *, users: Sequence[str] = ()) -> list[PastJob]:
        """What slurmdbd remembers, of a requeued job the last run; see SlurmAdministration."""
        db = self._pyslurm.db
        span = db.JobFilter(start_time=_midnight(first), end_time=_midnight(end))
        try:
            found = self._ask("load jobs from slurmdbd", lambda: db.Jobs.load(span))
        except CommandError as error:
            # pyslurm keeps no reason here: that slurmdbd does not answer is the usual one.
            raise UnreachableError(
                f"slurmdbd does not answer ({error.message})", "check it with `sacctmgr ping`"
            ) from None
        records = (_past(each) for each in found.values())
        wanted = (job for job in records if not users or job.user in users)
        return sorted(wanted, key=lambda job: (job.cluster, job.dbindex))

    def _ask(self, what: str, ask: Callable[[], _Answer]) -> _Answer:
        try:
            return ask()
        except self._pyslurm.PyslurmError as error:
            words = str(error)
            raise told(
                CommandError(
                    f"pyslurm could not {what}: {words}",
                    argv=("pyslurm", what),
                    code=getattr(error, "errno", None),
                    stderr=words,
                )
            ) from None


def _midnight(day: date) -> int:
    return int(datetime.combine(day, time(), timezone.utc).timestamp())


def _job(job: Any) -> Job:
    return Job(
        id=job.id,
        name=job.name or "",
        user=job.user_name or "",
        account=job.account or "",
        partition=job.partition or "",
        qos=job.qos or "",
        state=job.state,
        reason=job.state_reason or "None",
        nodes=unfold(job.allocated_nodes or ""),
        comment=job.comment or "",
        submitted=job.submit_time,
        started=None if is_waiting(job.state) else job.start_time,
        time_limit=_limit(job.time_limit),
    )


def _partition(partition: Any) -> Partition:
    return Partition(
        name=partition.name,
        total_nodes=partition.total_nodes,
        max_nodes=_limit(partition.max_nodes),
        is_default=bool(partition.is_default),
        state=partition.state,
        nodes=unfold(partition.nodes or ""),
        allow_accounts=_everyone(partition.allowed_accounts),
        allow_qos=_everyone(partition.allowed_qos),
        exclusive=partition.oversubscribe == "EXCLUSIVE",
        deny_accounts=tuple(partition.denied_accounts or ()),
        deny_qos=tuple(partition.denied_qos or ()),
        submit_hosts=_submit_hosts(partition.allowed_submit_nodes),
        min_nodes=_limit(partition.min_nodes) or 0,
    )


def _limit(value: int | str | None) -> int | None:
    """A limit, which pyslurm gives as the word UNLIMITED in places."""
    return value if isinstance(value, int) else None


def _submit_hosts(names: Sequence[str] | None) -> tuple[str, ...]:
    return unfold(",".join(_everyone(names or ["ALL"])))


def _everyone(names: Sequence[str]) -> tuple[str, ...]:
    return () if list(names) == ["ALL"] else tuple(names)


def _node(node: Any) -> Node:
    base, *flags = node.state.rstrip("*").split("+")
    return Node(
        name=node.name,
        state=base,
        flags=tuple(sorted(flags)),
        reason=node.reason or "",
        cpus=node.total_cpus,
        memory_mb=node.real_memory or 0,
        gres=gres(",".join(f"{name}:{count}" for name, count in node.configured_gres.items())),
        features=tuple(node.active_features),
        partitions=tuple(node.partitions),
        address=node.address or "",
        version=node.slurm_version or "",
    )


def _past(job: Any) -> PastJob:
    nodes = () if job.nodelist in (None, "None assigned") else unfold(job.nodelist)
    return PastJob(
        cluster=job.cluster or "",
        dbindex=job.db_index,
        id=job.id,
        user=job.user_name or "",
        account=job.account or "",
        partition=job.partition or "",
        qos=job.qos or "",
        state=job.state,
        submitted=job.submit_time or 0,
        start=job.start_time if nodes else None,
        end=job.end_time,
        nodes=nodes,
    )
