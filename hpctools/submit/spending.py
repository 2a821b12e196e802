"""What a run uses until its time limit, against what Slurm lets jobs use over time: pure.

Counted is what the baseline uses. A replica job's limit becomes shorter while it waits, so that it begins
sometime. Whose limit holds, and what it is compared with, is as in slurmctld's acct_policy.c.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from hpctools.errors import SubmitError
from hpctools.slurm.limits import Bounds, Limits, PartitionTimes
from hpctools.slurm.limits_text import WALL
from hpctools.submit.qos_order import QosBounds
from hpctools.submit.request import Request, tres_in_words

T = TypeVar("T")
Owner = tuple[str, str]
"""Whose limit it is, and how to come past it."""


@dataclass(frozen=True)
class _Use:
    """What one baseline job uses.

    Attributes:
        minutes: until its time limit; infinite where it has none before it starts.
        rates: what it has of each TRES, at least; of `WALL` it is 1.
        asked: as how many minutes Slurm takes each before the job starts (UsageFactor, with UsageFactorSafe).
        spent: as how many afterwards (UsageFactor).
        why: what a job without a limit comes from, in words.
    """

    minutes: float
    rates: Mapping[str, float]
    asked: float = 1.0
    spent: float = 1.0
    why: str = ""

    def at_start(self, name: str) -> float:
        """TRES minutes that Slurm compares with a limit on what a job may use."""
        return self.asked * self.minutes * self.rates.get(name, 0.0)


def check_spending(
    request: Request, limits: Limits, bounds: tuple[Bounds, ...], baseline: QosBounds, qos: str
) -> None:
    """Refuse what Slurm would not start, and what is more than is left of a budget in Slurm.

    Nothing is known of a run without `--time` in a partition without DefaultTime, unless that is no limit for
    Slurm.

    Args:
        bounds: of the associations.
        baseline: of the baseline job's QoS, whose name is `qos`, and of its partition's.

    Raises:
        SubmitError: says whose limit it is, and what to ask for instead.
    """
    use = _use(request, limits, bounds, baseline, qos)
    if use is not None:
        _check_job(request, use, bounds, baseline)
        _check_budgets(request, limits, use, bounds, baseline)


def _check_job(request: Request, use: _Use, bounds: tuple[Bounds, ...], baseline: QosBounds) -> None:
    """What no job may use by itself, whatever others do."""
    for owner, name, most in _in_turn(lambda each: each.job_minutes, bounds, baseline):
        if use.at_start(name) > most:
            _refuse_job(request, owner, use, (name, most), f"allows a job {{}} (MaxTRESMins {name})")
    for limits_of, whose, kind in (
        (lambda each: each.running, "jobs", "GrpTRESRunMins"),
        (lambda each: each.user_running, "jobs of one user", "MaxTRESRunMinsPU"),
        (lambda each: each.account_running, "jobs of one account", "MaxTRESRunMinsPA"),
    ):
        for owner, name, most in _in_turn(limits_of, bounds, baseline):
            if use.at_start(name) > most:
                words = f"allows {whose} that run {{}} until their ends ({kind} {name})"
                _refuse_job(request, owner, use, (name, most), words)


def _check_budgets(
    request: Request, limits: Limits, use: _Use, bounds: tuple[Bounds, ...], baseline: QosBounds
) -> None:
    """What is left for all jobs together: with `safe` Slurm asks before the start, else it ends jobs."""
    counted = use.asked if "safe" in limits.enforced else use.spent
    runs = request.runs if use.spent else 1  # of what counts nothing each has the whole limit
    for owner, name, (limit, used) in _in_turn(lambda each: each.used, bounds, baseline):
        # Of what counts nothing nothing is used up, but time is (slurmctld's grp_used_wall).
        counts = (use.spent or name == WALL) and not request.begins_later
        left, rate = max(0.0, limit - used) if counts else limit, use.rates.get(name, 0.0)
        knows = "safe" in limits.enforced or not use.why  # without a limit it ends when all is used up
        if (knows and runs * use.minutes * counted * rate > left) or (rate and not left):
            _refuse_cost(request, owner, use, (name, counted), (limit, left))


def _in_turn(
    limits_of: Callable[[Bounds], Mapping[str, T]], bounds: tuple[Bounds, ...], baseline: QosBounds
) -> Iterator[tuple[Owner, str, T]]:
    """Each limit of a kind that holds, of one TRES: an association's where no QoS has one."""
    of_qos = {name for each in baseline.both for name in limits_of(each)}
    for each, elsewhere in (
        (baseline.own, "take another QoS (--qos)"),
        (baseline.partition, "take another partition (-p)"),
    ):
        if each is not None:
            for name, limit in limits_of(each).items():
                yield (each.of, elsewhere), name, limit
    for each in bounds:
        for name, limit in limits_of(each).items():
            if name not in of_qos:
                yield (each.of, "charge another account (--account)"), name, limit


