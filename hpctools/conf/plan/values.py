"""One spelling for each value: as slurm.conf may have it, and as `scontrol show` prints it.

Two values mean the same when their canonical texts are equal. Formats of `scontrol` measured on 22.05.8.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from hpctools.conf.text import fold, refold

_UNIT = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:sec|min|usec|nodes/min|percent|%|mb)", re.IGNORECASE)
_NOTHING = {"", "(null)", "(null type)", "n/a", "none", "unknown"}
_BOOLEANS = {"yes": "1", "true": "1", "no": "0", "false": "0"}
_NO_LIMIT = {"infinite", "unlimited", "-1"}
_NOT_IN_BRACKETS = re.compile(r",(?![^\[]*\])")
# slurm.conf(5), SlurmctldDebug: the numbers of earlier releases.
_LEVELS = ("quiet", "fatal", "error", "info", "verbose", *("debug", "debug2", "debug3", "debug4", "debug5"))


def plain(value: str) -> str:
    """Nothing, a switch, a number with or without its unit, a path, or a list whose order means nothing."""
    text = value.strip()
    lower = text.lower()
    # Later releases print nothing where earlier ones name a plugin that does nothing.
    if lower in _NOTHING or (lower.endswith("/none") and not lower.startswith("/")):
        return ""
    if lower in _NO_LIMIT:
        return "unlimited"
    found = _UNIT.fullmatch(text)
    if found:
        return number(found.group(1))
    if text.startswith("/"):
        return text
    return names(lower) if "," in lower else _BOOLEANS.get(lower, number(lower))


def number(text: str) -> str:
    """`100.00` as `100`, `007` as `7`; any other text as it is."""
    if not re.fullmatch(r"-?\d+(\.\d+)?", text):
        return text
    whole, _, part = text.partition(".")
    part = part.rstrip("0")
    return f"{int(whole)}.{part}" if part else str(int(whole))


def names(text: str) -> str:
    """A list whose order and case mean nothing."""
    parts = (part.strip().lower() for part in _NOT_IN_BRACKETS.split(text))
    return ",".join(sorted({part for part in parts if part}))


def exact(text: str) -> str:
    """A list whose order means nothing, with words whose case does."""
    parts = {part.strip() for part in text.split(",")}
    return ",".join(sorted(part for part in parts if part.lower() not in _NOTHING))


def everyone(text: str) -> str:
    """A list of names where none stands for everyone."""
    return names(text) if text.lower() not in {*_NOTHING, "all"} else "all"


@lru_cache(maxsize=4096)
def minutes(text: str) -> str:
    """A time limit, in whole minutes: `30`, `30:00`, `1:00:00`, `1-0` or `1-00:00:00`; `unlimited`."""
    lower = text.strip().lower()
    if lower in _NO_LIMIT:
        return "unlimited"
    seconds = _seconds(lower, bare=60)
    return lower if seconds is None else str(-(-seconds // 60))


def seconds(bare: int) -> Callable[[str], str]:
    """A time whose bare numbers stand for `bare` seconds each."""

    def canonical(text: str) -> str:
        lower = text.strip().lower()
        if lower in {*_NO_LIMIT, *_NOTHING}:
            return "unlimited" if lower in _NO_LIMIT else ""
        found = _UNIT.fullmatch(lower)
        value = _seconds(found.group(1) if found else lower, bare)
        return lower if value is None else str(value)

    return canonical


def _seconds(text: str, bare: int) -> int | None:
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in parts) or not (days.isdecimal() or not dash):
        return None
    values = [int(part) for part in parts]
    if dash:
        hours, mins, secs = (*values, 0, 0)[:3]
        return ((int(days) * 24 + hours) * 60 + mins) * 60 + secs
    if len(values) == 1:
        return values[0] * bare
    total = 0
    for value in values:
        total = total * 60 + value
    return total


@lru_cache(maxsize=1024)
def hosts(text: str) -> str:
    """A host list, folded one way: as `fold` does it."""
    if text.strip().lower() in _NOTHING:
        return ""
    if text.strip().lower() == "all":
        return "all"
    quickly = refold(text)
    if quickly is not None:
        return quickly
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return fold(NodeSet(text))
    except NodeSetException:
        return text


@lru_cache(maxsize=4096)
def gres(text: str) -> str:
    """`gpu:a100:8(S:0-1),shard:16` as `gpu:a100:8,shard:16`; a count that is left out is 1."""
    bare = re.sub(r"\([^)]*\)", "", text)
    parts = (part.strip().lower() for part in bare.split(","))
    return ",".join(sorted(_counted(part) for part in parts if part not in _NOTHING))


def _counted(part: str) -> str:
    part = part.replace(":no_consume", "")
    last = part.rpartition(":")[2]
    found = re.fullmatch(r"(\d+)([kmgt]?)", last)
    if found is None:
        return f"{part}:1"
    amount = int(found.group(1)) * 1024 ** " kmgt".index(found.group(2) or " ")
    return f"{part.removesuffix(last)}{amount}"


def account(text: str) -> str:
    """A Unix account without the number that scontrol shows behind it: `slurm(64030)`."""
    return re.sub(r"\(\d+\)$", "", text.strip())


def level(text: str) -> str:
    """A log level, as a word."""
    return _LEVELS[int(text)] if text.isdecimal() and int(text) < len(_LEVELS) else plain(text)


def enforcement(text: str) -> str:
    """AccountingStorageEnforce: with what each of its words brings along (slurm.conf(5))."""
    words = set(names(text).split(",")) - {"", "none", "0", "no"}
    if words & {"all"}:
        words |= {"associations", "limits", "qos", "wckeys"}
    if "safe" in words:
        words |= {"limits"}
    if words & {"limits", "qos", "wckeys"}:
        words |= {"associations"}
    return ",".join(sorted(words - {"all"}))


def prolog_flags(text: str) -> str:
    """PrologFlags: with what each of its words brings along (slurm.conf(5))."""
    words = set(names(text).split(",")) - _NOTHING
    if words & {"x11", "runinjob", "contain"}:
        words |= {"contain", "alloc"}
    return ",".join(
        sorted(words | ({"alloc"} if words & {"nohold", "forcerequeueonfail", "serial"} else set()))
    )


# What slurmctld accounts in any case (slurm.conf(5), AccountingStorageTRES).
_ALWAYS_ACCOUNTED = "cpu,mem,energy,node,billing,fs/disk,vmem,pages"


def accounted(text: str) -> str:
    """AccountingStorageTRES: with what is always accounted, without what later releases add to gres/gpu."""
    words = set(names(f"{_ALWAYS_ACCOUNTED},{'' if text.lower() in _NOTHING else text}").split(","))
    return ",".join(sorted(words - {"", "gres/gpumem", "gres/gpuutil"}))


def weights(text: str) -> str:
    """TRESBillingWeights and the like: names with numbers, of which `25.00` is 25."""
    if text.strip().lower() in _NOTHING:
        return ""
    pairs = (part.strip().partition("=") for part in text.split(","))
    return ",".join(sorted(f"{key.lower()}={_weight(value)}" for key, _, value in pairs))


def _weight(value: str) -> str:
    found = re.fullmatch(r"([\d.]+)([A-Za-z]?)", value)
    return number(found.group(1)) + found.group(2).lower() if found else value


def shared(text: str) -> str:
    """OverSubscribe: YES and FORCE serve four jobs when they do not say how many."""
    lower = text.strip().lower()
    return f"{lower}:4" if lower in {"yes", "force"} else lower


def controllers(text: str) -> str:
    """SlurmctldHost: the first is the primary one, so that the order counts."""
    return text.replace(" ", "").lower()


def topology(text: str) -> str:
    """TopologyPlugin: the flat one has had three names."""
    return "" if text.lower() in {"topology/default", "topology/flat"} else plain(text)


def word(text: str) -> str:
    """A text that counts as it is."""
    return "" if text.strip().lower() in _NOTHING else text.strip()
