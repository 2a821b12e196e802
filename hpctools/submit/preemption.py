"""Whether others may take the nodes of a run's baseline job, on which it stays: pure.

It is told, not refused: the run goes on with another baseline job, and whether anybody more urgent comes is
not known. But what it was told to keep is then lost like a replica's.
"""

from __future__ import annotations

from hpctools.slurm.limits import Limits
from hpctools.submit.allowance import Request

_STAYS = ("off",)


def who_may_preempt(request: Request, limits: Limits) -> str | None:
    """What a person should know of who may take the baseline job's nodes; None: nobody may, or not known.

    Returns:
        One line with its remedy.
    """
    if limits.preempt_type == "qos":
        return _by_qos(request, limits)
    return _by_partition(request, limits) if limits.preempt_type == "partition_prio" else None


def _by_qos(request: Request, limits: Limits) -> str | None:
    known, qos = limits.precedence, limits.qos_of(request.account, request.qos)
    takers = sorted(each for each, taken in known.preempts.items() if qos in taken)
    if not takers or known.modes.get(qos) in _STAYS:
        return None
    account = limits.account(request.account)
    taken = frozenset().union(*known.preempts.values())
    usable = account.qos if account else sorted(limits.qos)
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
