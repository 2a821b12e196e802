"""One move of a state over a group: ask who holds what, choose, make room, carry it over.

Every step that talks to others is one function that blocks in the group's thread; what lies between them
belongs to the training's thread, because it calls the user's `build`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from hpctools.elastic.checkpoint.way_back import NothingKept
from hpctools.elastic.group import Group
from hpctools.elastic.sampling import Cursor
from hpctools.elastic.sharded import collectives, layout
from hpctools.elastic.sharded.layout import Holders, Part, Piece, Survey, Version
from hpctools.elastic.sharded.transfer import Moved, transfer
from hpctools.elastic.state import receive_state, send_state

NOWHERE = -1
UNREADABLE = -2
EMPTY: Mapping[int, int] = {}


@dataclass(frozen=True)
class PartSet:
    """Parts of one version that we hold: our own, or another rank's.

    Attributes:
        plain: the unsharded state that belongs to the version; None when only the parts are known.
    """

    version: Version
    parts: Mapping[str, Part]
    tensors: Mapping[str, torch.Tensor]
    plain: Mapping[str, Any] | None = None

    @property
    def bytes(self) -> int:
        """Size of the parts."""
        return sum(each.bytes for each in self.parts.values())


@dataclass(frozen=True)
class Source:
    """Where the next generation's state comes from.

    Attributes:
        version: what ranks hold; None: from a checkpoint, or from the beginning.
        checkpoint: its step; -1: none.
        holders: who holds which part of the version.
    """

    version: Version | None
    checkpoint: int
    holders: Holders

    @property
    def name(self) -> str:
        """What to call it in the event of a resize."""
        if self.version is not None:
            return "workers"
        return "beginning" if self.is_beginning else "checkpoint"

    @property
    def is_beginning(self) -> bool:
        """Whether nobody and nothing has a state."""
        return self.version is None and self.checkpoint < 0

    def is_at(self, cursor: Cursor) -> bool:
        """Whether that is the place in the data that ranks have come to; of a checkpoint it is not known."""
        version = self.version
        return version is not None and (version.step, version.epoch) == (cursor.step, cursor.epoch)


def choose_source(surveys: Sequence[Survey]) -> Source:
    """The furthest state that can be put together; memory before a checkpoint of the same step; pure.

    Raises:
        RuntimeError: rank 0, which ends with the reason, cannot read the checkpoint that would be needed.
    """
    version, saved = layout.furthest_whole(surveys), max(each.checkpoint for each in surveys)
    if version is not None and version.step >= saved:
        return Source(version, -1, layout.holders_of(version, surveys))
    if surveys[0].checkpoint == UNREADABLE:
        raise RuntimeError("rank 0 cannot read the checkpoints")
    return Source(None, saved, Holders())


def lost(surveys: Sequence[Survey]) -> NothingKept | None:
    """Why the training cannot begin at the beginning; None: it can.

    Once a step was done, fresh values are of another step than the place in the data. Who holds parts of a
    state tells how far it is: a batch that was left out is a step of the cursor, and none of the training.
    """
    if max(each.reached for each in surveys) <= 0:
        return None
    return NothingKept(_why_lost(surveys))


def _why_lost(surveys: Sequence[Survey]) -> str:
    if layout.versions(surveys):
        return "shards of the model went with a worker that was lost"
    return (
        "no worker has sound shards of the model any more (a collective between two steps broke, or the "
        "training was rolled back to before what they hold)"
    )


def asks_storage(surveys: Sequence[Survey]) -> bool:
    """Whether a checkpoint may have more than what ranks hold, and rank 0 can look for it; pure."""
    version = layout.furthest_whole(surveys)
    has_less = version is None or version.step < max(each.known for each in surveys)
    return has_less and surveys[0].looks


def left_out(surveys: Sequence[Survey]) -> frozenset[int]:
    """Steps whose batches are left out, as anybody knows: what was saved before does not tell newcomers."""
    return frozenset(step for each in surveys for step in each.skipped)


def begun(surveys: Sequence[Survey]) -> dict[int, int]:
    """With streams, after how many steps epochs began, as anybody knows; see `Batches.began`."""
    return {epoch: step for each in surveys for epoch, step in each.began}


def share_newest(group: Group, surveys: Sequence[Survey], newest: int) -> list[Survey]:
    """The surveys with the checkpoint that rank 0 has found, or UNREADABLE."""
    steps = collectives.everyones(group, torch.tensor([newest], dtype=torch.int64))
    return [replace(each, checkpoint=int(step)) for each, step in zip(surveys, steps, strict=True)]


def survey(
    group: Group,
    held: Sequence[PartSet],
    known: int,
    skipped: Iterable[int] = (),
    began: Mapping[int, int] = EMPTY,
    *,
    looks: bool = False,
    reached: int = 0,
) -> list[Survey]:
    """What everybody holds, by rank.

    Args:
        known: the furthest step that a checkpoint may be of, as far as we know; NOWHERE: of none.
        skipped: numbers of the steps whose batches we leave out.
        began: after how many steps we know epochs to have begun.
        looks: whether we can look for checkpoints.
        reached: completed steps of our state, whether or not we still hold it; 0: it never was any.
    """
    own = Survey(
        tuple((each.version, each.parts) for each in held),
        tuple(each.version for each in held if each.plain is not None),
        known=known,
        looks=looks,
        reached=reached,
        skipped=tuple(sorted(skipped)),
        began=tuple(sorted(began.items())),
    )
    return [Survey.decode(data) for data in collectives.exchange_bytes(group, own.encode())]


@dataclass(frozen=True)
class Carried:
    """What came of a move.

    Attributes:
        plain: the unsharded state, when we did not have it.
    """

    moved: Moved
    plain: Mapping[str, Any] | None


@dataclass(frozen=True)
class Wanted:
    """Our parts of the next layout, to be filled; empty when we leave."""

    parts: Mapping[str, Part]
    tensors: Mapping[str, torch.Tensor]


def carry(
    group: Group, surveys: Sequence[Survey], source: Source, held: Sequence[PartSet], wanted: Wanted
) -> Carried:
    """Fill everybody's parts; returns when all have theirs.

    Raises:
        RuntimeError: a peer is gone.
    """
    moved, plain = Moved(), None
    if source.version is not None:
        own = layout.encode_message(wanted.parts)
        everyone = [layout.decode_message(each) for each in collectives.exchange_bytes(group, own)]
        plan = layout.pieces(source.holders, everyone)
        moved = transfer(group, plan, [each.tensors for each in held], wanted.tensors)
        lacking = [rank for rank, parts in enumerate(everyone) if parts]
        plain = _share_plain(group, surveys, source.version, held, lacking)
    collectives.everyones(group, torch.zeros(1))
    return Carried(moved, plain)


def _share_plain(
    group: Group, surveys: Sequence[Survey], version: Version, held: Sequence[PartSet], staying: Sequence[int]
) -> Mapping[str, Any] | None:
    """Everybody who has the unsharded state serves some of those who do not."""
    donors = [rank for rank, each in enumerate(surveys) if version in each.plain]
    lacking = [rank for rank in staying if rank not in donors]
    received: Mapping[str, Any] | None = None
    for place, receiver in enumerate(lacking):
        donor = donors[place % len(donors)]
        if donor == group.rank:
            send_state(group, receiver, plain_of(version, held))
        elif receiver == group.rank:
            received = receive_state(group, donor)
    return received


def plain_of(version: Version, held: Sequence[PartSet]) -> Mapping[str, Any]:
    """The unsharded state of a version that we hold."""
    return next(each.plain for each in held if each.version == version and each.plain is not None)


# Who leaves and who joins


@dataclass(frozen=True)
class Change:
    """What a planned change does to the ranks of the old group.

    Attributes:
        places: the next rank of each old rank; NOWHERE: it leaves.
        world: of the next generation.
    """

    places: tuple[int, ...]
    world: int

    @property
    def leaving(self) -> list[int]:
        """Old ranks that leave."""
        return [rank for rank, place in enumerate(self.places) if place == NOWHERE]

    @property
    def staying(self) -> list[int]:
        """Old ranks that stay."""
        return [rank for rank, place in enumerate(self.places) if place != NOWHERE]

    @property
    def joiners(self) -> int:
        """How many join."""
        return self.world - len(self.staying)

    def heir(self, leaver: int) -> int:
        """The old rank that takes a leaver's parts along when others join at the same time."""
        return self.staying[self.leaving.index(leaver) % len(self.staying)]


