"""Whether others may take the nodes of a run's baseline job, on which it stays: pure.

It is told, not refused: the run goes on with another baseline job, and whether anybody more urgent comes is
not known. But what it was told to keep is then lost like a replica's.
"""

from __future__ import annotations

from hpctools.elastic_qos import ELASTIC_QOS
from hpctools.slurm.limits import Limits
from hpctools.submit.request import Request

_STAYS = ("off",)
_ENOUGH_SECONDS = 3
"""Below this a step or a save that has begun is seldom done: docs/elastic-policy.md, Checkpoints."""


def who_may_preempt(request: Request, limits: Limits) -> str | None:
    """What a person should know of who may take the baseline job's nodes; None: nobody may, or not known.

    Returns:
        One line with its remedy.
    """
    if limits.preempt_type == "qos":
        return _by_qos(request, limits)
    return _by_partition(request, limits) if limits.preempt_type == "partition_prio" else None


def short_grace(request: Request, limits: Limits) -> str | None:
    """What a person should know when those who leave get no time for it; None: they get some, or not known.

    GraceTime is 0 unless somebody set it (sacctmgr(1)): Slurm then kills as soon as it preempts.

    Returns:
        One line with its remedy.
    """
    taken = frozenset().union(*limits.precedence.preempts.values())
    grace = limits.grace.get(ELASTIC_QOS, 0)
    if limits.preempt_type != "qos" or ELASTIC_QOS not in taken or grace >= _ENOUGH_SECONDS:
        return None
    if request.sizes.maximum == request.sizes.minimum:
        return None
    return (
        f"a replica that is preempted gets {grace} s to leave (GraceTime of the QoS {ELASTIC_QOS}): what it "
        "has not handed over by then is done again, and in restart mode all since the script's last save; "
        f"ask the operators for 30 s: sacctmgr modify qos {ELASTIC_QOS} set GraceTime=30"
    )


def any_replica_first(request: Request, limits: Limits) -> str | None:
    """What a person should know when Slurm does not take the youngest replica first; None: it does, or none.

    It then goes by the jobs' priorities, the lowest first, which say nothing of a run.

    Returns:
        One line with its remedy.
    """
    if limits.youngest_first or len(request.sizes.totals) <= 2 or not _takes_replicas(request, limits):
        return None
    return (
        "this cluster does not preempt the youngest replica first: where steps differ, one in the middle may "
        "be taken, and those after it are then of no use until it is back; ask the operators for "
        "PreemptParameters=youngest_first (before Slurm 23.02 SchedulerParameters=preempt_youngest_first)"
    )


def takers_of(limits: Limits | None) -> tuple[str, ...] | None:
    """QoS whose jobs may take a replica's nodes; None: that is not known, or goes by partitions."""
    if limits is None or limits.preempt_type != "qos":
        return None
    return tuple(sorted(each for each, taken in limits.precedence.preempts.items() if ELASTIC_QOS in taken))


def _takes_replicas(request: Request, limits: Limits) -> bool:
    if limits.preempt_type != "qos":
        return limits.preempt_type == "partition_prio" and _by_partition(request, limits) is not None
    return ELASTIC_QOS in frozenset().union(*limits.precedence.preempts.values())


def _by_qos(request: Request, limits: Limits) -> str | None:
    known, qos = limits.precedence, limits.qos_of(request.account, request.qos, request.partitions)
    takers = sorted(each for each, taken in known.preempts.items() if qos in taken)
    if not takers or known.modes.get(qos) in _STAYS:
        return None
    account = limits.account(request.account, request.partitions)
    taken = frozenset().union(*known.preempts.values())
    usable = [each for each in (account.qos if account else sorted(limits.qos)) if each != ELASTIC_QOS]
    safe = sorted(each for each in usable if each not in taken or known.modes.get(each) in _STAYS)
    remedy = f"give it one that nobody takes: --qos={' or '.join(safe)}" if safe else "ask for one that stays"
    return (
        f"the baseline job, which should stay, may be preempted: its QoS {qos} yields to "
        f"{', '.join(takers)}; {remedy}"
    )


def _by_partition(request: Request, limits: Limits) -> str | None:
    chosen = [limits.partitions[name] for name in request.partitions if name in limits.partitions]
    if not chosen or any(each.mode in _STAYS for each in chosen):
        return None
    lowest = min(each.tier for each in chosen)
    above = sorted(name for name, each in limits.partitions.items() if each.tier > lowest)
    if not above:
        return None
    return (
        f"the baseline job, which should stay, may be preempted by jobs of partition {', '.join(above)} "
        f"(PriorityTier) where they share its nodes; take a partition with PreemptMode=OFF, if there is one"
    )
