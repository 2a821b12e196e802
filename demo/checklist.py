"""Observations: each is a line that says what was seen, or that it was not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from rich.console import Console

Seen = TypeVar("Seen")
POLL_SECONDS = 0.1


class NotObserved(Exception):
    """Something that the story needs to go on was not seen in time."""


class Checklist:
    """Prints observations as they are made and remembers which failed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begin = time.monotonic()
        self.observed = 0
        self.missing: list[str] = []

    def chapter(self, title: str) -> None:
        """Announce what comes next."""
        self._console.print(f"\n[bold]{title}[/bold]")

    def say(self, text: str) -> None:
        """Narrate; claims nothing."""
        self._console.print(f"          {text}", highlight=False, style="dim", soft_wrap=True, markup=False)

    def check(self, true: bool, what: str, otherwise: str = "") -> None:
        """One observation; a failed one does not stop the story but its exit code is 1."""
        seconds = f"{time.monotonic() - self._begin:6.1f} s"
        if true:
            self.observed += 1
            self._console.print(f"{seconds}  [green]✓[/green] {what}", highlight=False, soft_wrap=True)
            return
        self.missing.append(f"{what}{f' ({otherwise})' if otherwise else ''}")
        self._console.print(
            f"{seconds}  [red]✗ not observed:[/red] {self.missing[-1]}", highlight=False, soft_wrap=True
        )

    def wait(
        self, look: Callable[[], Seen | None], what: str, limit: float, state: Callable[[], str] = str
    ) -> Seen:
        """Look until something is seen.

        Args:
            look: returns what is seen, or None.
            what: names it.
            limit: seconds.
            state: what to say of the present when it is not seen in time.

        Raises:
            NotObserved: it was not seen within `limit`.
        """
        end = time.monotonic() + limit
        while (seen := look()) is None:
            if time.monotonic() > end:
                self.check(False, what, f"not within {limit:.0f} s; {state()}")
                raise NotObserved(what)
            time.sleep(POLL_SECONDS)
        self.check(True, what)
        return seen
