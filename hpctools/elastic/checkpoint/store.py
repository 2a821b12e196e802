"""Where checkpoints lie: what a folder and an S3 address have in common.

    <root>/step-000000123/          one checkpoint
        __0_0.distcp, .metadata     the state, as torch Distributed Checkpoint writes it
        manifest.json               size and checksum of each file, step, run, term, generation
        COMMITTED                   checksum of the manifest; there once all the rest is on the disk
    <root>/abandoned.json           which steps of which generations were rolled back

A second checkpoint of the same step is `step-000000123.2` in a folder; on S3, which cannot rename, every
one has such a suffix, so that two writers never mix their files.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from hpctools.elastic.checkpoint.manifest import FileRecord, Manifest
from hpctools.elastic.checkpoint.settings import S3
from hpctools.errors import ElasticError

MANIFEST, MARKER, ABANDONED = "manifest.json", "COMMITTED", "abandoned.json"
# A run's name, which labels begin with, may have dots.
_NAME = re.compile(r"step-(\d{9,})(?:\.[\w.-]+)?")


@dataclass(frozen=True)
class Abandoned:
    """A roll back: what earlier generations of the run saved after `step` is not to be used.

    Attributes:
        run, term, generation: of the membership that began again after `step`.
    """

    run: str
    term: int
    generation: int
    step: int

    def covers(self, manifest: Manifest) -> bool:
        """Whether a checkpoint is of the part that was given up."""
        earlier = (manifest.term, manifest.generation) < (self.term, self.generation)
        return manifest.run == self.run and earlier and manifest.step > self.step


@dataclass(frozen=True)
class Stage:
    """A checkpoint that is being written.

    Attributes:
        step: of the checkpoint.
        label: that all its writers know it by.
        folder: where the writer puts its files; the same for all writers when the store is a folder.
    """

    step: int
    label: str
    folder: Path


class PartMissing(ElasticError):
    """One of the writers has not added its part: it is slower, has failed, or is gone."""


class Uncleaned(ElasticError):
    """What killed writers have left could not be removed, which is no reason not to save."""


class Store(Protocol):
    """A place for checkpoints.

    Every method raises ElasticError when the place cannot be reached or used; those that read raise
    Unreadable when that may be over soon.
    """

    @property
    def where(self) -> str:
        """The place, as the user names it."""
        ...

    def names(self) -> list[str]:
        """Everything that looks like a checkpoint, committed or not."""
        ...

    def read(self, name: str) -> bytes | None:
        """A small file, by its path under the root; None when there is none."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Replace a small file as a whole."""
        ...

    def begin(self, step: int, label: str) -> Stage:
        """Make room for a new checkpoint; every writer of the same checkpoint gives the same label."""
        ...

    def add(
        self, stage: Stage, part: int, files: Mapping[str, FileRecord], go_on: Callable[[], None] = ...
    ) -> None:
        """Writer number `part` has written its files into the stage's folder.

        Args:
            go_on: called again and again where that takes long; what it raises ends it, and is raised.
        """
        ...

    def gathered(self, stage: Stage, parts: int) -> dict[str, FileRecord]:
        """The files of all writers.

        Raises:
            PartMissing: a part is not there yet.
            ElasticError: they cannot be read.
        """
        ...

    def staged(self, stage: Stage, name: str) -> bytes:
        """A small file that one of the writers has added."""
        ...

    def commit(self, stage: Stage, manifest: Manifest, parts: int) -> str:
        """Make the checkpoint valid, all at once; called by one writer when all have added theirs.

        Returns:
            Its name.

        Raises:
            PartMissing: a part is not there yet.
            ElasticError: the place cannot be written.
        """
        ...

    def discard(self, stage: Stage) -> None:
        """Remove what was written; never raises."""
        ...

    def fetched(self, name: str, manifest: Manifest) -> contextlib.AbstractContextManager[Path]:
        """The checkpoint's files in a folder, for as long as the context lasts."""
        ...

    def sizes(self, name: str) -> dict[str, int]:
        """Bytes of each file of a checkpoint, without reading them."""
        ...

    def remove(self, name: str) -> None:
        """Remove a checkpoint; a reader sees it whole or not at all."""
        ...

    def clean(self, labels: str) -> None:
        """Remove what writers that were killed left behind.

        Args:
            labels: beginning of the labels of which no writer can be at work any more; those of others are
                left alone for an hour.

        Raises:
            Uncleaned: the place can be used, and something in it not be removed.
        """
        ...


def proceed() -> None:
    """Nobody wants what is done to be given up."""


def open_store(place: str) -> Store:
    """The store at a folder's path or an s3:// address.

    Raises:
        ElasticError: boto3 is needed and missing.
    """
    if place.startswith(S3):
        from hpctools.elastic.checkpoint.s3_store import S3Store

        return S3Store(place)
    from hpctools.elastic.checkpoint.folder_store import FolderStore

    return FolderStore(Path(place))


def name_of(step: int, suffix: str = "") -> str:
    """A checkpoint's name."""
    return f"step-{step:09d}" + (f".{suffix}" if suffix else "")


def step_of(name: str) -> int | None:
    """The step of a checkpoint's name; None when it is something else."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def encode_part(files: Mapping[str, FileRecord]) -> bytes:
    """One writer's files."""
    return json.dumps({name: asdict(record) for name, record in files.items()}).encode()


def decode_part(data: bytes) -> dict[str, FileRecord]:
    """The inverse of `encode_part`."""
    return {name: FileRecord(**record) for name, record in json.loads(data).items()}


def part_remedy(part: int) -> str:
    """Where to look when a writer's part does not come."""
    return (
        f"the output of rank {part} says why (logs/ in the run's folder); where it says nothing, that rank "
        "is slower than the others"
    )


def abandoned(store: Store) -> list[Abandoned]:
    """All roll backs that the store knows of.

    Raises:
        ElasticError: the record is damaged or cannot be read.
    """
    data = store.read(ABANDONED)
    try:
        return [Abandoned(**each) for each in json.loads(data)] if data else []
    except (ValueError, TypeError) as error:
        raise ElasticError(
            f"{store.where}/{ABANDONED} is damaged: {error}",
            "remove it, and every checkpoint there that a roll back had given up",
        ) from None


def abandon(store: Store, roll_back: Abandoned) -> None:
    """Note a roll back, before anything is saved after it; one that is known is not noted again."""
    known = abandoned(store)
    if roll_back not in known:
        told: list[dict[str, Any]] = [asdict(each) for each in [*known, roll_back]]
        store.write(ABANDONED, json.dumps(told, indent=1).encode() + b"\n")
