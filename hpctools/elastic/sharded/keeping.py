"""Checkpoints of a sharded training: every rank writes its parts, rank 0 commits when all are there.

Rank 0 wishes for a checkpoint, and all hear of it at the end of the step (`feeding`), so that all save the
state of the same step without another message. All else is as for `hpctools.elastic.checkpoint`.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hpctools.elastic.checkpoint.beside import NoThread, started
from hpctools.elastic.checkpoint.keeper import Desk, Order, difference
from hpctools.elastic.checkpoint.measure import Saved, SavesTold
from hpctools.elastic.checkpoint.place import check_expected, nothing_whole, sources
from hpctools.elastic.checkpoint.retention import prune
from hpctools.elastic.checkpoint.roll_backs import RollBacks
from hpctools.elastic.checkpoint.saver import Origin, uncopied, unwritten
from hpctools.elastic.checkpoint.selection import Found
from hpctools.elastic.checkpoint.settings import S3, Checkpoint, is_periodic
from hpctools.elastic.checkpoint.store import Abandoned, PartMissing, Stage, Store, open_store
from hpctools.elastic.checkpoint.way_back import NothingOldEnough, newest_kept
from hpctools.elastic.sharded import choosing, part_files, whole
from hpctools.elastic.sharded.attempts import Attempts, GivenUp, check_wanted
from hpctools.elastic.sharded.copies import copy_of
from hpctools.elastic.sharded.fetching import examples_of, read_parts_of
from hpctools.elastic.sharded.layout import Part
from hpctools.elastic.sharded.moment import Moment
from hpctools.elastic.sharded.moving import PartSet, Wanted
from hpctools.errors import ElasticError

COMMIT_SECONDS, MOST_SECONDS, LOST_SECONDS, SLOW_SECONDS = 60.0, 600.0, 1.0, 60.0
FIRST_POLL_SECONDS, LAST_POLL_SECONDS = 0.02, 0.2
INTERVAL = "interval"  # why something was saved that nobody ordered
TAIL_SECONDS = 1.0  # rank 0 may have committed what another rank's thread is just through with


class ShardKeeper:
    """The checkpoints of one worker of a sharded training.

    Args:
        place: folder or s3:// address that they are written to.
        living: the present state.
        describe: what the manifest is to tell about the training.

    Attributes:
        agreed: all ranks save the state that the step which is going on leads to.
        limit: no checkpoint of more completed steps may be used; None: any.
    """

    def __init__(
        self,
        settings: Checkpoint,
        place: str,
        desk: Desk,
        living: Callable[[], PartSet | None],
        moment: Callable[[Origin], Moment],
        describe: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._settings = settings
        self._place = place
        self._desk = desk
        self._living = living
        self._moment = moment
        self._describe = describe
        self._order: Order | None = None
        self._order_until = 0.0
        self._attempts = Attempts(self._warn_as_one)
        self._saves_told = SavesTold(desk.tell)
        self._saved_step: int | None = None
        self._begun = time.monotonic()
        self._known_step = 0
        self._writer: threading.Thread | None = None
        self._give_up_at = math.inf
        self._store_: Store | None = None
        self._found: Found | None = None
        self._looked = False
        self._abandoned: int | None = None
        self._roll_backs = RollBacks(lambda: self._store, self._warn)
        self.agreed = False
        self.limit: int | None = None

    # For the loader

    def boundary(self, step: int, *, sound: bool) -> None:
        """Between two steps: save when it was agreed on.

        Args:
            sound: whether the last loss is a number; the same on all ranks.
        """
        self._note_order()
        self._note_roll_back()
        if not self.agreed:
            return
        self.agreed = False
        if not sound:
            self._refuse(step, "; its loss is not finite")
        living = self._living()
        if living is not None and sound and step > self._known_step:
            self._save(living)

    def hurry(self) -> None:
        """A worker was lost, or leaves: its part of what is being written may never come."""
        self._give_up_at = min(self._give_up_at, time.monotonic() + LOST_SECONDS)

    def leave(self) -> None:
        """Our node is wanted: what is being written gets the time that rank 0 waits for it."""
        self.hurry()
        self._wait(max(0.0, self._give_up_at - time.monotonic()))

    def close(self) -> None:
        """The training is complete: so will be what is being written, which a slow node may do for long."""
        self._wait(MOST_SECONDS)

    # For the sum: whether to save

    def wishes(self, next_step: int) -> bool:
        """Whether the state that the present step leads to is to be saved; rank 0 is asked."""
        self._note_order()
        if self._is_busy:
            self._note_hang(next_step)
            return False
        return self._order is not None or (self._is_due(next_step) and self._attempts.may_try)

    def _note_order(self) -> None:
        order = self._desk.take_order()
        if order is not None:
            self._order, self._order_until = order, time.monotonic() + order.seconds

    def _is_due(self, next_step: int) -> bool:
        every = self._settings.every_steps if self._place else 0
        by_steps = every > 0 and next_step // every > self._known_step // every
        seconds = self._settings.every_seconds if self._place else 0
        by_time = seconds > 0 and time.monotonic() - self._begun >= seconds
        return by_steps or by_time or (is_periodic(self._settings) and self._attempts.is_late)

    def _note_hang(self, next_step: int) -> None:
        """What is being written is in the way of an order, or of the next interval's."""
        now = time.monotonic()
        if self._order is not None and self._order.urgent and now > self._order_until:
            self._refuse(next_step - 1, "")
        took = now - self._begun
        if took > SLOW_SECONDS + self._settings.every_seconds and self._is_due(next_step):
            message = f"{self._place} is too slow: a checkpoint is still being written after {took:.0f} s"
            advice = "give faster storage or a longer interval (checkpoint: intervalInSeconds)"
            self._attempts.trouble("slow", f"{message}; {advice}")

    def _refuse(self, step: int, addition: str) -> None:
        """Who ordered waits for an answer."""
        order, self._order = self._order, None
        self._tell_unsaved(step, order, addition)

    # For the shards: read them back

    @property
    def known(self) -> int:
        """No checkpoint that may be used is of more completed steps, as far as this worker knows."""
        return self._known_step if self.limit is None else min(self._known_step, self.limit)

    def unread(self, error: ElasticError) -> None:
        """The place could not be read, and the workers had what was wanted."""
        message = f"checkpoints cannot be read: {error}; the training goes on with what its workers have"
        self._attempts.trouble("unread", message)

    def newest(self, *, patiently: bool = True) -> int:
        """Step of the newest whole checkpoint; -1: there is none.

        Args:
            patiently: whether what cannot be read is tried again for longer than two seconds.

        Raises:
            ElasticError: the place, or what may be newer there, cannot be read (to begin from the beginning
                then would lose what is there), or what the training should begin from holds nothing of use.
        """
        self._found, self._looked = None, True
        self._wait(LOST_SECONDS + TAIL_SECONDS)  # it may add what is newer, and remove what we choose
        found = choosing.newest_whole(self._places(), self.limit, self._warn, patiently=patiently)
        if self.limit is None:  # what a roll back does not find is told otherwise
            source = self._settings.resume_from
            if found is None and source:
                raise nothing_whole(source, " of a sharded model")
            check_expected(None if found is None else found.where, self._place, self._desk.expected)
        if found is None:
            return -1
        self._found, self._known_step = found, found.manifest.step
        return found.manifest.step

    def nothing_old_enough(self) -> NothingOldEnough | None:
        """Why the training cannot go back; None: it is not about to."""
        return None if self.limit is None else NothingOldEnough(self.limit, newest_kept(self._places()))

    def examples(self, step: int) -> Mapping[str, Part]:
        """An example part of each of its tensors."""
        return examples_of(self._checkpoint(step))

    def read(self, step: int, wanted: Wanted) -> Mapping[str, Any]:
        """Fill our parts; returns the unsharded state."""
        found = self._checkpoint(step)
        plain = read_parts_of(found, wanted)
        if self._looked:
            self._desk.tell("resumed", step=step, where=found.where)
            if (said := difference(found.manifest.training, self._describe())) is not None:
                self._warn(said)
        self._known_step, self._looked, self._found = step, False, None
        return plain

    def rolled_back(self, step: int) -> None:
        """The training goes on from after `step`: what was saved later by earlier generations is void."""
        if self.limit is not None:
            self._abandoned = step
        self.limit = None
        self._known_step = min(self._known_step, step)

    def _note_roll_back(self) -> None:
        step, self._abandoned = self._abandoned, None
        if step is not None and self._place:
            of = self._desk.origin
            self._roll_backs.note(Abandoned(of.run, of.term, of.generation, step), is_ours=self._desk.saves)

    # Writing

    def _save(self, living: PartSet) -> None:
        self._wait(TAIL_SECONDS)
        if self._is_busy:  # our part will be missing, so that rank 0 gives this one up, and tries again
            return
        begun, moment = time.monotonic(), self._moment(self._desk.origin)
        order, self._order = self._order, None
        if moment.rank != 0:
            order = None  # what it was told when it was to be rank 0 is done with this
        try:
            copied = copy_of(living)
        except Exception as error:  # noqa: BLE001 - whatever the copy lacks, the training is sound
            self._failed(moment, order, uncopied(error))
            self._tell_unsaved(moment.step, order)
            return
        self._begun, self._known_step, self._give_up_at = begun, moment.step, math.inf
        self._saved_step = None  # may be this one, of before a roll back
        write = partial(self._write, moment, copied, begun, time.monotonic() - begun, order)
        try:
            self._writer = started(write, f"elastic-shards-{moment.step}")
        except NoThread as error:
            self._failed(moment, order, error)
        if order is not None and order.urgent:
            self._wait(order.seconds)
            if self._saved_step != moment.step:
                self._tell_unsaved(moment.step, order)

    def _tell_unsaved(self, step: int, order: Order | None, addition: str = "") -> None:
        if order is not None:
            self._desk.tell("unsaved", **order.answer(step, addition))

    def _failed(self, moment: Moment, order: Order | None, error: Exception) -> None:
        told = {"step": moment.step, "why": INTERVAL} if order is None else order.answer(moment.step)
        said = unwritten(error, self._place) if isinstance(error, OSError) else str(error)
        self._desk.tell("save_failed", **told, reason=f"rank {moment.rank}: {said}")
        note = self._attempts.given_up if isinstance(error, GivenUp) else self._attempts.failed
        note(f"the checkpoint of step {moment.step} failed on rank {moment.rank}: {said}")

    def _write(self, moment: Moment, copied: PartSet, begun: float, held: float, order: Order | None) -> None:
        why, number = (INTERVAL, None) if order is None else (order.why, order.number)
        try:
            self._make_ready(moment.rank)
            stage = self._store.begin(moment.step, moment.label)
            try:
                self._add(stage, moment, copied)
                if moment.rank == 0:
                    where, size = self._commit(stage, moment, copied, time.monotonic() - begun)
                    seconds, generation = time.monotonic() - begun, moment.origin.generation
                    self._on_saved(
                        Saved(moment.step, seconds, held, size, where, why, moment.rounds, number, generation)
                    )
            finally:
                if self._place.startswith(S3):  # it is this machine's own: what counts is uploaded
                    shutil.rmtree(stage.folder, ignore_errors=True)
        except Exception as error:  # noqa: BLE001 - whatever it is, such as what cannot be pickled, is told
            self._failed(moment, order, self._cause(moment.rank, error))
            return
        self._attempts.succeeded(moment.step)
        if moment.rank == 0 and self.limit is None:  # a roll back wants an older one
            self._prune(moment.step)

    def _cause(self, rank: int, error: Exception) -> Exception:
        """Rank 0 says itself what it gives up; in what another rank writes there is then no folder left."""
        if rank == 0 or self._give_up_at == math.inf or isinstance(error, GivenUp):
            return error
        return GivenUp(error)

    def _make_ready(self, rank: int) -> None:
        """Note roll backs; remove what killed writers have left, which may be all the room there is."""
        if rank != 0:
            return
        with contextlib.suppress(ElasticError, OSError):  # what it is the save itself says
            if self._attempts.has_failed:
                self._store.clean("")
            self._roll_backs.note_rest()

    def _on_saved(self, saved: Saved) -> None:
        self._saved_step = saved.step
        self._attempts.over("slow")
        self._saves_told.saved(saved, self._desk.grace)

    def _prune(self, step: int) -> None:
        try:
            prune(self._store, self._settings.keep, step)
            self._store.clean("")  # what nobody has touched for long: others may be writing
            self._attempts.over("prune")
        except (ElasticError, OSError) as error:
            self._attempts.trouble("prune", f"old checkpoints stay: {error}")

    def _add(self, stage: Stage, moment: Moment, copied: PartSet) -> None:
        folder = stage.folder
        go_on = lambda: check_wanted(folder, self._give_up_at)  # noqa: E731
        try:
            files = part_files.write_parts(folder, moment.rank, copied.parts, copied.tensors, go_on)
            if moment.rank == 0 and copied.plain is not None:
                files |= part_files.write_plain(folder, copied.plain)
            self._store.add(stage, moment.rank, files, go_on)
        except Exception:
            part_files.drop(folder, moment.rank)
            raise

    def _commit(self, stage: Stage, moment: Moment, copied: PartSet, took: float) -> tuple[str, int]:
        """Make it valid as soon as everybody's part is there; ours took so many seconds."""
        manifest = moment.manifest()
        deadline = time.monotonic() + min(max(COMMIT_SECONDS, took), MOST_SECONDS)
        pause, parts = FIRST_POLL_SECONDS, 0
        while True:
            self._check_in_office(stage, moment.origin)
            try:
                self._roll_backs.note_rest()
                parts = parts or whole.describe(
                    self._store, stage, moment.world, copied.plain or {}, self._not_for_torch
                )
                name = self._store.commit(stage, manifest, parts)
            except (ElasticError, OSError) as error:
                if (now := time.monotonic()) > min(deadline, self._give_up_at):
                    self._store.discard(stage)
                    if isinstance(error, PartMissing) and now <= deadline:
                        raise GivenUp(error) from None
                    raise
                time.sleep(pause)
                pause = min(pause * 1.5, LAST_POLL_SECONDS)
                continue
            return f"{self._store.where}/{name}", sum(self._store.sizes(name).values())

    def _not_for_torch(self, reason: str) -> None:
        message = f"torch itself cannot read the checkpoints, only a training can: {reason}"
        self._attempts.trouble("torch", message)

    def _check_in_office(self, stage: Stage, origin: Origin) -> None:
        try:
            reason = self._desk.fence(origin)
        except ElasticError as error:
            reason = str(error)
        if reason is not None:
            self._store.discard(stage)
            raise ElasticError(reason)

    # Reading

    def _places(self) -> list[str]:
        """Where to look for checkpoints, our own first."""
        return sources(self._place, self._settings)

    def _checkpoint(self, step: int) -> Found:
        """The checkpoint that rank 0 chose."""
        if self._found is None or self._found.manifest.step != step:
            self._found = choosing.of_step(self._places(), step)
        return self._found

    def _warn(self, message: str) -> None:
        self._desk.tell("warning", message=message)

    def _warn_as_one(self, message: str) -> None:
        """What stops one rank stops all: only rank 0 tells the run, the others' own logs have the reason."""
        if self._desk.saves:
            self._warn(message)
        else:
            print(f"elastic: {message}", file=sys.stderr, flush=True)

    def _wait(self, seconds: float) -> None:
        if self._writer is not None:
            self._writer.join(seconds)

    @property
    def _is_busy(self) -> bool:
        return self._writer is not None and self._writer.is_alive()

    @property
    def _store(self) -> Store:
        if self._store_ is None:
            self._store_ = open_store(self._place)
        return self._store_
