"""What a training process sees of restart mode: `elastic_event_detected`, and the slot it is read from.

A slot is a file on the node's own memory file system that one worker and its agent share. The worker
counts its calls in it; the agent writes there at which call all ranks shall see the event. Both touch it
under a lock of the kernel's, so that one thing is certain: a worker whose count was below N when its agent
proposed N looks at the proposal before it goes past N. Five system calls a step; no collective, no message,
no thread.

This file must work alone: it is also loaded by path into interpreters that have no hpctools.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VARIABLE = "HPCTOOLS_EVENTS"
HOLD_SECONDS = 0.0005
LOCK_SECONDS = 0.05

_WORKER = struct.Struct("<qqq")
_AGENT = struct.Struct("<qq")
_TERM = _WORKER.size + _AGENT.size  # where the worker's flag for a SIGTERM is
_PENDING, _COMMITTED = 1, 2


@dataclass(frozen=True)
class Count:
    """What the worker has written.

    Attributes:
        calls: how often it asked.
        told: the call at which it was told of the event; 0: not yet.
        owner: the process that asks; 0: nobody has asked yet.
    """

    calls: int
    told: int
    owner: int


@dataclass(frozen=True)
class Order:
    """What the agent has written.

    Attributes:
        call: the call at which all ranks shall see the event; 0: none.
        committed: whether all ranks have agreed; before that, who comes to the call waits there.
    """

    call: int = 0
    committed: bool = False


class Slot:
    """One worker's slot, opened by the worker or by its agent.

    Raises:
        OSError: it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._threads = threading.RLock()  # the kernel's is the whole process's; a signal's handler may ask

    @classmethod
    def create(cls, path: Path) -> Slot:
        """Make a new slot, readable for nobody else."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.write(file, bytes(_TERM + 1))
        os.close(file)
        return cls(path)

    def close(self) -> None:
        """Give it up; the file stays."""
        os.close(self._file)

    # The worker's side

    def ask(self) -> int:
        """Count a call; returns its number, from 1."""
        with self._locked():
            count = self.count()
            self._write(Count(count.calls + 1, count.told, count.owner or os.getpid()))
        return count.calls + 1

    def answer(self, call: int) -> bool | None:
        """Whether a call is at or behind the event; None: that is not decided yet, ask again."""
        order = self.order()
        if not order.call or call < order.call:
            return False
        return True if order.committed else None

    def tell(self, call: int) -> None:
        """The worker was told of the event at this call."""
        with self._locked():
            count = self.count()
            if not count.told:
                self._write(Count(count.calls, call, count.owner))

    def note_term(self, *_: object) -> None:
        """A handler for SIGTERM: it has come, and is left to the agent.

        Not by a handler of the script's own, set later, that passes it on to us.
        """
        if signal.getsignal(signal.SIGTERM) == self.note_term:
            os.pwrite(self._file, b"\1", _TERM)

    # The agent's side

    def propose(self, call: int) -> bool:
        """Have the worker wait at a call that lies before it.

        Returns:
            whether it lies before it; otherwise nothing has changed. Also false when the worker was stopped
            in the middle of a call and the slot cannot be touched.
        """
        try:
            with self._locked(LOCK_SECONDS):
                if self.count().calls >= call or self.order().committed:
                    return False
                self._write(Order(call))
                return True
        except TimeoutError:
            return False

    def commit(self, call: int) -> None:
        """All ranks wait at this call or come to it: they are told there."""
        if self.order().call == call:
            self._write(Order(call, committed=True))

    def withdraw(self) -> None:
        """There is no event: who waits goes on."""
        if not self.order().committed:
            self._write(Order())

    def forget_term(self) -> None:
        """Before a SIGTERM of ours: those before it do not count."""
        os.pwrite(self._file, b"\0", _TERM)

    @property
    def only_notes_term(self) -> bool:
        """Whether SIGTERM has come since, and was left to us: the script has no handler of its own."""
        return os.pread(self._file, 1, _TERM) == b"\1"

    # Both

    def count(self) -> Count:
        """What the worker has written."""
        return Count(*_WORKER.unpack(os.pread(self._file, _WORKER.size, 0)))

    def order(self) -> Order:
        """What the agent has written."""
        call, state = _AGENT.unpack(os.pread(self._file, _AGENT.size, _WORKER.size))
        return Order(call, state == _COMMITTED)

    def _write(self, values: Count | Order) -> None:
        if isinstance(values, Count):
            os.pwrite(self._file, _WORKER.pack(values.calls, values.told, values.owner), 0)
        else:
            state = (_COMMITTED if values.committed else _PENDING) if values.call else 0
            os.pwrite(self._file, _AGENT.pack(values.call, state), _WORKER.size)

    @contextlib.contextmanager
    def _locked(self, seconds: float | None = None) -> Iterator[None]:
        """The kernel's lock of the slot; it also orders what both sides read and write."""
        with self._threads:
            if seconds is None:
                fcntl.lockf(self._file, fcntl.LOCK_EX)
            else:
                self._lock_within(seconds)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _lock_within(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except (BlockingIOError, PermissionError):  # lockf(3): EAGAIN or EACCES
                if time.monotonic() > deadline:
                    raise TimeoutError from None
                time.sleep(HOLD_SECONDS)


class _Listener:
    """This process's slot, if it has one."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._slot: Slot | None = None
        with contextlib.suppress(KeyError, OSError):  # no restart mode, or a container that hides the file
            self._slot = Slot(Path(os.environ[VARIABLE]))
        if self._slot is not None and not self._is_free():
            self._slot = None
        self._dies_of_term = _is_spawned()
        if self._slot is not None and not self._dies_of_term:
            self._outlive_slurm(self._slot)

    def detected(self) -> bool:
        """Count the call, and say whether it is at or behind the event."""
        slot = self._slot
        if slot is None or os.getpid() != self._pid:
            return False
        call = slot.ask()
        if self._dies_of_term:
            self._dies_of_term = False
            self._outlive_slurm(slot)
        while (answer := slot.answer(call)) is None:
            time.sleep(HOLD_SECONDS)
        if answer:
            slot.tell(call)
        return answer

    def _is_free(self) -> bool:
        # A launcher of the user's and the process it starts share the variable; who asked first has it.
        return self._slot is not None and self._slot.count().owner in (0, self._pid)

    def _outlive_slurm(self, slot: Slot) -> None:
        """A script that can be told need not die of the SIGTERM that Slurm sends to all of a preempted job.

        Only where the script left the signal's default action; the agent, whose own SIGTERM is only noted,
        too, then ends us by SIGKILL.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, slot.note_term)
            give_back_to_forked(slot.note_term, signal.SIG_DFL)


