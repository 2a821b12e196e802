"""Writes checkpoints beside the training, one at a time; a store that fails or hangs never stops it."""

from __future__ import annotations

import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from hpctools.elastic.checkpoint.beside import NoThread, started
from hpctools.elastic.checkpoint.copies import HostCopy
from hpctools.elastic.checkpoint.folder_store import remedy
from hpctools.elastic.checkpoint.manifest import Manifest
from hpctools.elastic.checkpoint.measure import Saved
from hpctools.elastic.checkpoint.retention import prune
from hpctools.elastic.checkpoint.settings import S3
from hpctools.elastic.checkpoint.store import Store, Uncleaned
from hpctools.elastic.checkpoint.tensors import write_state
from hpctools.elastic.folder import utc_now
from hpctools.elastic.readable import check_skeleton
from hpctools.errors import ElasticError

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 10.0, 600.0
FENCED_SECONDS = 5.0


class Superseded(ElasticError):
    """Somebody else is responsible for the training's state by now, so ours must not be committed."""


@dataclass(frozen=True)
class Origin:
    """Who writes.

    Attributes:
        run: id of the run; empty without one.
        term: of the coordinator.
        generation: of the membership.
    """

    run: str
    term: int
    generation: int

    @property
    def label(self) -> str:
        """Beginning of the labels of what this run writes; empty when others may use the same."""
        return f"{self.run}_" if self.run else ""


@dataclass(frozen=True)
class Reports:
    """How a saver is heard; all are called from its thread, too.

    Attributes:
        saved: a checkpoint was committed.
        warn: a line for the user.
        failed: a state was not saved: its step, for what reason it should have been, and what went wrong.
        fence: why we may not commit any more; None: we may. An ElasticError that it raises, since that cannot
            be known at present, or we may not yet, is a failure: it is tried again later.
    """

    saved: Callable[[Saved], None]
    warn: Callable[[str], None]
    fence: Callable[[Origin], str | None]
    failed: Callable[[int, str, str], None]


@dataclass(frozen=True)
class _Job:
    step: int
    why: str
    origin: Origin
    training: Mapping[str, Any]
    begun: float
    held_s: float


