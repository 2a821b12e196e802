"""How sacctmgr spells each setting when it is asked and when it is told.

Every value has one canonical text, so that wanted and live state can be compared: times in seconds, lists and
TRES sorted, memory in MiB, "" for "not set". Formats measured on 22.05.8.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from hpctools.errors import SiteError
from hpctools.site.scalars import spell_duration


@dataclass(frozen=True)
class Setting:
    """One setting's spelling.

    Attributes:
        canonical: from what sacctmgr shows, or a person writes, to the canonical text; "" for what it is not.
        argument: from the canonical texts that are wanted and live to the value to tell sacctmgr.
        tres: whether the value speaks of TRES.
        pattern: what the canonical text looks like when it is set.
        shown: the canonical text of what sacctmgr shows of one; it rounds some.
    """

    canonical: Callable[[str], str]
    argument: Callable[[str, str], str]
    pattern: re.Pattern[str]
    tres: bool = False
    shown: Callable[[str], str] = lambda text: text


def _or_clear(wanted: str, live: str) -> str:
    return wanted or "-1"


def _wanted(wanted: str, live: str) -> str:
    return wanted


def _same(shown: str) -> str:
    return shown


def _sorted_list(shown: str) -> str:
    return ",".join(sorted({part for part in shown.split(",") if part}))


def _seconds(shown: str) -> str:
    """`1-00:00:00` becomes `86400`; what is no time counts as not set."""
    days, _, clock = shown.rpartition("-")
    parts = clock.split(":")
    if len(parts) != 3 or not all(part.isdecimal() for part in (*parts, days or "0")):
        return ""
    hours, minutes, seconds = (int(part) for part in parts)
    return str(((int(days or "0") * 24 + hours) * 60 + minutes) * 60 + seconds)


def _whole_minutes(shown: str) -> str:
    """As `_seconds`, rounded up to the whole minutes that slurmdbd keeps of some times."""
    seconds = _seconds(shown)
    return str(-(-int(seconds) // 60) * 60) if seconds else ""


def _time_or_clear(wanted: str, live: str) -> str:
    return spell_duration(int(wanted)) if wanted else "-1"


def _factor(shown: str) -> str:
    """Six decimals, as sacctmgr shows factors."""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", shown):
        return ""
    return f"{float(shown):.6f}"


def parse_tres(text: str) -> dict[str, str]:
    """Parse `cpu=640,gres/gpu=48`."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: count for name, _, count in pairs}


def names_of(text: str) -> frozenset[str]:
    """Parse a list of names: `high,low`."""
    return frozenset(name for name in text.split(",") if name)


_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_COUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)", re.ASCII | re.IGNORECASE)  # 1536 MiB are shown as 1.50G


@lru_cache(maxsize=4096)
def _tres(shown: str) -> str:
    """TRES by name, with plain numbers: memory in MiB (`mem=1G` becomes `mem=1024`)."""
    counts = {name: _count(name, count) for name, count in parse_tres(shown).items()}
    return ",".join(f"{name}={count}" for name, count in sorted(counts.items()))


