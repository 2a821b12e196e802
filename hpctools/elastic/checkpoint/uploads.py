"""Uploads to S3 that can be given up at any time, in threads that keep no process from ending.

boto3 uploads in threads of `concurrent.futures`. Python waits for those at its end until all that they were
asked for is done, and does so before anything that `atexit` knows: a large file would keep the process for
minutes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from boto3.s3.transfer import TransferConfig, create_transfer_manager
from s3transfer.manager import TransferManager
from s3transfer.subscribers import BaseSubscriber

from hpctools.elastic.brief_threads import resolve

LOOK_SECONDS = 0.2


def upload(
    client: Any, config: TransferConfig, bucket: str, files: Mapping[str, Path], go_on: Callable[[], None]
) -> None:
    """Upload files, one after the other, in parts where they are large.

    Args:
        client: boto3's.
        files: by their keys in the bucket.
        go_on: called several times a second; what it raises ends the upload, and is raised. No part is begun
            after that, and those on their way are broken off.

    Raises:
        ClientError, BotoCoreError, Boto3Error, OSError: a file cannot be uploaded.

    Source: `s3transfer.manager.TransferManager`, whose `executor_cls` this is about.
    """
    with _manager(client, config) as manager:
        for key, path in files.items():
            over = _Over()
            future = manager.upload(str(path), bucket, key, subscribers=[over])
            while not over.event.wait(LOOK_SECONDS):
                go_on()  # the manager cancels all when it is left by an error
            future.result()


def _manager(client: Any, config: TransferConfig) -> Any:
    """As boto3 chooses it; that of the AWS Common Runtime has no threads of Python's."""
    chosen: Any = create_transfer_manager(client, config)
    if not isinstance(chosen, TransferManager):
        return chosen
    return TransferManager(client, config, executor_cls=DaemonThreads)  # type: ignore[arg-type]


class _Over(BaseSubscriber):
    """Hears that a file is uploaded, or is not.

    Attributes:
        event: set then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()

    def on_done(self, future: Any, **_: Any) -> None:
        """As s3transfer calls it."""
        self.event.set()


class DaemonThreads:
    """Threads that do work in the order in which it comes, and that nobody waits for at Python's end.

    Args:
        max_workers: how many, at most.
    """

    def __init__(self, max_workers: int) -> None:
        self._most = max_workers
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Have it done."""
        future: Future[Any] = Future()
        self._work.put(lambda: resolve(future, lambda: fn(*args, **kwargs)))
        if len(self._threads) < self._most:
            thread = threading.Thread(target=self._act, name="elastic-upload", daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def shutdown(self, wait: bool = True) -> None:
        """Have the threads end when all is done."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _act(self) -> None:
        while (work := self._work.get()) is not None:
            work()
