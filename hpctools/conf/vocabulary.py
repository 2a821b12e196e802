"""How sacctmgr spells each setting when it is asked and when it is told.

Every value has one canonical text, so that wanted and live state can be compared: times in seconds, lists and
TRES sorted, "" for "not set". Formats measured on 22.05.8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hpctools.site.scalars import spell_duration


@dataclass(frozen=True)
class Setting:
    """One setting's spelling.

    Attributes:
        canonical: from what sacctmgr shows to the canonical text.
        argument: from the canonical texts that are wanted and live to the value to tell sacctmgr.
    """

    canonical: Callable[[str], str]
    argument: Callable[[str, str], str]


def _same(shown: str) -> str:
    return shown


def _or_clear(wanted: str, live: str) -> str:
    return wanted or "-1"


def _wanted(wanted: str, live: str) -> str:
    return wanted


def _sorted_list(shown: str) -> str:
    return ",".join(sorted(part for part in shown.split(",") if part))


def _seconds(shown: str) -> str:
    """`1-00:00:00` becomes `86400`; what is no time counts as not set."""
    days, _, clock = shown.rpartition("-")
    parts = clock.split(":")
    if len(parts) != 3 or not all(part.isdecimal() for part in (*parts, days or "0")):
        return ""
    hours, minutes, seconds = (int(part) for part in parts)
    return str(((int(days or "0") * 24 + hours) * 60 + minutes) * 60 + seconds)


def _time_or_clear(wanted: str, live: str) -> str:
    return spell_duration(int(wanted)) if wanted else "-1"


def parse_tres(text: str) -> dict[str, str]:
    """Parse `cpu=640,gres/gpu=48`."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: count for name, _, count in pairs}


def _tres_change(wanted: str, live: str) -> str:
    """sacctmgr merges TRES into what is there, so that those that go are cleared by name."""
    target = parse_tres(wanted)
    cleared = dict.fromkeys(sorted(parse_tres(live).keys() - target.keys()), "-1")
    return ",".join(f"{name}={count}" for name, count in {**target, **cleared}.items())


_NUMBER = Setting(_same, _or_clear)
_TIME = Setting(_seconds, _time_or_clear)
_TRES = Setting(_sorted_list, _tres_change)
_NAMES = Setting(_sorted_list, _wanted)
_WORD = Setting(_same, _wanted)

QOS_SETTINGS: Mapping[str, Setting] = {
    "Priority": _NUMBER,
    "Preempt": _NAMES,
    "PreemptMode": Setting(str.lower, _wanted),
    "GraceTime": Setting(lambda shown: _seconds(shown) or "0", _wanted),
    "PreemptExemptTime": _TIME,
    "MaxWall": _TIME,
    "MaxTRESPerUser": _TRES,
    "MaxJobsPerUser": _NUMBER,
    "UsageFactor": _WORD,
}

ASSOCIATION_SETTINGS: Mapping[str, Setting] = {
    "Fairshare": _WORD,
    "GrpTRES": _TRES,
    "GrpJobs": _NUMBER,
    "MaxTRES": _TRES,
    "MaxJobs": _NUMBER,
    "MaxSubmitJobs": _NUMBER,
    "MaxWall": _TIME,
    "QOS": _NAMES,
    "DefaultQOS": _WORD,
}
