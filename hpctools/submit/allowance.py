"""Whether the cluster allows what an elastic run asks for, before anything is submitted: pure.

What would only wait (others use the nodes now) is no reason to refuse; what could never be is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from hpctools.elastic_qos import ELASTIC_QOS
from hpctools.errors import SubmitError
from hpctools.slurm.limits import Account, Bounds, Limits
from hpctools.submit.job_counts import check_job_counts
from hpctools.submit.nodes import NodeSizes
from hpctools.submit.qos_order import QosBounds, qos_bounds
from hpctools.submit.request import Request, tres_in_words
from hpctools.submit.spending import check_spending


def check_allowance(request: Request, limits: Limits) -> None:
    """Refuse what the cluster would never allow.

    Raises:
        SubmitError: says whose limit it is, and what to ask for instead.
    """
    account = (
        limits.account(request.account, request.partitions) if "associations" in limits.enforced else None
    )
    may_have = [each.lower() for each in account.qos] if account else []  # Slurm's own: names without case
    if request.qos and account and "qos" in limits.enforced and request.qos.lower() not in may_have:
        raise SubmitError(
            f"account {account.name} may not use the QoS {request.qos}", f"it has: {', '.join(account.qos)}"
        )
    if len(request.sizes.totals) > 1:
        _check_elastic_qos(limits, account)
        _check_grace(request, *limits.grace_of(ELASTIC_QOS, request.partitions))
    name = limits.qos_of(request.account, request.qos, request.partitions)
    if "limits" in limits.enforced:
        _check_enforced(request, limits, account.bounds if account else (), name)
    _check_time(request, limits, account, name)


def _check_enforced(request: Request, limits: Limits, bounds: tuple[Bounds, ...], name: str) -> None:
    """Limits of associations and QoS, which hold where AccountingStorageEnforce has `limits`."""
    baseline = qos_bounds(limits, name, request.partitions)
    has_replicas = len(request.sizes.totals) > 1
    replicas = qos_bounds(limits, ELASTIC_QOS, request.partitions) if has_replicas else QosBounds()
    _check_tres(request, bounds, baseline, replicas)
    _check_each_node(request, bounds, baseline, replicas)
    _check_least(request, limits, baseline, replicas)
    check_job_counts(request, bounds, baseline, replicas)
    check_spending(request, limits, bounds, baseline, name)


def check_own_qos(request: Request, limits: Limits | None) -> None:
    """Refuse the replicas' QoS for the run itself: its baseline job would be taken for a replica of its own.

    Raises:
        SubmitError: says what to ask for instead.
    """
    qos = limits.qos_of(request.account, request.qos, request.partitions) if limits else request.qos or ""
    if ELASTIC_QOS in qos.lower().split(","):
        said = f"--qos={request.qos}" if request.qos else f"your default QoS is {qos}, which"
        raise SubmitError(
            f"{said} is for the replica jobs of elastic runs, and the baseline job would be taken for one",
            "give the QoS that your other jobs have (--qos); replica jobs get theirs by themselves",
        )


def check_each_qos(request: Request, limits: Limits | None, check: Callable[[Request], None]) -> None:
    """Check a request; of a list of QoS (`--qos=a,b`, since Slurm 24.11) it is enough that one passes.

    None of them may be that of replicas.

    Raises:
        SubmitError: of the first that is named.
    """
    check_own_qos(request, limits)
    refusals = []
    for name in (request.qos or "").split(","):
        try:
            return check(replace(request, qos=name or None))
        except SubmitError as error:
            refusals.append(error)
    raise refusals[0]


def replica_minutes(request: Request, limits: Limits | None) -> int | None:
    """The longest time limit that a replica job may have; None: no such limit, or not known.

    What is beyond it would be refused, or wait for ever: a replica has not its baseline's QoS.
    """
    if limits is None:
        return None
    account = (
        limits.account(request.account, request.partitions) if "associations" in limits.enforced else None
    )
    return min((each for _, each in _times_of(request, limits, account, ELASTIC_QOS)), default=None)


def _times_of(
    request: Request, limits: Limits, account: Account | None, name: str
) -> Iterator[tuple[str, int]]:
    """Whose time limits hold for a job of a QoS: an association's where that QoS has none.

    A partition's holds whatever AccountingStorageEnforce names: slurmctld compares it with each job's.
    """
    times = [limits.partitions[each].longest for each in request.partitions if each in limits.partitions]
    if times and None not in times and name not in limits.beyond_times:
        yield f"partition {','.join(request.partitions)}", max(time or 0 for time in times)
    if "limits" not in limits.enforced:
        return
    by_qos = [each for each in qos_bounds(limits, name, request.partitions).both if each.minutes is not None]
    factor = limits.usage_factors.get(name, 1.0) if name in limits.asked_with_factor else 1.0
    for each in by_qos or (account.bounds if account else ()):
        if each.minutes is not None and factor > 1:
            # slurmctld multiplies a job's limit before it starts it (UsageFactorSafe), and cuts off the rest.
            yield f"{each.of} (UsageFactor {factor:g})", math.ceil((each.minutes + 1) / factor) - 1
        elif each.minutes is not None:
            yield each.of, each.minutes


def _check_elastic_qos(limits: Limits, account: Account | None) -> None:
    if ELASTIC_QOS not in limits.qos:
        raise SubmitError(
            f"this cluster has no QoS {ELASTIC_QOS}, with which replica jobs run",
            f"ask its operators for a tier {ELASTIC_QOS} (docs/elastic-site.md), "
            "or fix the size: --nodes N:N",
        )
    if account and "qos" in limits.enforced and ELASTIC_QOS not in account.qos:
        raise SubmitError(
            f"account {account.name} may not use the QoS {ELASTIC_QOS}, with which replica jobs run",
            "charge another account (--account), ask for it, or fix the size: --nodes N:N",
        )


def _check_grace(request: Request, grace: int, owner: str) -> None:
    if request.graceful_s is not None and request.graceful_s > grace:
        raise SubmitError(
            f"{request.graceful_place}: gracefulShutdownTimeoutInSeconds is {request.graceful_s:g}, and "
            f"Slurm leaves a preempted job {grace} s (GraceTime of {owner})",
            f"give {grace} or less, or ask for a longer GraceTime",
        )


def _check_tres(
    request: Request, bounds: tuple[Bounds, ...], baseline: QosBounds, replicas: QosBounds
) -> None:
    sizes = request.sizes
    for name, per_node in {"node": 1, **(request.per_node or {})}.items():
        demands = list(_demands(bounds, baseline, replicas, name))
        for owner, kind, limit, needed in demands:
            if needed(sizes.totals) * per_node > limit:
                allowed = [
                    size
                    for at, size in enumerate(sizes.totals)
                    if all(each(sizes.totals[: at + 1]) * per_node <= most for _, _, most, each in demands)
                ]
                _refuse(request, owner, kind, (name, needed(sizes.totals) * per_node, limit), allowed)


_Needed = Callable[[tuple[int, ...]], int]


_Demand = tuple[str, str, int, _Needed]


def _demands(
    bounds: tuple[Bounds, ...], baseline: QosBounds, replicas: QosBounds, tres: str
) -> Iterator[_Demand]:
    """Each limit on a TRES, and how many nodes a run of some sizes has of what it limits."""
    found = (
        *_demands_of_associations(bounds, replicas, tres, _with_replicas, _largest_replica),
        *_demands_of_associations(bounds, baseline, tres, _smallest, _smallest),
        *_demands_of(baseline.own, tres, _smallest, _smallest),
        *_demands_of(replicas.own, tres, _replicas, _largest_replica),
        # All jobs of the run are in the partition, and count there.
        *_demands_of(baseline.partition, tres, _smallest, _smallest),
        *_demands_of(replicas.partition, tres, _largest, _largest_replica),
    )
    for owner, kind, limit, needed in found:
        if limit is not None:
            yield owner, kind, limit, needed


_Found = tuple[str, str, int | None, _Needed]


def _demands_of_associations(
    bounds: tuple[Bounds, ...], qos: QosBounds, tres: str, together: _Needed, job: _Needed
) -> Iterator[_Found]:
    """Not for jobs of a QoS that has such a limit itself; in a group these count all the same."""
    for each in bounds:
        if not qos.limits_group(tres):
            yield each.of, "GrpTRES", qos.of_association(each.group.get(tres)), together
        if not qos.limits_job(tres):
            yield each.of, "MaxTRES", qos.of_association(each.job.get(tres)), job


def _demands_of(qos: Bounds | None, tres: str, together: _Needed, job: _Needed) -> Iterator[_Found]:
    if qos is not None:
        yield qos.of, "GrpTRES", qos.group.get(tres), together
        yield qos.of, "MaxTRESPU", qos.user.get(tres), together
        yield qos.of, "MaxTRESPA", qos.in_account.get(tres), together
        yield qos.of, "MaxTRES", qos.job.get(tres), job


def _smallest(totals: tuple[int, ...]) -> int:
    return totals[0]


def _largest(totals: tuple[int, ...]) -> int:
    return totals[-1]


def _replicas(totals: tuple[int, ...]) -> int:
    return totals[-1] - totals[0]


def _largest_replica(totals: tuple[int, ...]) -> int:
    return NodeSizes(totals).largest_step


def _with_replicas(totals: tuple[int, ...]) -> int:
    return totals[-1] if len(totals) > 1 else 0


def _refuse(
    request: Request, owner: str, kind: str, figures: tuple[str, int, int], allowed: list[int]
) -> None:
    name, needed, limit = figures
    words = tres_in_words(name)
    remedy = (
        f"ask for at most {allowed[-1]} nodes"
        if allowed
        else "ask for a smaller minimum, or for a higher limit"
    )
    raise SubmitError(
        f"{request.said} takes up to {needed} {words} and {owner} may have {limit} ({kind} {name})", remedy
    )


def _check_each_node(
    request: Request, bounds: tuple[Bounds, ...], baseline: QosBounds, replicas: QosBounds
) -> None:
    """MaxTRESPerNode: of the association where a job's QoS has none."""
    jobs = [baseline, replicas] if len(request.sizes.totals) > 1 else [baseline]
    for name, count in (request.per_node or {}).items():
        for qos in jobs:
            first = next((each for each in (*qos.both, *bounds) if name in each.on_node), None)
            if first is not None and count > first.on_node[name]:
                raise SubmitError(
                    f"{request.said} takes {count} {tres_in_words(name)} of each node and {first.of} allows "
                    f"{first.on_node[name]} (MaxTRESPerNode {name})",
                    "ask for fewer on each node and for more nodes, or for a higher limit",
                )


