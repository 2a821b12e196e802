"""Which steps are due, and which lead back: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hpctools.conf.plan.model import STEP_ORDER, Need, Step
from hpctools.conf.text import fold


def merged(*parts: Iterable[Step]) -> tuple[Step, ...]:
    """All steps once, in the order in which they can be done, each with the nodes of all."""
    nodes: dict[Need, dict[str, None]] = {}
    for step in (step for part in parts for step in part):
        nodes.setdefault(step.need, {}).update(dict.fromkeys(step.nodes))
    return tuple(Step(need, tuple(nodes[need])) for need in STEP_ORDER if need in nodes)


def due(
    planned: Iterable[Step], owed: Iterable[Step], *, controller: bool, accounting: bool
) -> tuple[Step, ...]:
    """What must be done.

    Args:
        planned: by the plan.
        owed: by a change that was killed or failed.
        controller: whether slurmctld answers; where it does not it cannot be reconfigured, only started.
        accounting: whether slurmdbd answers.
    """
    steps = merged(planned, owed)
    if not accounting:
        steps = merged(steps, [Step(Need.RESTART_SLURMDBD)])
    if not controller:
        kept = (step for step in steps if step.need is not Need.RECONFIGURE)
        steps = merged(kept, [Step(Need.RESTART_SLURMCTLD)])
    return steps


def back(tried: Iterable[Step], *, controller: bool) -> tuple[Step, ...]:
    """What loads the old files again after some steps were tried with the new ones.

    Args:
        tried: steps that were begun.
        controller: whether slurmctld answers; 22.05 ends when it is told to read files that it cannot.
    """
    loading = tuple(step for step in tried if step.need is not Need.DRAIN)
    touched = {step.need for step in loading} & {Need.RECONFIGURE, Need.RESTART_SLURMCTLD}
    if touched and not controller:
        kept = (step for step in loading if step.need is not Need.RECONFIGURE)
        return merged(kept, [Step(Need.RESTART_SLURMCTLD)])
    return merged(loading)


def told(step: Step) -> str:
    """A step as people read it."""
    return f"{step.need.value} of {fold(step.nodes)}" if step.nodes else step.need.value


def still_drained(nodes: Sequence[str]) -> str:
    """Say which nodes stay drained after a change, and what to do."""
    names = fold(nodes)
    return (
        f"{names} stays drained, since slurmctld refuses what its slurmd registers (INVAL); once `sinfo -R` "
        f"gives no such reason: scontrol update nodename={names} state=undrain"
    )