def census(old: Group, new: Group | None) -> Change:
    """Who of the old group goes where."""
    own = torch.tensor([NOWHERE, 0] if new is None else [new.rank, new.world], dtype=torch.int64)
    places = collectives.everyones(old, own)
    return Change(tuple(int(each[0]) for each in places), max(int(each[1]) for each in places))


def relay(old: Group, change: Change, own: PartSet) -> list[PartSet]:
    """Each leaver gives its parts to one that stays; what we were given."""
    surveys = survey(old, [own], NOWHERE)
    given = []
    for leaver in change.leaving:
        (_, parts), *_ = surveys[leaver].held
        heir = change.heir(leaver)
        plan = [_whole(name, part, leaver, heir) for name, part in parts.items() if part.elements]
        rooms = {name: _room(part) for name, part in parts.items()} if heir == old.rank else {}
        transfer(old, plan, [own.tensors], rooms)
        if heir == old.rank:
            given.append(replace(own, parts=parts, tensors=rooms, plain=None))
    collectives.everyones(old, torch.zeros(1))
    return given


def _whole(name: str, part: Part, source: int, target: int) -> Piece:
    start = (0,) * len(part.sizes)
    return Piece(name, source, 0, target, start, start, part.sizes)


def _room(part: Part) -> torch.Tensor:
    return torch.empty(part.sizes, dtype=part.torch_dtype)