def _is_spawned() -> bool:
    """Whether we are a process that a script started by `multiprocessing`: a loader's, until it asks."""
    process: Any = sys.modules.get("multiprocessing.process")
    return process is not None and process.current_process().name != "MainProcess"


def give_back_to_forked(handler: Callable[..., None], former: Any) -> None:
    """SIGTERM means to processes that we fork what it did before `handler`, also one that comes at once.

    So Slurm's ends them, too: a handler in Python is not told who sent a signal, and a thread that is has no
    place in what others fork. docs/elastic.md has one for scripts. Live mode's workers do so as well.
    """
    forking = threading.local()

    def hold() -> None:
        # Read first, kept before: a handler of the script's may run, and raise, as soon as it is blocked.
        forking.mask = mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        forking.mask = mask  # such a handler may also have forked

    def release() -> None:
        mask = getattr(forking, "mask", None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            forking.mask = None

    def give_back() -> None:
        # Forked by another thread than the main one, the child's only thread is its main one by now.
        if signal.getsignal(signal.SIGTERM) == handler:
            signal.signal(signal.SIGTERM, former)
        release()

    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=give_back)
    os.register_at_fork(after_in_parent=release)  # again: a handler may raise before the first has begun


_listener = _Listener()


def elastic_event_detected(sig: int = signal.SIGUSR1) -> bool:
    """Whether the training shall save a checkpoint and end, because its size is about to change.

    Call it once a step on every rank, as HyperPod's scripts do: all ranks see `True` at the same call, and
    at every call after it. Ranks that call it a different number of times see it at the same *number* of
    calls, which is then not the same step. In restart mode the process is started again at the new size when
    all ranks have ended, whatever their exit code; without hp-submit and in live mode it is always `False`.

    Args:
        sig: as in HyperPod's function; there is no event for another signal than SIGUSR1.

    Returns:
        True from the call on that was agreed on for all ranks, and at every later one. The call may wait for
        that agreement; else it costs five system calls. A process that has no part in restart mode (no run,
        a forked one, one whose launcher asked first) always gets False; nothing is raised.

    Source: Amazon SageMaker AI developer guide, "Using elastic training in Amazon SageMaker HyperPod", and
    `hyperpod_elastic_agent.elastic_event_handler`, whose signature and meaning this has.
    """
    return sig == signal.SIGUSR1 and _listener.detected()
