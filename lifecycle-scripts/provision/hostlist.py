"""Slurm's host lists: `ip-10-1-1-[1-3,7],login-1`."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BRACKETS = re.compile(r"([^\[\]]*)\[([^\[\]]*)\](.*)")


def expand(text: str) -> tuple[str, ...]:
    """Return the names, in order."""
    return tuple(name for part in _parts(text) for name in _expand(part))


def _parts(text: str) -> Iterator[str]:
    """Split at the commas that stand outside brackets."""
    depth, part = 0, ""
    for char in text:
        depth += {"[": 1, "]": -1}.get(char, 0)
        if char == "," and depth == 0:
            yield part
            part = ""
        else:
            part += char
    if part:
        yield part


def _expand(part: str) -> Iterator[str]:
    match = _BRACKETS.fullmatch(part)
    if match is None:
        yield part
        return
    for number in match[2].split(","):
        low, _, high = number.partition("-")
        for value in range(int(low), int(high or low) + 1):
            for rest in _expand(match[3]):
                yield f"{match[1]}{value:0{len(low)}}{rest}"
