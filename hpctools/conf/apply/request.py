"""What is asked of a change, and what came of it: plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hpctools.conf.apply.record import Record
from hpctools.conf.apply.who import Who
from hpctools.conf.bundle import Bundle
from hpctools.conf.plan.effects import count
from hpctools.conf.plan.model import Need, Plan, Step
from hpctools.site.gpus import Gpus


@dataclass(frozen=True)
class Request:
    """A change that somebody asks for.

    Attributes:
        bundle: the configuration to be.
        nodes: how many nodes the cluster has; limits of waits grow with it.
        slurm_user: the Unix account of slurmctld and slurmdbd.
        who: the person.
        command: the command, as typed.
        kind: what the history calls it.
        prune: remove what the site no longer names.
        discard_edits: files that were edited by hand may be overwritten.
        expected: the plan that was shown and agreed to before; None to take the plan as it is now.
        documents: what the history keeps beside the change, by name (`site.yaml`).
        back_to: the change whose configuration a rollback brings back.
        after: the last change that whoever asks knew of; refused where another has come since. None does not
            look.
        wait: seconds to wait for another change to end.
        gpus: what the site says of the GPUs of each node that has any; explains why a node is refused.
    """

    bundle: Bundle
    nodes: int
    slurm_user: str
    who: Who
    command: str
    kind: Literal["apply", "rollback"] = "apply"
    prune: bool = False
    discard_edits: bool = False
    expected: Plan | None = None
    documents: Mapping[str, str] = field(default_factory=dict)
    back_to: int | None = None
    after: int | None = None
    wait: float = 0.0
    gpus: Mapping[str, Gpus] = field(default_factory=dict)


@dataclass(frozen=True)
class Prospect:
    """What is about to be done, for a person to agree to.

    Attributes:
        plan: the differences.
        steps: what will be done to daemons, in order; also what a killed change owes.
        concerns: why somebody should agree to it first, a sentence each; none when it disturbs nobody.
        unforeseen: jobs that slurmctld would lose and the plan does not name: who has seen the plan alone has
            not agreed to that.
    """

    plan: Plan
    steps: tuple[Step, ...]
    concerns: tuple[str, ...]
    unforeseen: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        record: the change as it is remembered; None when there was nothing to do.
        plan: the differences that there were.
        later: nodes whose slurmd the person starts next.
    """

    record: Record | None
    plan: Plan
    later: tuple[str, ...] = ()


_MOST_NAMED = 5
_DISTURBING = {
    Need.DRAIN: "nodes are drained, and must be free of jobs",
    Need.RESTART_SLURMDBD: "slurmdbd is restarted: accounts do not answer for some seconds; jobs go on",
    Need.RESTART_SLURMCTLD: "slurmctld is restarted: nothing can be submitted for some seconds; jobs go on",
    Need.RESTART_SLURMDS: "slurmd is restarted on {nodes}; jobs go on",
}


def concerns(
    plan: Plan,
    steps: tuple[Step, ...],
    found: tuple[str, ...],
    *,
    lost: tuple[int, ...] = (),
    first_start: bool = False,
) -> tuple[str, ...]:
    """Why a person should agree first: jobs, restarts, the folder's first time, what could not be compared.

    Args:
        found: files that were written by hand and are about to be taken over.
        lost: jobs that slurmctld could not keep with the new files.
        first_start: slurmctld does not answer.
    """
    disturbed = sum(not job.waits for job in plan.jobs)  # who only waits longer is shown, not asked about
    told = [f"jobs are disturbed: {disturbed}"] if disturbed else []
    told += _losses(plan, lost)
    told += [_disturbance(step, first_start) for step in steps if step.need in _DISTURBING]
    told += _removals(plan)
    if found:
        told.append(f"{', '.join(found)} were written by hand; they are kept as change 0 and replaced")
    told += [f"not compared: {each}" for each in plan.unknown]
    return tuple(told)


def _disturbance(step: Step, first_start: bool) -> str:
    if first_start and step.need is Need.RESTART_SLURMCTLD:
        return "slurmctld does not answer: it is started"
    return _DISTURBING[step.need].format(nodes=count(len(step.nodes), "node"))


def unforeseen(plan: Plan, lost: Sequence[int]) -> tuple[int, ...]:
    """Lost jobs that a plan does not say to end: a boot knows all of Slurm's rules, a plan those it names."""
    named = {job.id for job in plan.jobs if not job.waits}
    return tuple(job for job in lost if job not in named)


def _losses(plan: Plan, lost: tuple[int, ...]) -> list[str]:
    jobs = [str(job) for job in unforeseen(plan, lost)]
    return [f"slurmctld would lose jobs that the plan does not name: {_some(jobs)}"] if jobs else []


def _removals(plan: Plan) -> list[str]:
    gone = [each.subject for each in plan.changes if each.told and each.mark == "-"]
    return [f"accounts, people or QoS are removed: {_some(gone)}"] if gone else []


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
