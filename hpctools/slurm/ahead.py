"""Questions to slurmdbd that begin before it is known what their answers are compared with.

They are always the same, and slurmdbd is what a plan waits for: with 2,000 people it takes 2 to 3 s to tell
what they coordinate. That question is asked in parts, which slurmdbd answers at the same time.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from hpctools.slurm.account_questions import NAMES, live_queries
from hpctools.slurm.ask import Ask, ask_commands, commands

PARTS = 2
_FEW = 200  # slurmdbd tells of so many people as fast at once
_LONGEST = 100_000  # bytes of one argument; the kernel takes 131,072
_PLAIN = re.compile(r"[A-Za-z0-9._@+-]+")


class Ahead:
    """Answers what was asked ahead, each once, and asks everything else.

    Whoever ends without having wanted the answers waits for none.

    Args:
        ask: runs a command; called from several threads.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._begun: dict[tuple[str, ...], Future[str]] = {}
        for argv in _questions():
            work = self._of_people if argv[3] == "user" else ask
            self._begun[argv] = _begin(partial(work, argv))

    def __call__(self, argv: Sequence[str]) -> str:
        """The answer to a question; raises whatever asking it raised."""
        begun = self._begun.pop(tuple(argv), None)
        return begun.result() if begun else self._ask(argv)

    def _of_people(self, argv: tuple[str, ...]) -> str:
        """In parts, of the people whose names are asked for first, which takes a twentieth of the time."""
        names = self._ask(("sacctmgr", "-nP", *NAMES)).splitlines()
        parts = in_parts(argv, names)
        asked = [_begin(partial(self._ask, part)) for part in parts]
        return "".join(each.result() for each in asked)


def _begin(work: Callable[[], str]) -> Future[str]:
    begun: Future[str] = Future()

    def run() -> None:
        try:
            begun.set_result(work())
        except Exception as error:  # noqa: BLE001 - whoever wants the answer gets it
            begun.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return begun


def in_parts(argv: tuple[str, ...], people: Sequence[str]) -> list[tuple[str, ...]]:
    """The question of people, of some of them each; whole where they are few or a name is odd."""
    if len(people) < _FEW or not all(map(_PLAIN.fullmatch, people)):
        return [argv]
    count = max(PARTS, 1 + sum(len(name) + 1 for name in people) // _LONGEST)
    at = argv.index("user") + 1
    return [(*argv[:at], f"name={','.join(people[start::count])}", *argv[at:]) for start in range(count)]


def ask_ahead(folder: Path) -> Ahead | None:
    """Begin to ask; None where munge keeps the commands from every daemon: each would try for long."""
    return Ahead(ask_commands) if commands(folder) is ask_commands else None


def _questions() -> list[tuple[str, ...]]:
    return [("sacctmgr", "-nP", *query) for query in live_queries()]
