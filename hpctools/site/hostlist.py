"""Host lists as Slurm writes them (`gpu[01-08,11]`, `r[1-2]n[1-4]`), in the order of their text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Annotated

from pydantic import BeforeValidator

from hpctools.site.scalars import refuse

MOST_NODES = 65_536
"""slurm.h MAX_SLURM_NODES: no cluster has more."""

_RESERVED = ("all", "default")  # slurm.conf(5), NodeName
_EXPECTED = "a host list such as gpu[01-08,11],login"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_ITEM = re.compile(r"[A-Za-z0-9._-]*(?:\[[0-9,-]+\][A-Za-z0-9._-]*)*", re.ASCII)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


class TooManyError(ValueError):
    """A host list names more hosts than a cluster can have."""

    def __init__(self) -> None:
        super().__init__(f"at most {MOST_NODES} hosts")


def expand(text: str) -> tuple[str, ...]:
    """Return the names of a host list, in its order.

    Raises:
        ValueError: it is none, names something twice, or names more hosts than a cluster can have.
    """
    names: list[str] = []
    for item in _split(text):
        names += _expand_item(item, MOST_NODES - len(names))
    if len(set(names)) != len(names):
        raise ValueError("a host list that names each host once")
    return tuple(names)


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    items = re.split(r",(?![^\[]*\])", text) if "[" in text else text.split(",")  # it may be thousands
    if not all(item and _ITEM.fullmatch(item) for item in items):
        raise ValueError(_EXPECTED)
    return items


def _expand_item(item: str, most: int) -> list[str]:
    parts = re.split(r"\[([0-9,-]+)\]", item)
    choices = [_numbers(part, most) if place % 2 else [part] for place, part in enumerate(parts)]
    size = 1
    for choice in choices:
        size *= len(choice)
    if size > most:
        raise TooManyError
    names = ["".join(chosen) for chosen in product(*choices)]
    # One pattern made them all, so the shortest and the longest tell of the others.
    if not all(_NAME.fullmatch(name) for name in (min(names, key=len), max(names, key=len))):
        raise ValueError(_EXPECTED)
    return names


def _numbers(ranges: str, most: int) -> list[str]:
    """Expand `01-03,7` to `01`, `02`, `03`, `7`."""
    return [number for part in ranges.split(",") for number in _range(part, most)]


def _range(text: str, most: int) -> Iterator[str]:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(_EXPECTED)
    low, high = match[1], match[2] or match[1]
    if int(high) < int(low):
        raise ValueError("ranges that rise, such as gpu[1-8]")
    if int(high) - int(low) >= most:
        raise TooManyError
    return (f"{number:0{len(low)}}" for number in range(int(low), int(high) + 1))


def _check(value: object) -> str:
    if not isinstance(value, str):
        refuse(_EXPECTED)
    try:
        names = expand(value)
    except ValueError as error:
        refuse(str(error))
    for name in names:
        if name.lower() in _RESERVED:
            refuse(f"another name: {name!r} has a meaning of its own in Slurm")
    return value


HostList = Annotated[str, BeforeValidator(_check)]
"""One or more hosts; `expand` gives their names."""
