"""Which checkpoint to go on from: the newest whole one, and why not one that is newer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hpctools.elastic.checkpoint.manifest import Manifest, digest_of
from hpctools.elastic.checkpoint.settings import S3
from hpctools.elastic.checkpoint.store import (
    MANIFEST,
    MARKER,
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


@dataclass(frozen=True)
class Survey:
    """What a store holds.

    Attributes:
        usable: committed checkpoints, newest first.
        rejected: a line for each torn or damaged one, with the reason.
        rolled_back: names of those that belong to what was given up.
    """

    usable: tuple[Found, ...]
    rejected: tuple[str, ...]
    rolled_back: tuple[str, ...]


def survey(store: Store) -> Survey:
    """Look through a store, at manifests and markers only.

    Raises:
        ElasticError: the store cannot be read.
    """
    given_up = abandoned(store)
    usable, rejected, rolled_back = [], [], []
    for name in store.names():
        try:
            found = _committed(store, name)
        except ElasticError as error:
            rejected.append(f"checkpoint {store.where}/{name} is not used: {error.message}")
            continue
        if any(each.covers(found.manifest) for each in given_up):
            rolled_back.append(name)
        else:
            usable.append(found)
    usable.sort(key=lambda each: (each.manifest.step, each.manifest.saved, each.name), reverse=True)
    return Survey(tuple(usable), tuple(rejected), tuple(rolled_back))


def newest(place: str) -> Found | None:
    """The newest committed checkpoint of a folder or address; None: there is none.

    Its files are not read: whether they are as they were written, the worker finds out that loads them.

    Raises:
        ElasticError: the place cannot be read.
    """
    return next(iter(candidates(place).usable), None)


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
    seen = candidates(place)
    if seen.usable:
        return place
    reasons = f" ({seen.rejected[0]})" if seen.rejected else ""
    raise ElasticError(
        f"there is no whole checkpoint in {place}{reasons}",
        "give a run's id, its folder, a folder of checkpoints, one of them, or s3://bucket/prefix",
    )


def candidates(place: str) -> Survey:
    """The checkpoints that a place holds; the place may itself be one.

    Raises:
        ElasticError: the place cannot be read.
    """
    root, _, name = place.rpartition("/")
    if step_of(name) is None:
        return survey(open_store(place))
    try:
        return Survey((_committed(open_store(root), name),), (), ())
    except ElasticError as error:
        return Survey((), (f"checkpoint {place} is not used: {error.message}",), ())


def _folder_meant(text: str, runs: Path) -> Path:
    path = Path(text).expanduser().absolute()
    if not path.exists() and "/" not in text and (runs / text).is_dir():
        path = (runs / text).absolute()
    return path / FOLDER_IN_RUN if (path / FOLDER_IN_RUN).is_dir() else path


def _committed(store: Store, name: str) -> Found:
    data, marker = store.read(f"{name}/{MANIFEST}"), store.read(f"{name}/{MARKER}")
    if data is None or marker is None:
        raise ElasticError("it was never committed: its writer was interrupted")
    if marker.decode(errors="replace").strip() != digest_of(data):
        raise ElasticError("its manifest has another checksum than when it was committed")
    return Found(store, name, Manifest.decode(data))
