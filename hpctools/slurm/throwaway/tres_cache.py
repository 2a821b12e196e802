"""slurmctld's memory of what slurmdbd counts: with it slurmctld starts while slurmdbd is out of reach.

The file is `last_tres` in StateSaveLocation. Its layout was read off what slurmctld 22.05.8 wrote: numbers
are big-endian, texts are preceded by their length with the zero byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_FIRST_FREE_ID = 1001
_HEAD = struct.Struct(">HQ")
_COUNT = struct.Struct(">I")
_RECORD = struct.Struct(">QQI")


@dataclass(frozen=True)
class Tres:
    """One kind of resource that slurmdbd counts: `gres/gpu` has the type `gres` and the name `gpu`."""

    id: int
    type: str
    name: str

    @property
    def spelled(self) -> str:
        """As slurm.conf spells it."""
        return f"{self.type}/{self.name}" if self.name else self.type


def completed(known: Iterable[Tres], wanted: Iterable[str]) -> tuple[Tres, ...]:
    """Add what is wanted and not yet known, as slurmdbd would when slurmctld asks for it."""
    rows = list(known)
    for spelled in wanted:
        if spelled not in {row.spelled for row in rows}:
            rows.append(_tres(max(_FIRST_FREE_ID, *(row.id + 1 for row in rows)), spelled))
    return tuple(rows)


def _tres(number: int, spelled: str) -> Tres:
    kind, _, name = spelled.partition("/")
    return Tres(number, kind, name)


def packed_text(value: str) -> bytes:
    """Spell a text as it stands in slurmctld's state files."""
    return _COUNT.pack(len(value) + 1) + value.encode() + b"\0" if value else _COUNT.pack(0)


def pack_tres(rows: Iterable[Tres], protocol: int, now: int) -> bytes:
    """Spell `last_tres`.

    Args:
        rows: what slurmdbd knows.
        protocol: the protocol's number, which the file is read with.
        now: when it was written, Unix seconds.
    """
    packed = [_RECORD.pack(0, 0, row.id) + packed_text(row.name) + packed_text(row.type) for row in rows]
    return _HEAD.pack(protocol, now) + _COUNT.pack(len(packed)) + b"".join(packed) + _COUNT.pack(0)


def unpack_tres(data: bytes) -> tuple[int, tuple[Tres, ...]] | None:
    """Read `last_tres`.

    Returns:
        The protocol's number and what slurmdbd knows; None when the file has another layout.
    """
    try:
        protocol, _ = _HEAD.unpack_from(data)
        return protocol, tuple(_records(data))
    except (struct.error, UnicodeDecodeError, ValueError):
        return None


def _records(data: bytes) -> Iterator[Tres]:
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    at = _HEAD.size + _COUNT.size
    for _ in range(count):
        _, _, number = _RECORD.unpack_from(data, at)
        name, at = _text_at(data, at + _RECORD.size)
        kind, at = _text_at(data, at)
        yield Tres(number, kind, name)
    if at + _COUNT.size != len(data):
        raise ValueError("another layout")


def _text_at(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _COUNT.unpack_from(data, at)
    begin = at + _COUNT.size
    if length > len(data) - begin:
        raise ValueError("a text beyond the end")
    return data[begin : begin + max(0, length - 1)].decode(), begin + length
