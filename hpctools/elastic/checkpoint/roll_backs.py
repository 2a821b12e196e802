"""Roll backs are noted where the checkpoints lie: at once, or as soon as that place can be written again."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hpctools.elastic.checkpoint.beside import NoThread, started
from hpctools.elastic.checkpoint.store import Abandoned, Store, abandon
from hpctools.errors import ElasticError

NOTE_SECONDS = 3.0


class RollBacks:
    """One worker's notes of what was given up, so that nobody begins again with it.

    Args:
        warn: told of a roll back that cannot be noted now.
    """

    def __init__(self, store: Callable[[], Store], warn: Callable[[str], None]) -> None:
        self._store = store
        self._warn = warn
        self._due: list[Abandoned] = []
        self._lock = threading.Lock()

    def note(self, roll_back: Abandoned, *, is_ours: bool) -> None:
        """Before anything is saved after it; storage that hangs holds the training up for a few seconds.

        Args:
            is_ours: whether this worker saves now, and so notes it at once. The others remember it: who notes
                it may be lost before it could.
        """
        self._due.append(roll_back)
        if is_ours:
            try:
                self._note_within(NOTE_SECONDS)
            except NoThread as error:
                self._tell(error)

    def note_rest(self) -> None:
        """Note what is not noted yet, before we save; from any thread.

        Raises:
            ElasticError: it cannot be noted now, so nothing may be committed: what was given up is of later
                steps, and would be gone on from.
        """
        if (error := self._noted()) is not None:
            raise ElasticError(
                f"checkpoints of what was rolled back cannot be marked so before it: {error.message}",
                error.remedy,
            )

    def _note_within(self, seconds: float) -> None:
        thread = started(self._note_first, "elastic-roll-back")
        thread.join(seconds)
        if thread.is_alive():
            self._warn(
                "checkpoints of what was rolled back are not marked so yet: storage has not answered in "
                f"{seconds:g} s; the training goes on, and nothing is saved before they are"
            )

    def _note_first(self) -> None:
        if (error := self._noted()) is not None:
            self._tell(error)

    def _tell(self, error: ElasticError) -> None:
        self._warn(
            f"checkpoints of what was rolled back cannot be marked so: {error}; it is tried again with "
            "the next save, which is not committed before"
        )

    def _noted(self) -> ElasticError | None:
        with self._lock:
            try:
                while self._due:
                    abandon(self._store(), self._due[0])
                    del self._due[0]
            except ElasticError as error:
                return error
        return None
