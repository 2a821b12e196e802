"""Which checkpoint to go on from: the newest whole one, and why not one that is newer."""

from __future__ import annotations

from dataclasses import dataclass

from hpctools.elastic.checkpoint.manifest import Manifest, digest_of
from hpctools.elastic.checkpoint.store import (
    MANIFEST,
    MARKER,
    Store,
    abandoned,
    open_store,
    step_of,
)
from hpctools.errors import ElasticError


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


def _committed(store: Store, name: str) -> Found:
    data, marker = store.read(f"{name}/{MANIFEST}"), store.read(f"{name}/{MARKER}")
    if data is None or marker is None:
        raise ElasticError("it was never committed: its writer was interrupted")
    if marker.decode(errors="replace").strip() != digest_of(data):
        raise ElasticError("its manifest has another checksum than when it was committed")
    return Found(store, name, Manifest.decode(data))
