"""Which checkpoint to go on from: the newest whole one, and why not one that is newer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hpctools.elastic.checkpoint.manifest import Manifest, digest_of
from hpctools.elastic.checkpoint.settings import S3
from hpctools.elastic.checkpoint.store import (
    MANIFEST,
    MARKER,
    Abandoned,
    Store,
    abandoned,
    open_store,
    step_of,
)
from hpctools.errors import ElasticError

FOLDER_IN_RUN = "checkpoints"


@dataclass(frozen=True)
class Found:
    """A committed checkpoint; its files have not been compared with their checksums yet.

    Attributes:
        store: where it is.
        name: its name there.
    """

    store: Store
    name: str
    manifest: Manifest

    @property
    def where(self) -> str:
        """Its path or address."""
        return f"{self.store.where}/{self.name}"


def committed(store: Store, reject: Callable[[str], None]) -> list[Found]:
    """All committed checkpoints of the store, newest first, without those that were rolled back.

    Args:
        reject: told of each other one, a line with the reason.

    Raises:
        ElasticError: the store cannot be read.
    """
    given_up = abandoned(store)
    found = [_judge(store, name, given_up, reject) for name in store.names()]
    known = [each for each in found if each is not None]
    return sorted(known, key=lambda each: (each.manifest.step, each.manifest.saved, each.name), reverse=True)


def newest_whole(
    store: Store, reject: Callable[[str], None] = lambda reason: None, most_steps: int | None = None
) -> Found | None:
    """The newest committed checkpoint; None when there is none.

    Args:
        reject: told of each one that is not taken, a line with the reason.
        most_steps: only one of at most so many completed steps.

    Raises:
        ElasticError: the store cannot be read.
    """
    for found in committed(store, reject):
        if most_steps is None or found.manifest.step <= most_steps:
            return found
    return None


def resume_source(text: str, runs: Path) -> str:
    """The folder or address that a user means: of checkpoints, of a run, a run's id, or one checkpoint.

    Args:
        runs: where the user's runs lie.

    Returns:
        An absolute path or s3:// address for `Checkpoint(resume_from=...)`.

    Raises:
        ElasticError: no checkpoint is there; says what was looked at.
    """
    place = text.rstrip("/") if text.startswith(S3) else str(_folder_meant(text, runs))
    rejected: list[str] = []
    if candidates(place, rejected.append):
        return place
    reasons = f" ({rejected[0]})" if rejected else ""
    raise ElasticError(
        f"there is no whole checkpoint in {place}{reasons}",
        "give a run's id, its folder, a folder of checkpoints, one of them, or s3://bucket/prefix",
    )


def candidates(place: str, reject: Callable[[str], None]) -> list[Found]:
    """The committed checkpoints that a place holds, newest first; the place may itself be one.

    Raises:
        ElasticError: the place cannot be read.
    """
    root, _, name = place.rpartition("/")
    if step_of(name) is not None:
        found = _judge(open_store(root), name, [], reject)
        return [] if found is None else [found]
    return committed(open_store(place), reject)


def _folder_meant(text: str, runs: Path) -> Path:
    path = Path(text).expanduser().absolute()
    if not path.exists() and "/" not in text and (runs / text).is_dir():
        path = (runs / text).absolute()
    return path / FOLDER_IN_RUN if (path / FOLDER_IN_RUN).is_dir() else path


def _judge(store: Store, name: str, given_up: list[Abandoned], reject: Callable[[str], None]) -> Found | None:
    data, marker = store.read(f"{name}/{MANIFEST}"), store.read(f"{name}/{MARKER}")
    try:
        if data is None or marker is None:
            raise ElasticError("it was never committed: its writer was interrupted")
        if marker.decode(errors="replace").strip() != digest_of(data):
            raise ElasticError("its manifest has another checksum than when it was committed")
        manifest = Manifest.decode(data)
        if any(each.covers(manifest) for each in given_up):
            raise ElasticError("it is of a part of the training that was rolled back")
    except ElasticError as error:
        reject(f"checkpoint {store.where}/{name} is not used: {error.message}")
        return None
    return Found(store, name, manifest)
