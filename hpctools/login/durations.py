"""How long something takes, and when it is over, in words of a sentence for people."""

from __future__ import annotations

from datetime import datetime


def spelt(seconds: float) -> str:
    """Seconds below a minute, minutes below two hours, then hours; whole hours are hours.

    >>> spelt(0.2), spelt(60), spelt(5400), spelt(3600), spelt(28_800), spelt(9000)
    ('1 second', '1 minute', '90 minutes', '1 hour', '8 hours', '2.5 hours')
    """
    whole, minutes = max(1, round(seconds)), round(seconds / 60)
    if whole < 60:
        return _counted(whole, "second")
    if minutes < 120 and minutes % 60:
        return _counted(minutes, "minute")
    return _counted(round(seconds / 3600, 1), "hour")


def at_clock(then: float, now: float) -> str:
    """When that is, of Unix seconds, with our time zone, and the day when that is not today."""
    when, today = (datetime.fromtimestamp(each).astimezone() for each in (then, now))
    day = "" if when.date() == today.date() else f"on {when.day} {when:%B} "
    return f"{day}at {when:%H:%M %Z}"


def _counted(number: float, unit: str) -> str:
    return f"{number:g} {unit}{'' if number == 1 else 's'}"
