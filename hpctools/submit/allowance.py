"""Whether the cluster allows what an elastic run asks for, before anything is submitted: pure.

What would only wait (others use the nodes now) is no reason to refuse; what could never be is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from hpctools.elastic_qos import ELASTIC_QOS
from hpctools.errors import SubmitError
from hpctools.slurm.limits import Account, Bounds, Limits, PartitionTimes
from hpctools.submit.nodes import NodeSizes
from hpctools.submit.qos_order import QosBounds, qos_bounds

_WORDS = {"node": "nodes", "cpu": "CPUs", "gres/gpu": "GPUs"}


@dataclass(frozen=True)
class Request:
    """What a run asks of the cluster.

    Attributes:
        account, qos: as asked for; None: the user's default.
        partitions: as asked for, or the default one.
        per_node: TRES that each node gives at least, where that is known.
        minutes: the time limit; None when none was asked for.
        begins_later: whether it waits for a time (`--begin`), when more may be left than now.
        graceful_s, graceful_place: seconds that those who leave want to have, and where that stands; None:
            as long as they get.
        runs, at_once: how many such runs there will be, and how many of them at a time (`--array`).
    """

    sizes: NodeSizes
    account: str | None = None
    qos: str | None = None
    partitions: tuple[str, ...] = ()
    per_node: Mapping[str, int] | None = None
    minutes: int | None = None
    begins_later: bool = False
    graceful_s: float | None = None
    graceful_place: str = ""
    runs: int = 1
    at_once: int = 1

    @property
    def said(self) -> str:
        """How to name the request in a message."""
        return f"--nodes {self.sizes}"

    @property
    def what(self) -> str:
        """As `said`, with how many runs there are."""
        return self.said if self.runs == 1 else f"{self.said} in an array of {self.runs} runs"


def check_allowance(request: Request, limits: Limits) -> None:
    """Refuse what the cluster would never allow.

    Raises:
        SubmitError: says whose limit it is, and what to ask for instead.
    """
    account = limits.account(request.account) if "associations" in limits.enforced else None
    may_have = [each.lower() for each in account.qos] if account else []  # Slurm's own: names without case
    if request.qos and account and "qos" in limits.enforced and request.qos.lower() not in may_have:
        raise SubmitError(
            f"account {account.name} may not use the QoS {request.qos}", f"it has: {', '.join(account.qos)}"
        )
    has_replicas = len(request.sizes.totals) > 1
    if has_replicas:
        _check_elastic_qos(limits, account)
        _check_grace(request, *limits.grace_of(ELASTIC_QOS, request.partitions))
    if "limits" not in limits.enforced:
        return
    name = limits.qos_of(request.account, request.qos) if account or request.qos else ""
    baseline = qos_bounds(limits, name, request.partitions)
    replicas = qos_bounds(limits, ELASTIC_QOS, request.partitions) if has_replicas else QosBounds()
    bounds = account.bounds if account else ()
    _check_tres(request, bounds, baseline, replicas)
    _check_jobs(request, bounds, replicas if has_replicas else QosBounds(partition=baseline.partition))
    _check_time(request, limits, account, name)
    _check_job_minutes(request, limits, bounds, baseline)
    _check_cost(request, limits, bounds)


def check_own_qos(request: Request, limits: Limits | None) -> None:
    """Refuse the replicas' QoS for the run itself: its baseline job would be taken for a replica of its own.

    Raises:
        SubmitError: says what to ask for instead.
    """
    qos = limits.qos_of(request.account, request.qos) if limits else request.qos or ""
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
    if limits is None or "limits" not in limits.enforced:
        return None
    account = limits.account(request.account) if "associations" in limits.enforced else None
    return min((each for _, each in _times_of(request, limits, account, ELASTIC_QOS)), default=None)


def _times_of(
    request: Request, limits: Limits, account: Account | None, name: str
) -> Iterator[tuple[str, int]]:
    """Whose time limits hold for a job of a QoS: an association's where that QoS has none."""
    times = [limits.partitions[each].longest for each in request.partitions if each in limits.partitions]
    if times and None not in times and name not in limits.beyond_times:
        yield f"partition {','.join(request.partitions)}", max(time or 0 for time in times)
    by_qos = [each for each in qos_bounds(limits, name, request.partitions).both if each.minutes is not None]
    for each in by_qos or (account.bounds if account else ()):
        if each.minutes is not None:
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
        for owner, kind, limit, needed in _demands(bounds, baseline, replicas, name):
            if limit is not None and needed(sizes.totals) * per_node > limit:
                allowed = [
                    size
                    for at, size in enumerate(sizes.totals)
                    if needed(sizes.totals[: at + 1]) * per_node <= limit
                ]
                _refuse(request, owner, kind, (name, needed(sizes.totals) * per_node, limit), allowed)


