"""Which format a client wants: what it says outright, or the best of what it accepts (RFC 9110, 12.5.1)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from api.problems import ProblemError

Format = Literal["json", "csv", "pdf", "focus"]

MEDIA_TYPES: dict[Format, str] = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8; header=present",
    "pdf": "application/pdf",
    "focus": "text/csv; charset=utf-8; header=present",
}

# FOCUS is CSV as well: whoever wants it says so outright.
_OFFERED: tuple[Format, ...] = ("json", "csv", "pdf")


def chosen(stated: Format | None, accept: str | None) -> Format:
    """The format of an answer.

    Args:
        stated: `?format=`.
        accept: the request's Accept.

    Raises:
        ProblemError: 406, nothing that we have is accepted.
    """
    if stated is not None:
        return stated
    wishes = _wishes(accept) if accept is not None and accept.strip() else {"*/*": 1.0}
    best = max(_OFFERED, key=lambda offer: _quality(wishes, offer))
    if _quality(wishes, best) <= 0:
        raise ProblemError(
            HTTPStatus.NOT_ACCEPTABLE, "A statement is application/json, text/csv or application/pdf."
        )
    return best


def _wishes(accept: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in accept.split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        found[kind] = next((_number(word[2:]) for word in parameters if word.startswith("q=")), 1.0)
    return found


def _quality(wishes: dict[str, float], offer: Format) -> float:
    """The most exact of what fits counts."""
    kind = MEDIA_TYPES[offer].partition(";")[0]
    for pattern in (kind, f"{kind.partition('/')[0]}/*", "*/*"):
        if pattern in wishes:
            return wishes[pattern]
    return 0.0


def _number(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 0.0