def _use(
    request: Request, limits: Limits, bounds: tuple[Bounds, ...], baseline: QosBounds, qos: str
) -> _Use | None:
    """What the baseline uses, if it is known how long it may be."""
    times = [limits.partitions[name] for name in request.partitions if name in limits.partitions]
    minutes: float | None = request.minutes or (times[0].default if len(times) == 1 else None)
    why = _why_unlimited(request, limits, (*bounds, *baseline.both), qos) if request.minutes is None else ""
    if why:
        minutes = math.inf
    if minutes is None:
        return None
    spent = limits.usage_factors.get(qos, 1.0)
    return _Use(
        minutes, _rates(request, times), spent if qos in limits.asked_with_factor else 1.0, spent, why
    )


def _why_unlimited(request: Request, limits: Limits, bounds: tuple[Bounds, ...], qos: str) -> str:
    """Why slurmctld compares a job without a time limit, in words; "": it has one, or that is not known.

    In a partition without DefaultTime a job gets MaxTime when it starts. Before that it has a limit only if
    it asks for one, or gets it from MaxWall, GrpWall, or, with DenyOnLimit, from any other limit.
    """
    if request.unlimited:
        return "--time asks for no limit"
    times = [limits.partitions[name] for name in request.partitions if name in limits.partitions]
    if len(times) != 1 or times[0].default is not None or qos not in limits.qos:
        return ""
    if any(each.minutes is not None or WALL in each.used for each in bounds):
        return ""
    if {qos, limits.qos_of(None, times[0].qos or qos)} & limits.denying:
        return ""
    return "without --time it has no limit before it starts (the partition has no DefaultTime)"


def _rates(request: Request, times: list[PartitionTimes]) -> dict[str, float]:
    """What the smallest size uses of each TRES in a minute, at least.

    `billing` is the sum of weighted TRES, or the largest of them (PriorityFlags=MAX_TRES): at least that. Of
    a job it is a whole number; slurmctld cuts off the rest.
    """
    smallest = request.sizes.minimum
    known = {name: smallest * count for name, count in {"node": 1, **(request.per_node or {})}.items()}
    weighted = [max(int(at.weights.get(name, 0.0) * count) for name, count in known.items()) for at in times]
    return {
        **{name: float(count) for name, count in known.items()},
        "billing": float(min(weighted, default=0)),
        WALL: 1.0,
    }


def _hours(minutes: float, name: str) -> str:
    what = "" if name == WALL else tres_in_words(name).removesuffix("s") + " "
    return f"{minutes / 60:.4g} {what}hours"


def _times(factor: float) -> str:
    return "" if factor == 1 else f" (UsageFactor {factor:g})"


def _limit(name: str) -> str:
    return "GrpWall" if name == WALL else f"GrpTRESMins {name}"


def _refuse_job(request: Request, owner: Owner, use: _Use, most: tuple[str, int], allows: str) -> None:
    name, limit = most
    affordable = int(limit / (use.asked * use.rates[name]))
    shorter = f"give --time {affordable} or less, or ask" if affordable else "ask"
    used = f"{_hours(use.at_start(name), name)} in {use.minutes:.0f} minutes{_times(use.asked)}"
    said = f" of {request.said}: {use.why}" if use.why else f" of {request.said} may use at least {used}"
    raise SubmitError(
        f"the baseline job{said}, and {owner[0]} {allows.format(f'{limit / 60:.4g}')}",
        f"{shorter} for a smaller minimum or a higher limit",
    )


def _refuse_cost(
    request: Request, owner: Owner, use: _Use, counted: tuple[str, float], budget: tuple[int, float]
) -> None:
    (name, factor), (limit, left), smallest = counted, budget, request.sizes.minimum
    minutes = request.runs * factor * use.rates[name]  # in each minute
    affordable = int(left / minutes) if minutes else 0
    fewer = "" if request.runs == 1 else "submit fewer runs, "
    shorter = fewer + (f"give --time {affordable} or less, " if affordable else "")
    nodes = f"{smallest} node{'' if smallest == 1 else 's'}{'' if request.runs == 1 else ' each'}"
    later = "" if left == limit else " or a time after the next reset (--begin)"
    used = f"{_hours(minutes * use.minutes, name)} in {use.minutes:.0f} minutes{_times(factor)}, with {nodes}"
    said = f": {use.why}" if use.why else f" will use at least {used}"
    raise SubmitError(
        f"{request.what}{said}, and {owner[0]} has {left / 60:.4g} of {limit / 60:.4g} left ({_limit(name)})",
        f"{shorter}{owner[1]}, or ask for more{later}",
    )