def _check_least(request: Request, limits: Limits, baseline: QosBounds, replicas: QosBounds) -> None:
    """MinTRES: what a job has of nodes and GPUs, and at most of what nodes have."""
    sizes, remedy = request.sizes, "raise the minimum to {}"
    _refuse_small(request, limits, baseline, ("the baseline job of this run", sizes.minimum, remedy))
    if len(sizes.totals) > 1:
        remedy = "take larger steps: at least {} nodes from one size to the next"
        _refuse_small(request, limits, replicas, ("a replica job of this run", sizes.smallest_step, remedy))


def _refuse_small(request: Request, limits: Limits, qos: QosBounds, job: tuple[str, int, str]) -> None:
    called, nodes, remedy = job
    # Of two QoS that limit the same, Slurm goes by the first.
    owners = {name: each for each in reversed(qos.both) for name in each.least}
    for name, owner in owners.items():
        least, words = owner.least[name], tres_in_words(name)
        per_node, most = _most_per_node(request, limits, name)
        if per_node is None or nodes * per_node >= least:
            continue
        none = f"take a partition that has {words}" if most else f"ask for {words}"
        enough = remedy.format(math.ceil(least / per_node)) if per_node else none
        has = f"has at least {least} {words} (MinTRES {name})"
        raise SubmitError(
            f"{request.said}: a job of {owner.of} {has}, and {called} {most}{nodes * per_node}",
            f"{enough}, or take another QoS (--qos)" if qos.own is owner else enough,
        )


