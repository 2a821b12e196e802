"""What a change needs of the cluster: three small Protocols.

With real daemons `LivePlanner`, `hpctools.conf.slurmdbd.Slurmdbd` and `SlurmDaemons` implement them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hpctools.conf.accounts import AccountTree
from hpctools.conf.bundle import Bundle
from hpctools.conf.plan.model import Plan, Step

Pause = Callable[[float], None]
"""Waits that many seconds; may raise instead when somebody asked us to end."""


@dataclass(frozen=True)
class Boot:
    """What came of booting a configuration beside the real one.

    Attributes:
        problems: what keeps it from a live cluster, a line each; none when it boots.
        lost_jobs: ids of live jobs that a slurmctld with it could not keep.
    """

    problems: tuple[str, ...] = ()
    lost_jobs: tuple[int, ...] = ()


class Planner(Protocol):
    """Tells what a configuration would change, and whether it would boot."""

    def ready(self) -> None:
        """Look whether daemons can be asked from here at all, which takes no time.

        Raises:
            UnreachableError: they cannot; whoever asks them nevertheless waits for minutes.
        """
        ...

    def plan(self, wanted: Bundle, *, prune: bool) -> Plan:
        """What separates the cluster from a bundle, read now."""
        ...

    def preflight(self, wanted: Bundle) -> Boot:
        """Boot a bundle beside the real slurmctld, with what that knows of jobs."""
        ...


class Accounts(Protocol):
    """slurmdbd.

    Every method raises UnreachableError when slurmdbd does not answer, and CommandError when it refuses.
    """

    def read(self) -> AccountTree:
        """What it knows."""
        ...

    def dump(self) -> str:
        """The whole of it as `sacctmgr dump` writes it."""
        ...

    def bootstrap(self, wanted: AccountTree) -> None:
        """Tell it what slurmctld must find there at its first start."""
        ...

    def add(self, wanted: AccountTree) -> None:
        """Tell it what the new files speak of."""
        ...

    def settle(self, wanted: AccountTree, *, prune: bool) -> None:
        """Tell it what has to wait for the new files, what goes among it if `prune`."""
        ...

    def left(self, wanted: AccountTree, *, prune: bool) -> tuple[str, ...]:
        """What still separates it from what is wanted, a line each."""
        ...

    def restore(self, before: AccountTree) -> tuple[str, ...]:
        """Take back what was told since `before` was read; return what has to stay, a line each."""
        ...


class Daemons(Protocol):
    """slurmctld, slurmdbd and the slurmds as processes."""

    def controller_answers(self) -> bool:
        """Whether slurmctld answers.

        Raises:
            UnreachableError: it neither answers nor is down.
            CommandError: it cannot be asked.
        """
        ...

    def accounting_answers(self) -> bool:
        """Whether slurmdbd answers."""
        ...

    def carry_out(self, step: Step, pause: Pause) -> None:
        """Do a step that loads new files, and wait until its daemons answer again.

        Raises:
            ApplyError: it failed, or the daemons did not come back in time.
        """
        ...

    def sick(self) -> dict[str, str]:
        """Nodes that slurmctld refuses (INVAL), with its reason.

        Raises:
            CommandError: slurmctld does not tell.
        """
        ...

    def jobs_on(self, nodes: Sequence[str]) -> tuple[int, ...]:
        """Ids of jobs that hold any of these nodes."""
        ...

    def taking_jobs(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """Those of the nodes on which a job may begin: neither drained nor out of service (DOWN, FAIL)."""
        ...

    def drain(self, nodes: Sequence[str], reason: str) -> None:
        """Let no new job onto these nodes."""
        ...

    def resume(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """Let jobs onto drained nodes again; what else keeps jobs from them (DOWN, FAIL) stays.

        Returns:
            Those that have to stay drained, since slurmctld refuses them (INVAL).
        """
        ...


@dataclass(frozen=True)
class Cluster:
    """A cluster, by its three sides."""

    planner: Planner
    accounts: Accounts
    daemons: Daemons