def _count(name: str, text: str) -> str:
    found = _COUNT.fullmatch(text)
    if found is None:
        return text
    number, unit = Decimal(found[1]), found[2].upper()
    if name == "mem":  # a bare number is MiB, and K is too little to count
        return str(int(number * 1024 ** _UNITS[unit or "M"]) // 1024**2)
    return str(int(number * 1024 ** _UNITS[unit]))


def _shown_tres(text: str) -> str:
    """TRES as sacctmgr shows them."""
    counts = parse_tres(text)
    if counts.get("mem", "").isdecimal():
        counts["mem"] = _shown_memory(int(counts["mem"]))
    return ",".join(f"{name}={count}" for name, count in counts.items())


def _shown_memory(mebibytes: int) -> str:
    """What is read back: two digits behind the point, though 1024.5 GiB still become TiB (libslurm)."""
    number, unit = Decimal(mebibytes), _UNITS["M"]
    while number >= 1024 and int(number) % 512 == 0 and unit < _UNITS["P"]:
        number, unit = number / 1024, unit + 1
    return _count("mem", f"{number:.2f}{[*_UNITS][unit]}")


def _tres_change(wanted: str, live: str) -> str:
    """sacctmgr merges TRES into what is there, so that those that go are cleared by name."""
    target, there = parse_tres(wanted), parse_tres(live)
    cleared = dict.fromkeys(sorted(there.keys() - target.keys()), "-1")
    return ",".join(f"{name}={count}" for name, count in {**target, **cleared}.items())


_NUMBER = Setting(_same, _or_clear, re.compile(r"\d{1,10}", re.ASCII))
_TIME = Setting(_seconds, _time_or_clear, re.compile(r"\d{1,12}", re.ASCII))
_MINUTES = Setting(_whole_minutes, _time_or_clear, re.compile(r"\d{1,12}", re.ASCII))
_TRES_NAME = r"[a-z][a-z0-9_]*(/[A-Za-z0-9_.:-]+)?"
_TRES = Setting(
    _tres, _tres_change, re.compile(rf"{_TRES_NAME}=\d+(,{_TRES_NAME}=\d+)*", re.ASCII), True, _shown_tres
)
_NAME = r"[a-z0-9_.-]+"
_DELTAS = Setting(_sorted_list, _wanted, re.compile(rf"[+-]?{_NAME}(,[+-]?{_NAME})*", re.ASCII))
_NAMES = Setting(_sorted_list, _wanted, re.compile(rf"{_NAME}(,{_NAME})*", re.ASCII))
_FACTOR = Setting(_factor, _or_clear, re.compile(r"\d+\.\d{6}", re.ASCII))
_FLAGS = Setting(_sorted_list, _or_clear, re.compile(r"[A-Za-z]+(,[A-Za-z]+)*", re.ASCII))

QOS_SETTINGS: Mapping[str, Setting] = {
    "Priority": _NUMBER,
    "Preempt": _NAMES,
    "PreemptMode": Setting(str.lower, _wanted, re.compile(r"[a-z,]+", re.ASCII)),
    "GraceTime": Setting(lambda shown: _seconds(shown) or "0", _wanted, re.compile(r"\d{1,10}", re.ASCII)),
    "PreemptExemptTime": _TIME,
    "MaxWall": _MINUTES,
    "MaxTRESPerUser": _TRES,
    "MaxJobsPerUser": _NUMBER,
    "UsageFactor": _FACTOR,
    "Flags": _FLAGS,
    "GrpTRES": _TRES,
    "GrpTRESMins": _TRES,
    "GrpTRESRunMins": _TRES,
    "GrpJobs": _NUMBER,
    "GrpSubmitJobs": _NUMBER,
    "GrpJobsAccrue": _NUMBER,
    "GrpWall": _MINUTES,
    "MaxTRESPerJob": _TRES,
    "MaxTRESPerNode": _TRES,
    "MaxTRESMinsPerJob": _TRES,
    "MaxTRESPerAccount": _TRES,
    "MaxTRESRunMinsPU": _TRES,
    "MaxTRESRunMinsPA": _TRES,
    "MinTRESPerJob": _TRES,
    "MaxJobsPerAccount": _NUMBER,
    "MaxSubmitJobsPerUser": _NUMBER,
    "MaxSubmitJobsPerAccount": _NUMBER,
    "MaxJobsAccruePerUser": _NUMBER,
    "MaxJobsAccruePerAccount": _NUMBER,
    "MinPrioThresh": _NUMBER,
    "UsageThreshold": _FACTOR,
    "LimitFactor": _FACTOR,
}
"""A tier's settings by sacctmgr's word; each word is taken by `set` and by `format=` alike."""

ASSOCIATION_SETTINGS: Mapping[str, Setting] = {
    "Fairshare": Setting(_same, lambda wanted, live: wanted or "1", re.compile(r"\d{1,9}|parent", re.ASCII)),
    "GrpTRES": _TRES,
    "GrpJobs": _NUMBER,
    "MaxTRES": _TRES,
    "MaxJobs": _NUMBER,
    "MaxSubmitJobs": _NUMBER,
    "MaxWall": _MINUTES,
    "QOS": _DELTAS,
    "DefaultQOS": Setting(_same, _or_clear, re.compile(_NAME, re.ASCII)),
    "GrpTRESMins": _TRES,
    "GrpTRESRunMins": _TRES,
    "GrpSubmitJobs": _NUMBER,
    "GrpJobsAccrue": _NUMBER,
    "GrpWall": _MINUTES,
    "MaxTRESPerNode": _TRES,
    "MaxTRESMins": _TRES,
    "MaxTRESRunMins": _TRES,
    "MaxJobsAccrue": _NUMBER,
    "MinPrioThresh": _NUMBER,
    "Priority": _NUMBER,
}
"""An account's or a person's settings by sacctmgr's word; each is taken by `set` and by `format=` alike."""

# Other words that sacctmgr(1) has for the same.
_ALIASES = {
    "shares": "Fairshare",
    "share": "Fairshare",
    "qoslevel": "QOS",
    "maxtresperjob": "MaxTRES",
    "maxtresminsperjob": "MaxTRESMins",
    "maxwalldurationperjob": "MaxWall",
    "maxsubmit": "MaxSubmitJobs",
    "minpriothreshold": "MinPrioThresh",
    "grpsubmit": "GrpSubmitJobs",
    "maxtrespu": "MaxTRESPerUser",
    "maxtrespa": "MaxTRESPerAccount",
    "maxjobspu": "MaxJobsPerUser",
    "maxjobspa": "MaxJobsPerAccount",
    "maxsubmitpu": "MaxSubmitJobsPerUser",
    "maxsubmitjobspu": "MaxSubmitJobsPerUser",
    "maxsubmitpa": "MaxSubmitJobsPerAccount",
    "maxsubmitjobspa": "MaxSubmitJobsPerAccount",
    "maxjobsaccruepu": "MaxJobsAccruePerUser",
    "maxjobsaccruepa": "MaxJobsAccruePerAccount",
    "maxtresrunminsperuser": "MaxTRESRunMinsPU",
    "maxtresrunminsperaccount": "MaxTRESRunMinsPA",
}


def setting_word(known: Mapping[str, Setting], word: str) -> str | None:
    """Return the word by which a setting goes here; None when `known` has no such setting.

    Args:
        known: QOS_SETTINGS or ASSOCIATION_SETTINGS.
        word: any case; a synonym of sacctmgr(1) will do.
    """
    names = {name.lower(): name for name in known}
    return names.get(word.lower()) or names.get(_ALIASES.get(word.lower(), "").lower())


def canonical_setting(known: Mapping[str, Setting], word: str, value: str, place: str) -> tuple[str, str]:
    """Return the word and the canonical text of a setting that a person wrote in sacctmgr's words.

    Args:
        known: QOS_SETTINGS or ASSOCIATION_SETTINGS.
        word: any case; a synonym of sacctmgr(1) will do.
        value: as sacctmgr takes it; "" and -1 stand for "not set"; times need their colons.
        place: whose setting it is, for the message.

    Raises:
        SiteError: there is no such setting, or it cannot have this value.
    """
    name = setting_word(known, word)
    if name is None:
        raise SiteError(f"{place} has no setting {word!r}", f"sacctmgr has: {', '.join(sorted(known))}")
    if value in ("", "-1"):
        return name, ""
    text = known[name].canonical(value)
    if not known[name].pattern.fullmatch(text) or (name == "GraceTime" and not _seconds(value)):
        raise SiteError(f"{place}: {name} cannot be {value!r}", "write it as `sacctmgr show` prints it")
    return name, text