class Saver:
    """One worker's writer of checkpoints.

    Args:
        keep: how many whole ones stay in the store.

    Attributes:
        saved_step: of the last checkpoint that was committed; None before the first.
    """

    def __init__(self, store: Store, keep: int, reports: Reports) -> None:
        self._store = store
        self._keep = keep
        self._reports = reports
        self._copy = HostCopy()
        self._thread: threading.Thread | None = None
        self._cancelled = False
        self._failures = 0
        self._told_left = self._told_stay = False
        self._next_try = 0.0
        self.saved_step: int | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._thread is not None and self._thread.is_alive()

    def may_try(self, now: float) -> bool:
        """Whether the store is thought to work; after a failure it is tried again later and later."""
        return not self.is_busy and now >= self._next_try

    def save(
        self, state: Mapping[str, Any], step: int, why: str, origin: Origin, training: Mapping[str, Any]
    ) -> None:
        """Copy the state, which takes the training's time, and write the copy in a thread of ours.

        A state that cannot be copied, for want of memory for example, or not be read back, or for which there
        is no thread, is not saved; told as all failures.

        Args:
            state: the living one; may change as soon as this returns.
            training: for the manifest.
        """
        job = _Job(step, why, origin, training, time.monotonic(), 0.0)
        try:
            self._copy.take(state)
        except Exception as error:  # noqa: BLE001 - the training is sound, whatever the copy lacks
            self._failed(job, uncopied(error))
            return
        job = replace(job, held_s=time.monotonic() - job.begun)
        self._cancelled = False
        try:
            self._thread = started(partial(self._write, job), f"elastic-checkpoint-{step}")
        except NoThread as error:
            self._failed(job, error)

    def wait(self, seconds: float) -> bool:
        """Wait for what is being written; False: it takes longer than that."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.is_busy

    def cancel(self) -> None:
        """Have what is being written given up at the next piece."""
        self._cancelled = True

    def _write(self, job: _Job) -> None:
        try:
            saved = self._commit(job)
        except Superseded:
            if not self._cancelled:  # perhaps only until we have found the coordinator that has taken over
                self._next_try = time.monotonic() + FENCED_SECONDS
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, such as what cannot be pickled, is told
            self._failed(job, error)
            return
        self._succeeded(saved)
        if not self._cancelled:  # else perhaps for a roll back, which wants an older one
            self._prune(saved.step)

    def _commit(self, job: _Job) -> Saved:
        store, origin = self._store, job.origin
        self._go_on(origin)
        check_skeleton(self._copy.skeleton)
        self._clean(origin.label)
        stage = store.begin(job.step, f"{origin.label}{secrets.token_hex(4)}")
        try:
            files = write_state(
                stage.folder, self._copy.tensors, self._copy.skeleton, lambda: self._go_on(None)
            )
            store.add(stage, 0, files, lambda: self._go_on(None))
            self._go_on(origin)
            manifest = Manifest(
                job.step,
                origin.run,
                origin.term,
                origin.generation,
                utc_now(),
                torch.__version__,
                training=dict(job.training),
            )
            name = store.commit(stage, manifest, 1)
        except BaseException:
            store.discard(stage)
            raise
        seconds, size = time.monotonic() - job.begun, sum(each.bytes for each in files.values())
        where = f"{store.where}/{name}"
        return Saved(job.step, seconds, job.held_s, size, where, job.why, generation=origin.generation)

    def _clean(self, labels: str) -> None:
        try:
            self._store.clean(labels)
        except Uncleaned as error:
            if not self._told_left:
                self._told_left = True
                self._reports.warn(f"what interrupted saves have left stays: {error}")

    def _go_on(self, origin: Origin | None) -> None:
        if self._cancelled:
            raise Superseded("the worker is leaving")
        if origin is not None and (reason := self._reports.fence(origin)) is not None:
            raise Superseded(reason)

    def _succeeded(self, saved: Saved) -> None:
        self.saved_step = saved.step
        if self._failures:
            self._reports.warn(f"checkpoints are written again (step {saved.step})")
        self._failures = 0
        self._reports.saved(saved)

    def _failed(self, job: _Job, error: Exception) -> None:
        pause = min(FIRST_RETRY_SECONDS * 2**self._failures, LAST_RETRY_SECONDS)
        self._next_try = time.monotonic() + pause
        told = unwritten(error, self._store.where)
        self._reports.failed(job.step, job.why, told)
        if not self._failures:
            took = time.monotonic() - job.begun
            self._reports.warn(
                f"the checkpoint of step {job.step} failed after {took:.1f} s: {told}; "
                f"the training goes on without, and it is tried again, first in {pause:g} s"
            )
        self._failures = min(self._failures + 1, 16)

    def _prune(self, step: int) -> None:
        try:
            prune(self._store, self._keep, step)
            self._told_stay = False
        except ElasticError as error:
            if not self._told_stay:
                self._told_stay = True
                self._reports.warn(f"old checkpoints stay: {error}")


def uncopied(error: Exception) -> ElasticError:
    """Why a state could not be copied, for the user."""
    said = " ".join(str(error).split()) or type(error).__name__
    return ElasticError(
        f"the state cannot be copied in this node's memory: {said}",
        "ask for more memory (--mem): a copy on the CPU is as large as the checkpoint",
    )


def unwritten(error: Exception, where: str) -> str:
    """Why a state was not written there, and what to do, for the user."""
    if isinstance(error, OSError) and where.startswith(S3):  # what is uploaded is written there first
        reason = f"{tempfile.gettempdir()}, from which it is uploaded to {where}: {error.strerror or error}"
        return f"cannot write to {reason}; free space there, or set TMPDIR to a disk with room"
    if isinstance(error, OSError):
        return f"cannot write to {where}: {error.strerror or error}; {remedy(error)}"
    if isinstance(error, ElasticError):
        return str(error)
    return f"cannot write to {where}: {error!r}"
