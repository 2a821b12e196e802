"""Whose limit holds for a job, where its QoS and its partition's both have one: pure.

Slurm takes, for each limit and each TRES, the first that is defined: the partition's QoS, then the job's,
then the associations; the job's before the partition's where it has the flag OverPartQOS (sacctmgr(1)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpctools.slurm.limits import Bounds, Limits

_BY_TRES = (
    *("group", "job", "user", "job_minutes", "used", "running"),
    *("in_account", "on_node", "least", "user_running", "account_running"),
)
_COUNTS = ("jobs", "submitted", "group_jobs", "group_submitted", "account_jobs", "account_submitted")
_IN_ACCOUNT = {"jobs": "account_jobs", "submitted": "account_submitted"}
_NUMBERS = (*_COUNTS, "minutes", "factor")


@dataclass(frozen=True)
class QosBounds:
    """The limits that hold for a job by QoS: each limit in one of the two at most.

    Attributes:
        own: those of its own QoS; None: it has none that is known.
        partition: those of the partition's.
    """

    own: Bounds | None = None
    partition: Bounds | None = None

    @property
    def both(self) -> tuple[Bounds, ...]:
        """Those that there are."""
        return tuple(each for each in (self.own, self.partition) if each is not None)

    def limits_group(self, tres: str) -> bool:
        """Whether one of them has a GrpTRES, so that the associations' do not hold."""
        return any(tres in each.group for each in self.both)

    def limits_job(self, tres: str) -> bool:
        """Whether one of them has a MaxTRES, so that the associations' do not hold."""
        return any(tres in each.job for each in self.both)

    def of_association(self, limit: int | None) -> int | None:
        """What an association's GrpTRES or MaxTRES is for a job of this QoS (LimitFactor)."""
        factor = next((each.factor for each in self.both if each.factor), 1.0)
        return None if limit is None else int(limit * factor)


def without_counts(bounds: tuple[Bounds, ...], qos: QosBounds) -> tuple[Bounds, ...]:
    """What associations still say of how many jobs there may be, for jobs of a QoS that says it itself."""
    said = {name for name in _COUNTS if any(getattr(each, name) is not None for each in qos.both)}
    # What a QoS says of each account it says instead of what an association says of its user, too.
    also = {own for own, of_account in _IN_ACCOUNT.items() if of_account in said}
    none: dict[str, Any] = dict.fromkeys(said | also)
    return tuple(replace(each, **none) for each in bounds)


def qos_bounds(limits: Limits, qos: str, partitions: Sequence[str]) -> QosBounds:
    """What holds for a job of a QoS; of several partitions only a QoS that all of them have."""
    names = {limits.partitions[each].qos.lower() for each in partitions if each in limits.partitions}
    # As slurm.conf writes it, in which Slurm takes no notice of the case.
    name = limits.qos_of(None, names.pop()) if len(names) == 1 and "" not in names else ""
    own, partition = limits.qos.get(qos), limits.qos.get(name)
    if own is None or partition is None or name == qos:
        return QosBounds(own, partition if own is None else None)
    if qos in limits.over_partitions:
        return QosBounds(own, _without(partition, own))
    return QosBounds(_without(own, partition), partition)


def _without(later: Bounds, first: Bounds) -> Bounds:
    """What is left of the limits of who comes second."""
    left: dict[str, Any] = {
        name: {
            tres: limit for tres, limit in getattr(later, name).items() if tres not in getattr(first, name)
        }
        for name in _BY_TRES
    }
    left |= dict.fromkeys(name for name in _NUMBERS if getattr(first, name) is not None)
    return replace(later, **left)
