"""Values in the lines of a Slurm configuration, changed in place: pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

Edit = Callable[[str], str]
"""From a value to the one in its place; "" takes the whole setting out."""


def to(value: str) -> Edit:
    """The edit that puts this value in the place of whichever there is."""
    return lambda _: value


def edited(text: str, edits: Mapping[str, Edit]) -> str:
    """Change the values of some keys, whatever their case; comments and the numbers of lines stay.

    Args:
        text: a whole file.
        edits: what to do, by key.
    """
    by_key = {key.lower(): edit for key, edit in edits.items()}
    spot = _spot(tuple(by_key))
    lines = [
        line if line.lstrip().startswith("#") else _edited(line, spot, by_key) for line in text.split("\n")
    ]
    return "\n".join(lines)


def _edited(line: str, spot: re.Pattern[str], edits: Mapping[str, Edit]) -> str:
    def change(found: re.Match[str]) -> str:
        before, key, equals, value = found.groups()
        after = edits[key.lower()](value.strip("\"'"))
        return f"{before}{key}{equals}{after}" if after else before

    return spot.sub(change, line)


@lru_cache
def _spot(keys: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"""(^|\s)({"|".join(keys)})(\s*=\s*)("[^"]*"|[^\s#]+)""", re.IGNORECASE)
