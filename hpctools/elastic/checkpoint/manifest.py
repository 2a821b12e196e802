"""What a checkpoint consists of, so that a reader can tell a whole one from a torn or damaged one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpctools.elastic.checkpoint.reading import unreadable
from hpctools.errors import ElasticError

FORMAT = 1
DIGEST_BYTES = 32
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class FileRecord:
    """A file of a checkpoint.

    Attributes:
        bytes: its size.
        blake2b: hexadecimal digest of 32 bytes.
    """

    bytes: int
    blake2b: str


@dataclass(frozen=True)
class Manifest:
    """The description of one checkpoint.

    Attributes:
        step: completed steps that it is the state after.
        run: id of the run; empty without one.
        term: of the coordinator under which it was written; 0 without one.
        generation: the membership that wrote it; 0 without a run.
        saved: when, ISO 8601, UTC.
        torch: version that wrote it.
        files: by name.
        training: what else is worth knowing (world size, cursor, ...).
    """

    step: int
    run: str = ""
    term: int = 0
    generation: int = 0
    saved: str = ""
    torch: str = ""
    files: dict[str, FileRecord] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(each.bytes for each in self.files.values())

    def encode(self) -> bytes:
        """The manifest's file."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """The inverse of `encode`.

        Raises:
            ElasticError: it is damaged, or of a later format.
        """
        try:
            values = json.loads(data)
            if values.pop("format") != FORMAT:
                raise ElasticError("the manifest is of a later format", "read it with a newer hpctools")
            files = {_plain(name): FileRecord(**record) for name, record in values.pop("files").items()}
            return cls(**values, files=files)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ElasticError(f"the manifest is damaged: {error!r}") from None


def _plain(name: str) -> str:
    """The name of a file in the checkpoint's own folder, and of nothing outside."""
    if "/" in name or name in ("", ".", ".."):
        raise ValueError(f"{name!r} is no file's name")
    return name


def new_digest() -> hashlib.blake2b:
    """A digest to feed a file's content to."""
    return hashlib.blake2b(digest_size=DIGEST_BYTES)


def digest_of(data: bytes) -> str:
    """The digest of a whole content, hexadecimal."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def record_of(path: Path) -> FileRecord:
    """Size and digest of a file; reads all of it.

    Raises:
        OSError: it cannot be read.
    """
    digest, size = new_digest(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return FileRecord(size, digest.hexdigest())


def damage(folder: Path, files: Mapping[str, FileRecord]) -> str | None:
    """What is wrong with a checkpoint's files in a folder; None when all are as they were written.

    Raises:
        Unreadable: one of them cannot be read at present, which is no damage.
    """
    for name, record in sorted(files.items()):
        try:
            found = record_of(folder / name)
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            raise unreadable(str(folder / name), error) from None
        if found.bytes != record.bytes:
            return f"{name} has {found.bytes} bytes instead of {record.bytes}"
        if found != record:
            return f"{name} has another checksum than when it was written"
    return None