def _words(tres: str) -> str:
    """How a person calls a TRES: `gres/gpu:a100` is `a100 GPUs`."""
    plain, _, kind = tres.partition(":")
    return f"{kind} {_WORDS.get(plain, plain)}".strip()


_Needed = Callable[[tuple[int, ...]], int]


_Demand = tuple[str, str, int | None, _Needed]


def _demands(
    bounds: tuple[Bounds, ...], baseline: QosBounds, replicas: QosBounds, tres: str
) -> Iterator[_Demand]:
    """Each limit on a TRES, and how many nodes a run of some sizes has of what it limits."""
    for each in bounds:
        yield each.of, "GrpTRES", each.group.get(tres), _largest
        yield each.of, "MaxTRES", each.job.get(tres), _largest_of(baseline, replicas, tres)
    yield from _demands_of(baseline.own, tres, _smallest, _smallest)
    yield from _demands_of(replicas.own, tres, _replicas, _largest_replica)
    # All jobs of the run are in the partition, and count there.
    yield from _demands_of(baseline.partition, tres, _smallest, _smallest)
    yield from _demands_of(replicas.partition, tres, _largest, _largest_replica)


def _demands_of(qos: Bounds | None, tres: str, together: _Needed, job: _Needed) -> Iterator[_Demand]:
    if qos is not None:
        yield qos.of, "GrpTRES", qos.group.get(tres), together
        yield qos.of, "MaxTRESPU", qos.user.get(tres), together
        yield qos.of, "MaxTRES", qos.job.get(tres), job


def _smallest(totals: tuple[int, ...]) -> int:
    return totals[0]


def _largest(totals: tuple[int, ...]) -> int:
    return totals[-1]


def _replicas(totals: tuple[int, ...]) -> int:
    return totals[-1] - totals[0]


def _largest_replica(totals: tuple[int, ...]) -> int:
    return NodeSizes(totals).largest_step


def _largest_of(baseline: QosBounds, replicas: QosBounds, tres: str) -> _Needed:
    """The largest job that an association's MaxTRES is for: that of a QoS takes its place."""
    own = [] if baseline.limits_job(tres) else [_smallest]
    others = [] if replicas.limits_job(tres) else [_largest_replica]
    return lambda totals: max((each(totals) for each in (*own, *others)), default=0)


def _refuse(
    request: Request, owner: str, kind: str, figures: tuple[str, int, int], allowed: list[int]
) -> None:
    name, needed, limit = figures
    words = _words(name)
    remedy = (
        f"ask for at most {allowed[-1]} nodes"
        if allowed
        else "ask for a smaller minimum, or for a higher limit"
    )
    raise SubmitError(
        f"{request.said} takes up to {needed} {words} and {owner} may have {limit} ({kind} {name})", remedy
    )


def _check_jobs(request: Request, bounds: tuple[Bounds, ...], of_replicas: QosBounds) -> None:
    """What may run is compared with one run, since others only wait for it; what may be there, with all."""
    elastic, partition = of_replicas.own, of_replicas.partition
    bounds = (*bounds, *([partition] if partition is not None else []))
    replicas = len(request.sizes.totals) - 1
    at_once = replicas * request.at_once
    limits = [(each, replicas + 1, request.runs + at_once) for each in bounds]
    for each, running, there in [*limits, *([(elastic, replicas, at_once)] if elastic else [])]:
        for limit in (each.jobs, each.group_jobs):
            if limit is not None and running > limit:
                _refuse_jobs(request, each.of, limit)
        for limit in (each.submitted, each.group_submitted):
            if limit is not None and there > limit:
                _refuse_jobs(request, each.of, limit, of_all=True)


def _refuse_jobs(request: Request, owner: str, limit: int, *, of_all: bool = False) -> None:
    replicas = len(request.sizes.totals) - 1
    if not of_all or request.runs == 1:
        raise SubmitError(
            f"{request.said} makes {replicas + 1} jobs, {replicas} of them replicas, and {owner} may have "
            f"{limit}",
            "take larger steps: --nodes MIN:MAX:STEP",
        )
    fewer = "take larger steps (--nodes MIN:MAX:STEP), or fewer runs at a time (%N)"
    raise SubmitError(
        f"--array has {request.runs} runs, so {request.runs} baseline jobs and {replicas * request.at_once} "
        f"replica jobs at a time, and {owner} may have {limit} jobs in the queue",
        fewer if replicas and request.runs < limit else f"submit at most {limit} runs at a time",
    )


