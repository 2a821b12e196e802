"""Asks Slurm's commands what there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hpctools.errors import CommandError
from hpctools.slurm import munge, run
from hpctools.slurm.environment import asking

Ask = Callable[[Sequence[str]], str]
"""Runs a program with its arguments and returns what it prints."""

VERSION = ("scontrol", "--version")
# sacctmgr keeps on trying for a while; more than this no person waits for a plan.
ASK_SECONDS = 30.0


def ask_commands(argv: Sequence[str]) -> str:
    """Run one of Slurm's commands.

    Raises:
        CommandError: it failed, or did not answer in time.
    """
    return run.run(argv, timeout=ASK_SECONDS, env=asking()).stdout


def commands(folder: Path) -> Ask:
    """Slurm's commands here; where munge does not work they say so at once, since each would try for 50 s."""
    try:
        why = munge.trouble((folder / "slurm.conf").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        why = ""

    def refuse(argv: Sequence[str]) -> str:
        if argv == VERSION:  # no daemon is asked
            return ask_commands(argv)
        raise CommandError(why, argv=argv, code=None, remedy=munge.REMEDY)

    return refuse if why else ask_commands
