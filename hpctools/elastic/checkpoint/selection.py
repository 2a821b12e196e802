"""Which checkpoint to go on from: the newest whole one, and why not one that is newer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hpctools.elastic.checkpoint.manifest import Manifest, digest_of
from hpctools.elastic.checkpoint.reading import Unreadable
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
class Unread:
    """Something that looks like a checkpoint, and of which it cannot be said whether it is one.

    Attributes:
        step: of its name.
        error: why it cannot be read.
    """

    step: int
    error: Unreadable


@dataclass(frozen=True)
class Survey:
    """What a store holds.

    Attributes:
        usable: committed checkpoints, newest first.
        rejected: a line for each torn or damaged one, with the reason.
        rolled_back: names of those that belong to what was given up.
        unread: what cannot be read at present.
    """

    usable: tuple[Found, ...]
    rejected: tuple[str, ...]
    rolled_back: tuple[str, ...]
    unread: tuple[Unread, ...] = ()

    def in_turn(self, most_steps: int | None = None) -> Iterator[Found]:
        """The usable ones of at most so many steps, newest first.

        Raises:
            Unreadable: it is the turn of one that cannot be read; what is older may not take its place.
        """
        for found in self.usable:
            if most_steps is None or found.manifest.step <= most_steps:
                self.check_read(found.manifest.step, most_steps)
                yield found
        self.check_read(0, most_steps)

    def check_read(self, least: int, most: int | None) -> None:
        """Raise Unreadable when one of at least and at most so many steps cannot be read."""
        for each in self.unread:
            if each.step >= least and (most is None or each.step <= most):
                raise each.error


def survey(store: Store) -> Survey:
    """Look through a store, at manifests and markers only.

    Raises:
        ElasticError: the store cannot be read.
    """
    given_up = abandoned(store)
    usable, rejected, rolled_back, unread = [], [], [], []
    for name in store.names():
        try:
            found = _committed(store, name)
        except Unreadable as error:
            unread.append(Unread(step_of(name) or 0, error))
            continue
        except ElasticError as error:
            rejected.append(f"checkpoint {store.where}/{name} is not used: {error.message}")
            continue
        if any(each.covers(found.manifest) for each in given_up):
            rolled_back.append(name)
        else:
            usable.append(found)
    usable.sort(key=lambda each: (each.manifest.step, each.manifest.saved, each.name), reverse=True)
    return Survey(tuple(usable), tuple(rejected), tuple(rolled_back), tuple(unread))


def newest(place: str) -> Found | None:
    """The newest committed checkpoint of a folder or address; None: there is none.

    Its files are not read: whether they are as they were written, the worker finds out that loads them.

    Raises:
        ElasticError: the place, or something there that may be newer, cannot be read.
    """
    return next(candidates(place).in_turn(), None)


def candidates(place: str) -> Survey:
    """The checkpoints that a place holds; the place may itself be one.

    Raises:
        ElasticError: the place cannot be read.
    """
    place = place.rstrip("/") or place  # as a shell completes a folder's name
    root, _, name = place.rpartition("/")
    if step_of(name) is None:
        return survey(open_store(place))
    try:
        return Survey((_committed(open_store(root), name),), (), ())
    except Unreadable as error:
        return Survey((), (), (), (Unread(step_of(name) or 0, error),))
    except ElasticError as error:
        return Survey((), (f"checkpoint {place} is not used: {error.message}",), ())


def _committed(store: Store, name: str) -> Found:
    data, marker = store.read(f"{name}/{MANIFEST}"), store.read(f"{name}/{MARKER}")
    if data is None or marker is None:
        raise ElasticError("it was never committed: its writer was interrupted")
    if marker.decode(errors="replace").strip() != digest_of(data):
        raise ElasticError("its manifest has another checksum than when it was committed")
    return Found(store, name, Manifest.decode(data))