def _check_time(request: Request, limits: Limits, account: Account | None, qos: str) -> None:
    if request.minutes is None:
        return
    for owner, longest in _times_of(request, limits, account, qos):
        if request.minutes > longest:
            _refuse_time(request.minutes, owner, longest)


def _refuse_time(minutes: int, owner: str, longest: int) -> None:
    raise SubmitError(
        f"--time asks for {minutes} minutes and {owner} allows {longest}", f"give --time {longest} or less"
    )


def _check_job_minutes(
    request: Request, limits: Limits, bounds: tuple[Bounds, ...], baseline: QosBounds
) -> None:
    """What the baseline may use to its time limit; an association's where no QoS has a limit of that TRES.

    A replica job's limit becomes shorter while it waits, so that it begins sometime.
    """
    minutes, rates = _minutes_and_rates(request, limits)
    for each in (*baseline.both, *bounds):
        for name, limit in each.job_minutes.items():
            goes_first = each not in bounds or all(name not in qos.job_minutes for qos in baseline.both)
            if minutes is not None and goes_first and minutes * rates.get(name, 0.0) > limit:
                _refuse_job_minutes(request, each.of, (name, minutes, rates[name]), limit)


def _refuse_job_minutes(request: Request, owner: str, use: tuple[str, int, float], limit: int) -> None:
    name, minutes, rate = use
    words = f"{_words(name).removesuffix('s')} hours"
    affordable = int(limit / rate)
    shorter = f"give --time {affordable} or less, or ask" if affordable else "ask"
    raise SubmitError(
        f"the baseline job of {request.said} may use at least {minutes * rate / 60:.4g} {words} in {minutes} "
        f"minutes, and {owner} allows a job {limit / 60:.4g} (MaxTRESMins {name})",
        f"{shorter} for a smaller minimum or a higher limit",
    )


def _minutes_and_rates(request: Request, limits: Limits) -> tuple[int | None, dict[str, float]]:
    """How long the baseline may be, if that is known, and what it uses in a minute."""
    times = [limits.partitions[name] for name in request.partitions if name in limits.partitions]
    return request.minutes or (times[0].default if len(times) == 1 else None), _rates(request, times)


def _check_cost(request: Request, limits: Limits, bounds: tuple[Bounds, ...]) -> None:
    """What the baselines alone will use to their time limit, against what is left of the budgets in Slurm."""
    minutes, rates = _minutes_and_rates(request, limits)
    if minutes is None:
        return
    for each in bounds:
        for name, (limit, used) in each.used.items():
            left = limit if request.begins_later else max(0.0, limit - used)
            if request.runs * minutes * rates.get(name, 0.0) > left:
                _refuse_cost(request, each.of, (name, minutes, rates[name]), (limit, left))


def _rates(request: Request, times: list[PartitionTimes]) -> dict[str, float]:
    """What the smallest size uses of each TRES in a minute, at least.

    `billing` is the sum of weighted TRES, or the largest of them (PriorityFlags=MAX_TRES): at least that.
    """
    smallest = request.sizes.minimum
    known = {"node": 1, **(request.per_node or {})}
    weighted = [max((at.weights.get(name, 0.0) * count for name, count in known.items())) for at in times]
    return {name: float(smallest * count) for name, count in known.items()} | {
        "billing": smallest * min(weighted, default=0.0)
    }


def _refuse_cost(
    request: Request, owner: str, use: tuple[str, int, float], budget: tuple[int, float]
) -> None:
    (name, minutes, rate), (limit, left) = use, budget
    words = f"{_words(name).removesuffix('s')} hours"
    affordable = int(left / rate / request.runs)
    fewer = "" if request.runs == 1 else "submit fewer runs, "
    shorter = fewer + (f"give --time {affordable} or less, " if affordable else "")
    each = "" if request.runs == 1 else " each"
    later = "" if left == limit else " or a time after the next reset (--begin)"
    raise SubmitError(
        f"{request.what} will use at least {request.runs * minutes * rate / 60:.4g} {words} in {minutes} "
        f"minutes, with {request.sizes.minimum} nodes{each}, and {owner} has {left / 60:.4g} of "
        f"{limit / 60:.4g} left (GrpTRESMins {name})",
        f"{shorter}charge another account (--account), or ask for more{later}",
    )
