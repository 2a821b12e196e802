"""Which jobs a changed partition would disturb: pure.

Jobs that run go on (tried on 22.05.8); jobs that wait may never start, which Slurm tells nobody.
"""

from __future__ import annotations

from collections.abc import Callable

from hpctools.conf.plan import effects
from hpctools.conf.plan.meaning import expand
from hpctools.conf.plan.model import DisturbedJob
from hpctools.conf.plan.sides import Sides
from hpctools.slurm.types import Job

Why = Callable[[Job], str]
"""Why a change keeps a pending job from starting; "" when it does not."""


def disturbed_by(sides: Sides, partition: str, key: str, before: str, after: str) -> tuple[DisturbedJob, ...]:
    """Return the jobs that a change of one key would keep from starting.

    Args:
        before, after: canonical texts.
    """
    why = _reason(key, before, after)
    if why is None:
        return ()
    waiting = (job for job in sides.jobs if job.state == "PENDING" and partition in job.partition.split(","))
    told = ((job, why(job)) for job in waiting)
    return tuple(effects.disturbed(job, reason) for job, reason in told if reason)


def _reason(key: str, before: str, after: str) -> Why | None:
    reasons: dict[str, Callable[[str, str], Why | None]] = {
        "maxtime": _too_long,
        "allowaccounts": lambda _, after: _not_among("account", after),
        "allowqos": lambda _, after: _not_among("qos", after),
        "denyaccounts": lambda _, after: _among("account", after),
        "denyqos": lambda _, after: _among("qos", after),
        "state": _closed,
        "nodes": _nodes_gone,
    }
    return reasons[key](before, after) if key in reasons else None


def _too_long(before: str, after: str) -> Why | None:
    """Those that fitted before and do not any more."""
    if not after.isdecimal():
        return None
    most, old = int(after), int(before) if before.isdecimal() else None

    def why(job: Job) -> str:
        wanted = job.time_limit
        fitted = old is None or (wanted is not None and wanted <= old)
        if not fitted or (wanted is not None and wanted <= most):
            return ""
        return f"it asks for {effects.span(wanted)}, and at most {effects.span(most)} are allowed then"

    return why


def _not_among(field: str, after: str) -> Why | None:
    allowed = set(after.split(","))
    if allowed == {"all"}:
        return None
    return lambda job: (
        ""
        if getattr(job, field).lower() in allowed
        else f"its {_NAMES[field]} {getattr(job, field)} is not allowed then"
    )


def _among(field: str, after: str) -> Why:
    denied = set(after.split(","))
    return lambda job: (
        f"its {_NAMES[field]} {getattr(job, field)} is refused then"
        if getattr(job, field).lower() in denied
        else ""
    )


_NAMES = {"account": "account", "qos": "QoS"}


def _closed(before: str, after: str) -> Why | None:
    return (lambda _: f"the partition is {after.upper()} then") if after in ("down", "inactive") else None


def _nodes_gone(before: str, after: str) -> Why | None:
    left = expand(after) if after else ()
    return None if left else lambda _: "the partition has no nodes then"
