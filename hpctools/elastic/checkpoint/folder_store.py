"""Checkpoints in a folder on a file system that all nodes share."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from hpctools.elastic.checkpoint.manifest import FileRecord, Manifest, digest_of
from hpctools.elastic.checkpoint.reading import LASTING, REMEDY, Unreadable, unreadable
from hpctools.elastic.checkpoint.store import (
    MANIFEST,
    MARKER,
    PartMissing,
    Stage,
    decode_part,
    encode_part,
    name_of,
    part_remedy,
    proceed,
    step_of,
)
from hpctools.errors import ElasticError

NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS)
WRITING, REMOVING = ".writing-", ".removing-"
# A writer that has not touched its folder for so long, by the clock of the storage, is gone.
LEFTOVER_SECONDS = 3600.0


class FolderStore:
    """A folder of checkpoints; made (0700) with its parents when the first one is written."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()

    @property
    def where(self) -> str:
        """The folder's path."""
        return str(self.root)

    def names(self) -> list[str]:
        """Everything that looks like a checkpoint."""
        return [name for name in self._entries() if step_of(name) is not None]

    def read(self, name: str) -> bytes | None:
        """A small file under the root."""
        try:
            return (self.root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._failed("read", error) from None

    def write(self, name: str, data: bytes) -> None:
        """Replace a small file; readers see the old or the new one, also after a power failure."""
        with self._telling("write"):
            self._make(self.root)
            _write_synced(self.root / name, data)

    def begin(self, step: int, label: str) -> Stage:
        """A hidden folder, on the same file system as what it becomes."""
        with self._telling("write"):
            folder = self.root / f"{WRITING}{name_of(step)}-{label}"
            self._make(folder)
        return Stage(step, label, folder)

    def add(
        self, stage: Stage, part: int, files: Mapping[str, FileRecord], go_on: Callable[[], None] = proceed
    ) -> None:
        """The files lie where they belong; note which they are."""
        with self._telling("write"):
            for name in files:
                _sync(stage.folder / name)
            _write_synced(stage.folder / _part(part), encode_part(files))

    def gathered(self, stage: Stage, parts: int) -> dict[str, FileRecord]:
        """As the writers have noted them."""
        files: dict[str, FileRecord] = {}
        with self._telling("commit"):
            for part in range(parts):
                path = stage.folder / _part(part)
                if not path.exists():
                    raise PartMissing(
                        f"writer {part} of {parts} has not added its part of {stage.folder}",
                        part_remedy(part),
                    )
                files |= decode_part(path.read_bytes())
        return files

    def staged(self, stage: Stage, name: str) -> bytes:
        """It lies where all writers put theirs."""
        with self._telling("commit"):
            return (stage.folder / name).read_bytes()

    def commit(self, stage: Stage, manifest: Manifest, parts: int) -> str:
        """Manifest, marker, and then the folder gets its name."""
        with self._telling("commit"):
            data = replace(manifest, files=self.gathered(stage, parts)).encode()
            _write_synced(stage.folder / MANIFEST, data)
            _write_synced(stage.folder / MARKER, digest_of(data).encode())
            name = self._publish(stage)
        for part in range(parts):  # only now: who commits tries again where there was no part, or no room
            with contextlib.suppress(OSError):  # it is committed
                (self.root / name / _part(part)).unlink()
        return name

    def discard(self, stage: Stage) -> None:
        """Remove the hidden folder."""
        shutil.rmtree(stage.folder, ignore_errors=True)

    @contextlib.contextmanager
    def fetched(self, name: str, manifest: Manifest) -> Iterator[Path]:
        """The folder itself."""
        yield self.root / name

    def sizes(self, name: str) -> dict[str, int]:
        """As the file system has them."""
        with self._telling("read"):
            return {path.name: path.stat().st_size for path in (self.root / name).iterdir()}

    def remove(self, name: str) -> None:
        """Hide the folder first, so that nobody takes half of it for a whole."""
        hidden = self.root / f"{REMOVING}{name}"
        with self._telling("remove from"), contextlib.suppress(FileNotFoundError):  # somebody was first
            (self.root / name).rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def clean(self, labels: str) -> None:
        """Remove hidden folders that nobody works on any more."""
        hidden = [name for name in self._entries() if name.startswith((WRITING, REMOVING))]
        now = self._now() if hidden else 0.0
        for name in hidden:
            path = self.root / name
            if name.startswith(REMOVING) or _is_left(path, labels, now):
                shutil.rmtree(path, ignore_errors=True)

    def _now(self) -> float:
        """The time that a file gets that is changed now: this node's clock may be hours ahead of that."""
        try:
            with tempfile.TemporaryFile(dir=self.root) as file:
                return os.fstat(file.fileno()).st_mtime
        except OSError:  # full, or not ours
            return time.time()

    def _publish(self, stage: Stage) -> str:
        _sync(stage.folder)
        for attempt in range(1, 1000):
            name = name_of(stage.step, str(attempt) if attempt > 1 else "")
            try:
                stage.folder.rename(self.root / name)
            except OSError:
                if not (self.root / name).exists():
                    raise
                continue  # the step was saved before
            _sync(self.root)
            return name
        raise ElasticError(f"{self.root} has 999 checkpoints of step {stage.step}", "remove some of them")

    def _entries(self) -> list[str]:
        try:
            return sorted(path.name for path in self.root.iterdir())
        except FileNotFoundError:
            _check_links(self.root)
            return []
        except OSError as error:
            raise self._failed("read", error) from None

    def _make(self, folder: Path) -> None:
        for each in reversed((folder, *folder.parents)):
            try:
                each.mkdir(mode=0o700)
            except FileExistsError:
                continue
            except OSError:  # a server may say first that nobody may write there, as NFS does
                if not each.is_dir():
                    raise

    @contextlib.contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failed(what, error) from None

    def _failed(self, what: str, error: OSError) -> ElasticError:
        if what == "read" and error.errno not in LASTING:
            return unreadable(f"the checkpoints in {self.root}", error)
        return ElasticError(
            f"cannot {what} the checkpoints in {self.root}: {error.strerror or error}", remedy(error)
        )


def remedy(error: OSError) -> str:
    """What to do about a folder that cannot be written."""
    if error.errno in NOT_OURS:
        return "have it made writable for you on all nodes, or give another folder (checkpoint: folder)"
    return "free space or quota there, or give another folder (checkpoint: folder)"


def _check_links(folder: Path) -> None:
    """A link to what is not there is no empty folder: that may be away, with all that is in it."""
    for path in (folder, *folder.parents):
        if path.is_symlink() and not path.exists():
            raise Unreadable(
                f"cannot read the checkpoints in {folder}: {path} is a link to {path.readlink()}, which is "
                "not there",
                f"{REMEDY}: it may not be mounted here; or make what the link points to",
            )


def _part(part: int) -> str:
    return f"part-{part:05d}.json"


def _is_left(path: Path, labels: str, now: float) -> bool:
    label = path.name.removeprefix(WRITING).split("-", 2)[-1]
    if labels and label.startswith(labels):
        return True
    try:
        newest = max(each.stat().st_mtime for each in (path, *path.iterdir()))
    except OSError:  # it is being removed, or gets its name
        return False
    return now - newest > LEFTOVER_SECONDS


def _write_synced(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Have the kernel write a file's content, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