def _most_per_node(request: Request, limits: Limits, tres: str) -> tuple[int | None, str]:
    """What a job gets of a TRES on each node and no more, and what to say before it; None: not known."""
    if tres == "node":
        return 1, ""
    asked = _gpus_of_each_node(request, limits, tres)
    largest = [limits.largest.get(name, {}) for name in request.partitions]
    if asked is not None or not largest or not all(largest) or not tres.startswith(("cpu", "mem", "gres/")):
        return asked, ""
    return max(each.get(tres, 0) for each in largest), "at most "


def _gpus_of_each_node(request: Request, limits: Limits, tres: str) -> int | None:
    """How many GPUs a job gets on each node; None: all that are there, or it is not known."""
    asked = request.per_node or {}
    if tres.partition(":")[0] != "gres/gpu" or request.per_node is None or request.whole:
        return None
    if any(limits.partitions[name].whole for name in request.partitions if name in limits.partitions):
        return None
    # Slurm chooses the type of GPUs whose type is not named.
    return asked.get(tres, None if "gres/gpu" in asked else 0)


def _check_time(request: Request, limits: Limits, account: Account | None, qos: str) -> None:
    said, minutes = _time_asked(request, limits)
    for owner, longest in _times_of(request, limits, account, qos):
        if minutes > longest:
            raise SubmitError(f"{said} and {owner} allows {longest}", f"give --time {longest} or less")


def _time_asked(request: Request, limits: Limits) -> tuple[str, float]:
    """The time limit that a job would get, in words, too; 0: not known, or what the limits make of it."""
    if request.unlimited:
        return "--time asks for no limit", math.inf
    if request.minutes is not None:
        return f"--time asks for {request.minutes} minutes", request.minutes
    (name, *others) = (*request.partitions, "")
    usual = limits.partitions[name].default if name in limits.partitions and others == [""] else None
    return f"without --time a job gets {usual} minutes (DefaultTime of partition {name})", usual or 0
