"""One loading process: makes the batches that it is asked for, and never waits for who will read them."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import threading
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing
from torch._utils import ExceptionWrapper

from hpctools.elastic.channel import die_with_parent
from hpctools.elastic.own_run import keep_to_ourselves
from hpctools.elastic.pieces import Piece
from hpctools.elastic.sources import Loaded, Mark, Source

SHARED_BYTES = 1 << 20
SKIPPED = 1 << 12
"""More than are ever asked for and not answered."""
Buffer = bytes | memoryview


def serve(parent: int, connection: Connection, source: Source, skipped: Any, number: int) -> None:
    """A loading process: until its training ends it."""
    die_with_parent(parent)
    keep_to_ourselves(os.environ)
    # Slurm's SIGTERM reaches us, too; the training still finishes its step, with our batches.
    for ignored in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    torch.set_num_threads(1)
    answers: queue.SimpleQueue[Buffer] = queue.SimpleQueue()
    threading.Thread(
        target=_send_all, args=(connection, answers), name="elastic-answers", daemon=True
    ).start()
    with contextlib.suppress(EOFError, ConnectionError):  # the training has ended, and we shall, too
        while True:
            asked, piece, mark = connection.recv()
            if not skipped[asked % len(skipped)]:
                answers.put(_pickled((asked, piece, _attempt(source, piece, mark, number))))


def _send_all(connection: Connection, answers: queue.SimpleQueue[Buffer]) -> None:
    """The training reads from us when it wants what we have: what it will want next is loaded meanwhile."""
    with contextlib.suppress(OSError):
        while True:
            connection.send_bytes(answers.get())


def _pickled(answer: tuple[int, Piece, Loaded | ExceptionWrapper]) -> Buffer:
    """Small batches go through the pipe; large ones in shared memory, at the cost of a handshake a tensor."""
    copied = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    return copied if len(copied) <= SHARED_BYTES else ForkingPickler.dumps(answer)


def _attempt(source: Source, piece: Piece, mark: Mark | None, number: int) -> Loaded | ExceptionWrapper:
    try:
        return source.load(piece, mark)
    except Exception:  # noqa: BLE001 - it is raised again in the training
        return ExceptionWrapper(where=f"in loading process {number}")  # type: ignore[no-untyped-call]
