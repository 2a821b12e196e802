"""LDAP filters (RFC 4515): pure. Every value is escaped, so that no name changes what is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

BATCH: Final = 100
"""Names in one question; keeps it far below what servers and argument lists take."""

_SPECIAL = {character: f"\\{ord(character):02x}" for character in "\\*()\0"}


def escape(value: str) -> str:
    """Spell a value so that it means itself in a filter."""
    return "".join(_SPECIAL.get(character, character) for character in value)


def equals(attribute: str, value: str) -> str:
    """Ask for entries that have the value."""
    return f"({attribute}={escape(value)})"


def both(first: str, second: str) -> str:
    """Ask for entries that both describe."""
    return f"(&{first}{second})"


def any_of(attribute: str, values: Iterable[str]) -> str:
    """Ask for entries that have any of the values."""
    return f"(|{''.join(equals(attribute, value) for value in values)})"


def batches(values: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield values in portions for one question each."""
    for first in range(0, len(values), BATCH):
        yield values[first : first + BATCH]
