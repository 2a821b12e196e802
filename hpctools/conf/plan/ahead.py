"""Questions to slurmdbd that begin before it is known what their answers are compared with.

They are always the same, and slurmdbd is what a plan waits for: with 500 accounts it takes 1 to 2 s alone to
tell who coordinates them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from hpctools.conf.live import live_queries
from hpctools.conf.plan.read import Ask, ask_commands, commands


class Ahead:
    """Answers what was asked ahead, each once, and asks everything else.

    Whoever ends without having wanted the answers waits for none.

    Args:
        ask: runs a command; called from several threads.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._begun = {argv: self._begin(argv) for argv in _questions()}

    def __call__(self, argv: Sequence[str]) -> str:
        """The answer to a question; raises whatever asking it raised."""
        begun = self._begun.pop(tuple(argv), None)
        return begun.result() if begun else self._ask(argv)

    def _begin(self, argv: Sequence[str]) -> Future[str]:
        begun: Future[str] = Future()

        def work() -> None:
            try:
                begun.set_result(self._ask(argv))
            except Exception as error:  # noqa: BLE001 - whoever wants the answer gets it
                begun.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return begun


def ask_ahead(folder: Path) -> Ahead | None:
    """Begin to ask; None where munge keeps the commands from every daemon: each would try for long."""
    return Ahead(ask_commands) if commands(folder) is ask_commands else None


def _questions() -> list[tuple[str, ...]]:
    return [("sacctmgr", "-nP", *query) for query in live_queries()]
