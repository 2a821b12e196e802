"""`python -m demo`: runs the story; exit code 0 only if every observation was made."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click
from rich.console import Console

from demo.checklist import Checklist, NotObserved
from demo.ours import check, take_down
from demo.story import Story
from hpctools.errors import HpctoolsError
from hpctools.sandbox.cluster import Sandbox


@click.command()
@click.option("--quick", is_flag=True, help="A shorter training; the same story.")
@click.option(
    "--down", is_flag=True, help="Take the cluster down at the end instead of leaving it to look at."
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def demo(quick: bool, down: bool, debug: bool) -> None:
    """A research university's cluster does its work, on this machine."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    checklist = Checklist(console)
    sandbox = Sandbox(Path(os.environ["HPCTOOLS_SANDBOX"]))
    begin = time.monotonic()
    _refuse_others(sandbox, debug=debug)
    try:
        story = Story(sandbox, checklist, console, quick=quick)
        story.tell()
        if not down:
            story.farewell()
    except NotObserved:
        checklist.say("the rest of the story needs it, so it ends here")
    except HpctoolsError as error:
        if debug:
            raise
        checklist.check(False, "the story", str(error))
    finally:
        if down:
            take_down(sandbox)
    _close(checklist, console, time.monotonic() - begin)
    sys.exit(1 if checklist.missing else 0)


def _refuse_others(sandbox: Sandbox, *, debug: bool) -> None:
    """Before anything is done; `--down` would end it, too."""
    try:
        check(sandbox)
    except HpctoolsError as error:
        if debug:
            raise
        sys.exit(f"demo: {error}")


def _close(checklist: Checklist, console: Console, seconds: float) -> None:
    total = checklist.observed + len(checklist.missing)
    console.print(f"\n{checklist.observed} of {total} observations made, in {seconds:.0f} s", style="bold")
    for line in checklist.missing:
        console.print(f"  not observed: {line}", style="red", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    demo()
