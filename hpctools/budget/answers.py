"""What the service's answers are like, as far as they are read here; what is otherwise is none of its own.

Words that nobody here reads are not looked at: a newer service may say more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

_MOST = 1e15
"""Larger than all that is counted or measured, and small enough for every word that is made of it."""
_AMOUNT = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?")
_HOST = re.compile(r"[A-Za-z0-9.:_-]{1,255}")


@dataclass(frozen=True)
class Plain:
    """What is no list and has no words.

    Attributes:
        otherwise: what is said of a value that does not fit.
    """

    otherwise: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class OrNull:
    """Something, or null."""

    shape: Shape


@dataclass(frozen=True)
class Each:
    """A list of such."""

    shape: Shape


@dataclass(frozen=True)
class ByName:
    """Such ones under any names."""

    shape: Shape


_Words: TypeAlias = "Mapping[str, Shape]"
Shape: TypeAlias = "Plain | OrNull | Each | ByName | _Words"
"""A mapping has the words of an object; one with `?` at its end need not be there, for older services."""


def _is_text(value: Any) -> bool:
    # JSON can name half a character, which cannot be written anywhere.
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _MOST


def _is_moment(value: Any) -> bool:
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).tzinfo is not None
    except (AttributeError, TypeError, ValueError):
        return False


TEXT = Plain("is no text", _is_text)
FLAG = Plain("is neither true nor false", lambda value: isinstance(value, bool))
NUMBER = Plain("is no number", _is_number)
MOMENT = Plain("is no time", _is_moment)
AMOUNT = Plain("is no amount", lambda value: isinstance(value, str) and bool(_AMOUNT.fullmatch(value)))
HOST = Plain("is no host", lambda value: isinstance(value, str) and bool(_HOST.fullmatch(value)))

_PLACED: _Words = {"node": HOST, "address": HOST, "why": TEXT}
_NODE: _Words = {
    **dict.fromkeys(("name", "address"), HOST),
    **dict.fromkeys(("state", "why"), TEXT),
    **dict.fromkeys(("sessions", "users", "cpu", "memory"), NUMBER),
    "heard_seconds_ago": OrNull(NUMBER),
    "unlimited": FLAG,
    "silent?": FLAG,
}
_FORMER: _Words = {"address": TEXT, "node": TEXT, "left_seconds_ago": NUMBER}
_SESSION: _Words = {
    **dict.fromkeys(("node", "user", "kind", "origin"), TEXT),
    "id": NUMBER,
    "since": MOMENT,
    "ending": FLAG,
}
_DRAIN: _Words = {"node": TEXT, "known?": FLAG}
_HEARD: _Words = {
    "taken": FLAG,
    "draining": FLAG,
    "why": TEXT,
    "end": Each(TEXT),
    "tell?": ByName(TEXT),
    "lease_seconds?": NUMBER,
    "drained?": FLAG,
}
_VERSION: _Words = {
    "budget": {
        **dict.fromkeys(("currency", "period", "carry_over"), TEXT),
        "amount": AMOUNT,
        "enforce": {"policy": TEXT},
    },
    **dict.fromkeys(("effective", "made_by", "why"), TEXT),
}
_VERSIONS: _Words = {"account": TEXT, "versions": Each(_VERSION)}
_FORECAST: _Words = {
    **dict.fromkeys(("expected", "low", "high"), AMOUNT),
    "covers_percent": NUMBER,
    "days": NUMBER,
}
_OUTLOOK: _Words = {
    **dict.fromkeys(("account", "currency", "last", "policy"), TEXT),
    **dict.fromkeys(("spent", "allowed", "left"), AMOUNT),
    "percent_used": OrNull(AMOUNT),
    "forecast": OrNull(_FORECAST),
}
_ALERT: _Words = {
    **dict.fromkeys(("at", "account", "kind", "currency"), TEXT),
    **dict.fromkeys(("allowed", "reached"), AMOUNT),
    "threshold_percent": NUMBER,
    "deliveries": Each({"target": TEXT, "state": TEXT}),
}
_STEP: _Words = dict.fromkeys(("action", "kind", "subject", "key", "before", "after", "why"), TEXT)
_ENFORCEMENT: _Words = {
    "steps": Each(_STEP),
    "frozen": OrNull(TEXT),
    "waiting": Each({"account": TEXT, "until": TEXT}),
}
_COST: _Words = {
    **dict.fromkeys(("user", "account", "currency"), TEXT),
    **dict.fromkeys(("node_hours", "amount"), AMOUNT),
    "start": OrNull(TEXT),
}
_JOB_COST = {**_COST, "job_id": TEXT, "state": TEXT}
_PART: _Words = {"day": TEXT, "node_group": TEXT, "amount": AMOUNT}
_JOB: _Words = {
    **_JOB_COST,
    "end": OrNull(TEXT),
    "quality": {"status": TEXT},
    "days": Each({**_PART, "capacity": TEXT}),
    "entries": Each({**_PART, "as_of": TEXT, "reason": TEXT}),
}

SHAPES: Mapping[str, Shape] = {
    "GET /v1/login/nodes": {"nodes": Each(_NODE), "former?": Each(_FORMER)},
    "GET /v1/login/sessions": {"sessions": Each(_SESSION), "next": OrNull(TEXT)},
    "POST /v1/login/sessions": _PLACED,
    "DELETE /v1/login/sessions/*": _SESSION,
    "PUT /v1/login/nodes/*/drain": _DRAIN,
    "DELETE /v1/login/nodes/*": {"node": TEXT},
    "PUT /v1/login/nodes/*/report": _HEARD,
    "POST /v1/login/leases": {"granted": FLAG, "message": TEXT},
    "GET /v1/accounts": {"accounts": Each({"name": TEXT})},
    "GET /v1/accounts/*/outlook": _OUTLOOK,
    "GET /v1/accounts/*/forecast": _FORECAST,
    "GET /v1/accounts/*/budget": _VERSIONS,
    "PUT /v1/accounts/*/budget": _VERSION,
    "PUT /v1/accounts/*/split": Each(_VERSION),
    "POST /v1/accounts/*/approvals": {"amount": AMOUNT, "until": TEXT},
    "GET /v1/accounts/*/jobs": {
        "jobs": Each(_JOB_COST),
        "total": NUMBER,
        "sums": Each({"amount": AMOUNT, "currency": TEXT}),
    },
    "GET /v1/accounts/*/runs": {"runs": Each({**_COST, "run": TEXT, "jobs": NUMBER}), "total": NUMBER},
    "GET /v1/jobs/*": {"jobs": Each(_JOB)},
    "GET /v1/alerts": {"alerts": Each(_ALERT)},
    "GET /v1/enforcement/plan": _ENFORCEMENT,
    "POST /v1/enforcement/apply": _ENFORCEMENT,
    "POST /v1/enforcement/accounts/*/undo": Each(_STEP),
}
"""By method and path, where `*` is any one name. Of other questions no answer is read."""


def fault(method: str, path: str, answer: Any) -> str:
    """What is wrong with an answer, to be said after `answers`; empty where it is one of the service's.

    Args:
        path: that was asked, with its query.
    """
    shape = next((each for key, each in SHAPES.items() if _is_asked(key, method, path)), None)
    return next(_faults(answer, shape, ""), "") if shape is not None else ""


def _is_asked(key: str, method: str, path: str) -> bool:
    wanted, names = key.split("/"), f"{method} {path.partition('?')[0]}".split("/")
    return len(wanted) == len(names) and all(
        each in ("*", name) for each, name in zip(wanted, names, strict=True)
    )


def _faults(value: Any, shape: Shape, at: str) -> Iterator[str]:
    if isinstance(shape, OrNull):
        if value is not None:
            yield from _faults(value, shape.shape, at)
    elif isinstance(shape, Plain):
        if not shape.fits(value):
            yield _wrong(at, shape.otherwise)
    elif isinstance(shape, Each):
        if not isinstance(value, list):
            yield _wrong(at, "is no list")
            return
        for place, each in enumerate(value):
            yield from _faults(each, shape.shape, f"{at}[{place}]")
    elif not isinstance(value, dict):
        yield _wrong(at, "is no object")
    elif isinstance(shape, ByName):
        for name, each in value.items():
            yield from _faults(each, shape.shape, f"{at}[{name!r}]")
    else:
        yield from _faults_of_words(value, shape, f"{at}." if at else "")


def _faults_of_words(value: Mapping[str, Any], shape: _Words, before: str) -> Iterator[str]:
    for word, each in shape.items():
        name = word.removesuffix("?")
        if name in value:
            yield from _faults(value[name], each, f"{before}{name}")
        elif name == word:
            yield f"without `{before}{name}`"


def _wrong(at: str, otherwise: str) -> str:
    return f"with `{at}` that {otherwise}" if at else f"with what {otherwise}"
