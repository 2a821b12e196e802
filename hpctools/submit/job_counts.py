"""How many jobs a run makes, against how many there may be: pure.

An association's limit holds for jobs whose QoS has none of its kind, and then counts all of the user's jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hpctools.errors import SubmitError
from hpctools.slurm.limits import Bounds
from hpctools.submit.qos_order import QosBounds, without_counts
from hpctools.submit.request import Request


@dataclass(frozen=True)
class _Counted:
    """Limits, and which jobs of a run they count."""

    bounds: Bounds
    baselines: bool
    replicas: bool

    def running(self, request: Request) -> int:
        """Jobs of one run; others only wait for it."""
        return self.baselines + self.replicas * _replicas(request)

    def there(self, request: Request, runs: int, at_once: int) -> int:
        """Jobs in the queue of so many runs."""
        return self.baselines * runs + self.replicas * min(at_once, runs) * _replicas(request)


def check_job_counts(
    request: Request, bounds: tuple[Bounds, ...], baseline: QosBounds, replicas: QosBounds
) -> None:
    """Compare what may run with one run, since others only wait for it; what may be there, with all.

    Args:
        bounds: of the associations.
        baseline, replicas: of the QoS of the baseline job and of replica jobs.

    Raises:
        SubmitError: says whose limit it is, and what to ask for instead.
    """
    for each in _counted(request, bounds, baseline, replicas):
        limits = each.bounds
        for limit in (limits.jobs, limits.account_jobs, limits.group_jobs):
            if limit is not None and each.running(request) > limit:
                _refuse(request, each, limit)
        for limit in (limits.submitted, limits.account_submitted, limits.group_submitted):
            if limit is not None and each.there(request, request.runs, request.at_once) > limit:
                _refuse(request, each, limit, of_all=True)


def _counted(
    request: Request, bounds: tuple[Bounds, ...], baseline: QosBounds, replicas: QosBounds
) -> Iterator[_Counted]:
    if _replicas(request):
        yield from (_Counted(each, True, True) for each in without_counts(bounds, replicas))
        yield from (_Counted(each, True, True) for each in [replicas.partition] if each is not None)
        yield from (_Counted(each, False, True) for each in [replicas.own] if each is not None)
    yield from (_Counted(each, True, False) for each in without_counts(bounds, baseline))
    yield from (_Counted(each, True, False) for each in baseline.both)


def _replicas(request: Request) -> int:
    return len(request.sizes.totals) - 1


def _refuse(request: Request, counted: _Counted, limit: int, *, of_all: bool = False) -> None:
    replicas, owner = _replicas(request), counted.bounds.of
    if not of_all or request.runs == 1:
        raise SubmitError(
            f"{request.said} makes {replicas + 1} jobs, {replicas} of them replicas, and {owner} may have "
            f"{limit}",
            _fewer_jobs(counted, limit),
        )
    raise SubmitError(
        f"--array has {request.runs} runs, so {request.runs} baseline jobs and {replicas * request.at_once} "
        f"replica jobs at a time, and {owner} may have {limit} jobs in the queue",
        _fewer_runs(request, counted, limit),
    )


def _fewer_jobs(counted: _Counted, limit: int) -> str:
    """What one run can do."""
    if counted.replicas and limit > counted.baselines:
        return "take larger steps: --nodes MIN:MAX:STEP"
    if counted.replicas and limit == counted.baselines:
        return "fix the size: --nodes N:N"
    return "take another QoS (--qos) or account (--account), or ask for a higher limit"


def _fewer_runs(request: Request, counted: _Counted, limit: int) -> str:
    """What an array can do."""
    if counted.replicas and counted.there(request, request.runs, 1) <= limit:
        return "take larger steps (--nodes MIN:MAX:STEP), or fewer runs at a time (%N)"
    fitting = (
        runs for runs in range(1, request.runs) if counted.there(request, runs, request.at_once) <= limit
    )
    most = max(fitting, default=0)
    return f"submit at most {most} runs at a time" if most else _fewer_jobs(counted, limit)
