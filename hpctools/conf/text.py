"""How Slurm's configuration files are spelled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hpctools.errors import UsageError
from hpctools.site.findings import Location
from hpctools.site.source import Source

HEADER = "# Made by hpctools from the site file. Edit that instead: the next apply replaces this file.\n"

_NO_SOURCE = Source()
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})", re.ASCII)
_BETWEEN_ITEMS = re.compile(r",(?![^\[]*\])")
_NUMBER = r"(?:0|[1-9][0-9]{0,8})"
_STEM = r"((?:[A-Za-z0-9._-]*[A-Za-z._-])?)"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]*[A-Za-z._-]", re.ASCII)
_PLAIN_NUMBER = re.compile(rf"{_STEM}({_NUMBER})", re.ASCII)
_PLAIN_RANGE = rf"{_NUMBER}(?:-{_NUMBER})?"
_PLAIN_RANGES = re.compile(rf"{_STEM}\[({_PLAIN_RANGE}(?:,{_PLAIN_RANGE})*)\]", re.ASCII)


@dataclass(frozen=True)
class Said:
    """A value, and where the site file says it."""

    value: object
    location: Location


def fold(names: Iterable[str]) -> str:
    """Fold node names: `a-1, a-2, b-1` becomes `a-[1-2],b-1`.

    Only the number at the end of a name is folded, as Slurm wants it (slurm.conf(5), NodeName).
    """
    stems: dict[str, list[str]] = {}
    plain = []
    for name in dict.fromkeys(names):
        match = _NUMBERED.fullmatch(name)
        if match:
            stems.setdefault(match[1], []).append(match[2])
        else:
            plain.append((name, 0, name))
    folded = [item for stem, numbers in stems.items() for item in _fold_numbers(stem, numbers)]
    return ",".join(text for _, _, text in sorted([*plain, *folded]))


def _fold_numbers(stem: str, numbers: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """Fold the numbers of one stem, those of each width apart where zeros stand in front."""
    listed = list(numbers)
    padded = {len(text) for text in listed if text[0] == "0" and len(text) > 1}
    widths: dict[int, list[int]] = {}
    for text in listed:
        widths.setdefault(len(text) if len(text) in padded else 1, []).append(int(text))
    for width, values in widths.items():
        values.sort()
        ranges = [_spell_range(low, high, width) for low, high in _ranges(values)]
        single = len(ranges) == 1 and "-" not in ranges[0]
        yield stem, width, f"{stem}{ranges[0]}" if single else f"{stem}[{','.join(ranges)}]"


def refold(text: str) -> str | None:
    """Fold a host list as `fold` does, without writing its names out: a partition may have thousands.

    Returns:
        the text that `fold` makes of the names; None where names have more than one number in brackets, or
        zeros in front of one.
    """
    plain: set[str] = set()
    stems: dict[str, list[tuple[int, int]]] = {}
    for item in _BETWEEN_ITEMS.split(text.strip()):
        if _PLAIN_NAME.fullmatch(item):
            plain.add(item)
            continue
        found = _PLAIN_RANGES.fullmatch(item) or _PLAIN_NUMBER.fullmatch(item)
        bounds = [_bounds(each) for each in found[2].split(",")] if found else []
        if found is None or any(low > high for low, high in bounds):
            return None
        stems.setdefault(found[1], []).extend(bounds)
    folded = [(stem, 1, _spell_merged(stem, bounds)) for stem, bounds in stems.items()]
    return ",".join(each for _, _, each in sorted([*((name, 0, name) for name in plain), *folded]))


def _bounds(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def _spell_merged(stem: str, bounds: Iterable[tuple[int, int]]) -> str:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(bounds):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    if len(merged) == 1 and merged[0][0] == merged[0][1]:
        return f"{stem}{merged[0][0]}"
    return f"{stem}[{','.join(_spell_range(low, high, 1) for low, high in merged)}]"


def _ranges(values: Iterable[int]) -> Iterator[tuple[int, int]]:
    low = high = None
    for value in values:
        if low is None or high is None or value != high + 1:
            if low is not None and high is not None:
                yield low, high
            low = value
        high = value
    if low is not None and high is not None:
        yield low, high


def _spell_range(low: int, high: int, width: int) -> str:
    return f"{low:0{width}}" if low == high else f"{low:0{width}}-{high:0{width}}"


def comment(source: Source, location: Location) -> str:
    """Say in a comment line which line of the site file made what follows; empty where none did."""
    said = source.comment(location)
    return f"# {said}\n" if said else ""


def line(settings: Mapping[str, object]) -> str:
    """Spell settings on one line, as node and partition lines have them; None leaves a key out."""
    return " ".join(f"{key}={_spell(value)}" for key, value in settings.items() if value is not None) + "\n"


def section(title: str, settings: Mapping[str, object], source: Source = _NO_SOURCE) -> str:
    """Spell settings a line each under a title; None leaves a key out.

    Args:
        title: what they are about.
        settings: values by key; those that are `Said` have their place in the site file above them.
        source: where the site file states things.
    """
    lines, last = [f"\n# {title}\n"], ""
    for key, value in settings.items():
        stated = value.value if isinstance(value, Said) else value
        if stated is None:
            continue
        origin = comment(source, value.location) if isinstance(value, Said) else ""
        lines += [origin if origin != last else "", f"{key}={_spell(stated)}\n"]
        last = origin
    return "".join(lines)


def changed(settings: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Give settings other values and add more; Slurm does not tell upper from lower case in keys.

    Args:
        settings: ours.
        changes: values by key; an empty one leaves the key out.
    """
    wanted = {key.lower(): (key, value) for key, value in changes.items()}
    merged: dict[str, object] = {}
    for key, value in settings.items():
        _, other = wanted.pop(key.lower(), (key, value))
        merged[key] = None if _is_empty(other) else other
    merged.update({key: value for key, value in wanted.values() if not _is_empty(value)})
    return merged


def _is_empty(value: object) -> bool:
    return (value.value if isinstance(value, Said) else value) == ""


def without_comments(text: str) -> str:
    """Return what Slurm reads of a file: the lines that say something. Two files that differ only in
    comments are the same to it.
    """
    lines = (each.partition("#")[0].rstrip() for each in text.splitlines())
    return "".join(f"{each}\n" for each in lines if each)


def _spell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    if any(ord(character) < 32 for character in text):
        raise UsageError(
            f"the value {text!r} cannot stand in a Slurm configuration", "remove control characters"
        )
    return text
