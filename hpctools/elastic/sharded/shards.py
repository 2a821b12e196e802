"""One worker's part of a sharded training, and how it becomes its part in the next generation.

In a planned change the old parts travel straight to those that want them: over the old group when workers
leave (they are not in the new one), over the new group when workers join (they are not in the old one).
After a loss the furthest state of which nothing is missing is put together from what is left
(`layout.furthest_whole`), or read from a checkpoint. The old state is kept until a step of the next
generation is complete.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch.distributed.tensor import DTensor

from hpctools.elastic.group import Group
from hpctools.elastic.randomness import draw_from
from hpctools.elastic.session import LONE, Runner
from hpctools.elastic.sharded import device_room, moving, room, waiting
from hpctools.elastic.sharded.copies import Copies, copy_of, deep_copied, exchange_copies
from hpctools.elastic.sharded.layout import Survey, Version, furthest_whole
from hpctools.elastic.sharded.moving import Carried, PartSet, Source, Wanted
from hpctools.elastic.sharded.process_group import Run, ShardGroup, install
from hpctools.elastic.sharded.surroundings import Rest, Saved, fitting
from hpctools.elastic.sharded.trained import (
    Build,
    Trained,
    built,
    check_kept,
    local,
    make_room,
    part_of,
    plain_state,
    put_together,
    sharded_tensors,
)
from hpctools.errors import ElasticError

COLLECTED_BYTES = 1 << 26
FAR = 1 << 62  # steps


@dataclass(frozen=True)
class Setting:
    """What stays the same for a worker's whole life.

    Attributes:
        build: the user's function.
        seed: of the parameters' first values.
        device: of the mesh, `cpu` or `cuda`.
        run: does FSDP's collectives.
        workers_per_node: that share this node's memory.
        folder: that all nodes share; None without a run.
        saved: None when there are no checkpoints.
        copy_steps: steps from one copy of the parts to the next; 0: none.
        node: ours, by its name.
        warn: tells a person of the run.
    """

    build: Build
    seed: int
    device: str
    run: Run
    workers_per_node: int = 1
    folder: Path | None = None
    saved: Saved | None = None
    copy_steps: int = 0
    node: str = ""
    warn: Callable[[str], None] = lambda message: None


@dataclass(frozen=True)
class _Next:
    """The model of the next generation, on its mesh, with or without values."""

    group: ShardGroup
    trained: Trained
    rooms: Mapping[str, DTensor] = field(default_factory=dict)

    @property
    def wanted(self) -> Wanted:
        parts = {name: part_of(each) for name, each in self.rooms.items()}
        return Wanted(parts, {name: local(each) for name, each in self.rooms.items()})


class Shards:
    """The parts that this worker holds.

    Attributes:
        torn: the present parts are not to be trusted, because the group broke while they were changed.
        copies: parts as they were some steps ago, our own and another worker's.
        detail: how the last move was done.
    """

    def __init__(self, setting: Setting, rest: Rest) -> None:
        self._setting = setting
        self._rest = rest
        self._group: ShardGroup | None = None
        self._trained: Trained | None = None
        self._origin: int | None = None
        self._before: tuple[PartSet, ...] = ()
        self._moved_out: tuple[PartSet, ...] = ()
        self._medium = room.MEMORY  # that they wait in
        self._plain_read: Mapping[str, Any] | None = None
        self._is_looked_at = False  # what the optimizer keeps
        self.torn = False
        self.copies = Copies(setting.copy_steps)
        self.detail: dict[str, Any] = {}

    @property
    def trained(self) -> Trained:
        """Model and optimizer as they are now."""
        assert self._trained is not None  # noqa: S101 - the loader pretends or begins first
        return self._trained

    @property
    def group(self) -> ShardGroup:
        """torch's default group."""
        assert self._group is not None  # noqa: S101
        return self._group

    def pretend(self, world: int) -> None:
        """Build as one of so many ranks, with collectives that do nothing: for practice before we join."""
        fresh = self._built(ShardGroup(0, world, None), with_values=True)
        self._group, self._trained = fresh.group, fresh.trained

    def begin_alone(self) -> None:
        """Build as the only rank, or go on from the newest checkpoint."""
        self._reshard(LONE, LONE, lambda _, work: work(), [], looks=True)

    def read_again(self) -> None:
        """Before the first step: the state that is not sharded is what `begin_alone` has read.

        A scheduler is made over the optimizer of a loader that has begun already: it changes the learning
        rate then, and is tracked only afterwards.
        """
        plain, self._plain_read = self._plain_read, None
        if plain is not None:
            for group, kept in zip(
                self.trained.optimizer.param_groups, plain["trained"]["groups"], strict=True
            ):
                group.update({key: value for key, value in kept.items() if key != "params"})
            self._rest._load_rest(plain["rest"], saved=True)

    def settled(self) -> None:
        """A step of the present generation is complete: what was before it is not needed any more."""
        if not self._is_looked_at and self.trained.optimizer.state:
            self._is_looked_at = check_kept(self.trained)  # what cannot move is said now
        freed, self._before = sum(each.bytes for each in self._before), ()
        self._plain_read = None
        self.copies.settled()
        if freed >= COLLECTED_BYTES:
            gc.collect()  # FSDP's modules and hooks refer to each other, and hold the old parameters

    def give_up_after(self, step: int) -> None:
        """Forget all states of more completed steps: the training goes back."""
        self.torn = True
        self._before = tuple(each for each in self._before if each.version.step <= step)
        self._moved_out = tuple(each for each in self._moved_out if each.version.step <= step)
        self.copies.forget_after(step)

    def copy(self, collective: Callable[[Callable[[Group], tuple[PartSet, ...]]], Any]) -> None:
        """Copy the parts as they are, between two steps; every rank has to.

        Args:
            collective: `Session.collective`.
        """
        living = self.living()
        if living is None or self.group.void:
            return
        own = copy_of(living)
        try:
            made = collective(lambda group: exchange_copies(group, own, self._setting.node))
        except RuntimeError as error:
            self.group.void, self.group.error = True, error
            return
        if made is not None:
            self.copies.keep(made)

    # What we hold

    def living(self) -> PartSet | None:
        """The present state, in the tensors that the training changes; None: we have none to be trusted."""
        if self._origin is None or self.torn:
            return None
        tensors, cursor = sharded_tensors(self.trained), self._rest._cursor
        return PartSet(
            Version(cursor.step, self._origin, cursor.epoch),
            {name: part_of(each) for name, each in tensors.items()},
            {name: local(each) for name, each in tensors.items()},
            {"trained": plain_state(self.trained), "rest": self._rest._capture_rest()},
        )

    def _held(self) -> list[PartSet]:
        if self._moved_out:  # a move was begun and left: the model's own memory is gone already
            return list(self._moved_out)
        living = self.living()
        return [*([living] if living is not None else []), *self._before]

    # From one generation to the next

    def move(self, old: Group | None, new: Group | None, run: Runner) -> bool:
        """Bring the state to the next generation; see `session.Resharding`."""
        if old is None:
            return new is not None and self._reshard(new, new, run, [], looks=True)
        change = run(old, lambda: moving.census(old, new))
        if change is None:
            return False
        if not change.leaving:
            return new is not None and self._reshard(new, new, run, [])
        if not change.joiners:
            return self._reshard(old, new, run, [])
        living = self.living()
        assert living is not None  # noqa: S101 - whoever is in a group that works has a state
        relayed = run(old, lambda: moving.relay(old, change, living))
        if relayed is None or new is None:
            return relayed is not None
        return self._reshard(new, new, run, relayed)

    def _reshard(
        self,
        over: Group,
        new: Group | None,
        run: Runner,
        relayed: Sequence[PartSet],
        *,
        looks: bool = False,
    ) -> bool:
        """Move everything over one group to those of its members that go on."""
        living = [*self._held(), *relayed]
        held = [*living, *self.copies.held]
        saved = self._setting.saved
        seen = self._look(living)  # before others move parts out
        known, can_look = self._known(over), looks and over.rank == 0 and saved is not None
        reached, rest = self._reached, (self._rest._skipped, self._rest._began)
        surveys = run(over, lambda: moving.survey(over, held, known, *rest, looks=can_look, reached=reached))
        source = None if surveys is None else self._source(over, surveys, run)
        if surveys is None or source is None:
            return False
        self._rest._began.update(moving.begun(surveys))
        self._rest._skipped |= moving.left_out(surveys)  # since what all have to read may say nothing of it
        if source.is_beginning:
            self._check_new(surveys, reached)
        holders = sum(bool(each.held) for each in surveys)
        living, medium = self._with_space(source, living, new, seen, holders)
        held = [*living, *self.copies.held]
        fresh = None if new is None else self._prepared(source, new)
        wanted = Wanted({}, {}) if fresh is None else fresh.wanted
        carried = run(over, lambda: moving.carry(over, surveys, source, held, wanted))
        if carried is None:
            return False
        if fresh is not None and new is not None:
            self._put_in_force(fresh, source, held, carried)
            self._origin, self.torn, self._moved_out = new.number, False, ()
            # Without the copies: `Copies` has them, and what waits here may be moved out, which empties it.
            self._before = tuple(each for each in living if each.version == source.version)
        bytes_moved = {"received_bytes": carried.moved.received, "kept_bytes": carried.moved.kept}
        self.detail = {"source": source.name, "medium": medium, **bytes_moved}
        return True

    def _check_new(self, surveys: Sequence[Survey], reached: int) -> None:
        """Whether fresh values may be the state.

        Raises:
            ElasticError: for who has come further they are not.
        """
        saved = self._setting.saved
        if reached and (error := moving.lost(surveys)) is not None:
            raise (None if saved is None else saved.nothing_old_enough()) or error

    @property
    def _reached(self) -> int:
        """Completed steps of our state; 0: none, whatever batches were left out at the beginning."""
        has_trained = self._origin is not None and self._rest._samples_done > 0
        return self._rest._cursor.step if has_trained else 0

    def _source(self, over: Group, surveys: Sequence[Survey], run: Runner) -> Source | None:
        """Where the state comes from; storage is asked only when it may have more than the workers.

        Returns:
            None: called away.
        """
        if not moving.asks_storage(surveys):
            return moving.choose_source(surveys)
        newest, error = self._newest(surveys) if over.rank == 0 else (moving.NOWHERE, None)
        told = run(over, lambda: moving.share_newest(over, surveys, newest))
        if told is None:
            return None
        try:
            source = moving.choose_source(told)
        except RuntimeError:
            if error is not None:
                raise error from None
            raise
        if error is not None and self._setting.saved is not None:
            self._setting.saved.unread(error)
        return source

    def _known(self, over: Group) -> int:
        """Of how many steps a checkpoint may be: what generations without us have saved we do not know."""
        saved = self._setting.saved
        if saved is None or self._origin is None:
            return moving.NOWHERE
        return saved.known if over.number <= self._origin + 1 else FAR

    def _newest(self, surveys: Sequence[Survey]) -> tuple[int, ElasticError | None]:
        """All stand still meanwhile: who have something older do so for two seconds, others for some."""
        saved, patiently = self._setting.saved, furthest_whole(surveys) is None
        try:
            return (moving.NOWHERE if saved is None else saved.newest(patiently=patiently)), None
        except ElasticError as error:
            return moving.UNREADABLE, error

    def _with_space(
        self, source: Source, held: list[PartSet], new: Group | None, seen: room.Seen, holders: int
    ) -> tuple[list[PartSet], str]:
        """Have room for the new parts next to the old ones; so many workers hold some."""
        old_bytes = sum(each.bytes for each in held)
        if new is None or not old_bytes:
            return held, room.MEMORY
        if self._moved_out:  # by an attempt that was left: they are what is held
            return held, self._medium
        per_node, own = self._setting.workers_per_node, source.holders.bytes // new.world
        old, warn = room.Old.of(old_bytes, per_node, holders), self._setting.warn
        place = waiting.chosen(own, per_node, old, seen, warn)
        if place.medium == room.MEMORY:
            return held, room.MEMORY
        self._moved_out = waiting.moved_out(held, place, warn)
        self._medium = place.medium if self._moved_out else room.MEMORY
        return list(self._moved_out) or held, self._medium

    def _look(self, living: Sequence[PartSet]) -> room.Seen:
        """What room there is, of what parts may wait in."""
        if not living:
            return room.Seen()
        seen = room.look(self._setting.folder)
        if self._setting.device == "cpu":
            return seen
        held = sum(each.bytes for each in living)
        return replace(seen, device=device_room.look(held, self._setting.workers_per_node))

    def _prepared(self, source: Source, new: Group) -> _Next:
        """The model of the next generation, with room for what comes."""
        group = ShardGroup(new.rank, new.world, self._setting.run)
        fresh = self._built(group, with_values=source.is_beginning)
        if source.is_beginning:
            return fresh
        examples = source.holders.examples
        if source.version is None and self._setting.saved is not None:
            examples = dict(self._setting.saved.examples(source.checkpoint))
        with fitting(source):
            rooms = make_room(fresh.trained, examples)
        return _Next(group, fresh.trained, rooms)

    def _built(self, group: ShardGroup, *, with_values: bool) -> _Next:
        draw_from(self._setting.seed, "build")
        mesh = install(group, self._setting.device)
        trained = built(self._setting.build, mesh, with_values=with_values)
        trained.model.register_forward_pre_hook(group.check_in_force, prepend=True)
        return _Next(group, trained)

    def _put_in_force(self, fresh: _Next, source: Source, held: Sequence[PartSet], carried: Carried) -> None:
        """The new model takes the place of the old one, and everything unsharded comes to it."""
        optimizer = fresh.trained.optimizer if self._trained is None else self._trained.optimizer
        plain: Mapping[str, Any] | None = carried.plain
        if source.is_beginning:
            state = plain_state(fresh.trained)
            if self._trained is not None:  # a scheduler may have changed the groups already
                state["groups"] = plain_state(self._trained)["groups"]
        else:
            if source.version is None and self._setting.saved is not None:
                plain = self._plain_read = self._setting.saved.read(source.checkpoint, fresh.wanted)
            elif plain is None and source.version is not None:
                plain = deep_copied(moving.plain_of(source.version, held))
            assert plain is not None  # noqa: S101
            state = plain["trained"]
            if not source.is_at(self._rest._cursor) or self._origin is None:
                with fitting(source):
                    self._rest._load_rest(plain["rest"], saved=source.name == "checkpoint")
        with fitting(source):
            self._trained = put_together(fresh.trained, optimizer, fresh.rooms, state)
        self._group = fresh.group
