"""Time limits as sbatch reads them."""

from __future__ import annotations

import re

_FORMS = re.compile(r"(?:(?P<days>\d+)-(?P<of_day>\d+(?::\d+){0,2})|(?P<plain>\d+(?::\d+){0,2}))")


def minutes_of(text: str) -> int | None:
    """The minutes of a time limit, rounded up as Slurm does; None for no limit, and for what is none.

    Forms (sbatch(1), --time): minutes, minutes:seconds, hours:minutes:seconds, days-hours,
    days-hours:minutes, days-hours:minutes:seconds; 0, `infinite` and `unlimited` ask for no limit.
    """
    found = _FORMS.fullmatch(text.strip())
    if not found:
        return None
    parts = [int(part) for part in (found["of_day"] or found["plain"]).split(":")]
    if found["days"] is not None:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return ((int(found["days"] or 0) * 24 + hours) * 60 + minutes + (seconds > 0)) or None


def is_unlimited(text: str) -> bool:
    """Whether a time limit asks for no limit (sbatch(1), --time)."""
    said = text.strip().lower()
    return said in ("-1", "infinite", "unlimited") or (
        bool(_FORMS.fullmatch(said)) and minutes_of(said) is None
    )
