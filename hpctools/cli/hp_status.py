"""hp-status: an elastic run as one thing, however many Slurm jobs it has."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import hpctools
from hpctools.cli.connection import connect
from hpctools.cli.elsewhere import elsewhere, refuse_cut_short
from hpctools.cli.ending import arguments, run_command
from hpctools.cli.output import json_line, show
from hpctools.cli.status_text import details, table
from hpctools.elastic.folder import FINAL_STATES, RunFolder, runs_root
from hpctools.errors import (
    CommandError,
    ElasticError,
    ReleaseError,
    SubmitError,
    UnreachableError,
    UsageError,
)
from hpctools.slurm.client import SlurmClient
from hpctools.slurm.types import Job
from hpctools.submit.overview import Overview, overview
from hpctools.submit.runs import find_runs, run_folders

_WATCH_SECONDS = 2.0
_FAILED_LOOKS = 30
_TOP_OF_SCREEN = "\x1b[H\x1b[2J"


def main(
    argv: Sequence[str] | None = None,
    *,
    client: Callable[[], SlurmClient] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Run the command; return its exit code.

    Args:
        argv: the arguments; those of the process when None.
        client: makes the connection to Slurm.
        sleep: waits that many seconds.
    """
    there = elsewhere("hp-status", argv)
    if there is not None:
        return there
    given = arguments(_parser(), argv)
    return run_command("hp-status", lambda: _status(given, client or connect, sleep), debug=given.debug)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hp-status",
        description="Show your elastic runs, or one of them.",
        epilog="Examples: hp-status, hp-status --watch train-3fa9c1, hp-status --cluster uni train-3fa9c1d2",
    )
    help_ = "id of a run, of an array of runs, or of any of their Slurm jobs"
    parser.add_argument("run", nargs="?", metavar="RUN", help=help_)
    parser.add_argument("--all", action="store_true", help="list runs that have ended, too")
    parser.add_argument("--watch", action="store_true", help="repeat until the run has ended")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw the run's size, loss, throughput and events (.svg, .png)",
    )
    parser.add_argument(
        "--accounting", action="store_true", help="show the node and GPU hours of all its jobs"
    )
    parser.add_argument("--cluster", metavar="NAME", help="ask a cluster over SSH, from a laptop")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--debug", action="store_true", help="show a traceback when something fails")
    parser.add_argument("-V", "--version", action="version", version=f"hp-status {hpctools.__version__}")
    return parser


def _status(
    given: argparse.Namespace, client: Callable[[], SlurmClient], sleep: Callable[[float], None]
) -> int:
    refuse_cut_short(given.cluster)
    _check(given)
    folders = find_runs(given.run, runs_root(), client) if given.run is not None else []
    # A program that reads --json gets a list for each array, also for one of a single run.
    listed = given.json and any(each.path.name.startswith(f"{given.run}_") for each in folders)
    folder = folders[0] if len(folders) == 1 and not listed else None
    if folders and (given.plot or given.accounting):
        _extras(_only(folders, given), given)
        return 0
    shown, failed = "", 0
    while True:
        try:
            text, over = _one(folder, given, client) if folder else _list(given, client, folders)
            failed = 0
        except ElasticError as error:  # storage may be away for a moment: who watches goes on
            failed += 1
            if not shown or failed > _FAILED_LOOKS:
                raise
            text, over = f"hp-status: {error}\n", False
        if text != shown:
            _show_frame(text, again=given.watch)
        shown = text
        if over or not given.watch:
            return 0
        sleep(_WATCH_SECONDS)


def _check(given: argparse.Namespace) -> None:
    chosen = [name for name in ("plot", "accounting", "watch") if getattr(given, name)]
    if given.run is None and chosen and chosen != ["watch"]:
        raise UsageError(
            f"--{chosen[0]} of which run?", "name one: hp-status RUN; hp-status --all lists them"
        )
    if "watch" in chosen and len(chosen) > 1:
        raise UsageError(f"--watch and --{chosen[0]} do not go together", "give one of them")
    if given.plot:
        from hpctools.cli.run_plot import wanted_format

        wanted_format(given.plot)


def _only(folders: list[RunFolder], given: argparse.Namespace) -> RunFolder:
    """The run that is to be drawn or counted: not each of an array."""
    if len(folders) == 1:
        return folders[0]
    names = [folder.path.name for folder in folders]
    some = ", ".join(names if len(names) < 4 else [*names[:2], "...", names[-1]])
    what = "plot" if given.plot else "accounting"
    raise UsageError(
        f"--{what} of which run? {given.run} is an array of {len(names)}", f"name one of them: {some}"
    )


def _extras(folder: RunFolder, given: argparse.Namespace) -> None:
    """What is asked for beside how the run stands: a drawing, the hours that it has used."""
    if given.plot:
        _plot(folder, given.plot)
    if given.accounting:
        from hpctools.cli.run_accounting import bill_json, bill_of, bill_text

        found, run_id = bill_of(folder, time.time()), folder.spec().id
        show(bill_json(run_id, found) if given.json else bill_text(run_id, found))
    elif given.json:
        show({"plot": str(given.plot)})


def _plot(folder: RunFolder, path: Path) -> None:
    from hpctools.cli.run_plot import save_plot
    from hpctools.submit.course import course

    spec, status = folder.spec(), folder.status()
    found = course(folder.history(), folder.events())
    if found is None or status is None:
        raise SubmitError(f"run {spec.id} has nothing to draw yet: its training has not begun")
    total = f" of {status.total_steps}" if status.total_steps else ""
    title = f"{spec.id}: {status.state}, step {status.step}{total}"
    limits = (spec.min_nodes * spec.workers_per_node, spec.max_nodes * spec.workers_per_node)
    save_plot(found, title, limits, path)


def _show_frame(text: str, *, again: bool) -> None:
    show(_TOP_OF_SCREEN + text if again and sys.stdout.isatty() else text)


def _one(folder: RunFolder, given: argparse.Namespace, client: Callable[[], SlurmClient]) -> tuple[str, bool]:
    run = _overview(folder, _queue(folder.spec().user, client))
    history = folder.history()
    if given.json:
        return json_line({**asdict(run), "history": [asdict(moment) for moment in history]}), run.is_over
    columns = shutil.get_terminal_size((100, 24)).columns
    text = details(run, str(folder.path), colour=_colour(), history=history, columns=columns)
    return text, run.is_over


def _list(
    given: argparse.Namespace, client: Callable[[], SlurmClient], named: Sequence[RunFolder] = ()
) -> tuple[str, bool]:
    """A line for each run, and whether all are over that are named: those of an array, or the user's."""
    found = [(folder, _ended(folder)) for folder in named or run_folders(runs_root())]
    ended = {folder: over for folder, over in found if over is not None}
    # A run that has ended needs no queue, and one without a controller takes long to say so.
    open_runs = [folder for folder, over in ended.items() if not over]
    queues = _queues({folder.spec().user for folder in open_runs}, client)
    # All that was ever said of one that has ended is not read to leave it out then, every two seconds.
    wanted = ended if given.all or named else open_runs
    asked = [(folder, queues.get(folder.spec().user, [])) for folder in wanted]
    runs = [run for folder, queue in asked if (run := _readable(folder, queue)) is not None]
    chosen = [run for run in runs if given.all or named or not run.is_over]
    # One that cannot be read at the moment may not be over.
    all_over = bool(named) and len(runs) == len(named) and all(run.is_over for run in runs)
    if given.json:
        return json_line([asdict(run) for run in chosen]), all_over
    if chosen:
        return table(chosen, colour=_colour()), all_over
    any_run = runs or any(ended.values())
    return ("no active runs; hp-status --all lists the others\n" if any_run else "no runs\n"), False


def _ended(folder: RunFolder) -> bool | None:
    """Whether a run says that it has ended; None, and said, where that cannot be read."""
    try:
        status = folder.status()
    except ElasticError as error:
        print(f"hp-status: {error}", file=sys.stderr)
        return None
    return status is not None and status.state in FINAL_STATES


def _readable(folder: RunFolder, queue: list[Job] | None) -> Overview | None:
    """One of many runs; None, and said, where some of it cannot be read."""
    try:
        return _overview(folder, queue)
    except ElasticError as error:
        print(f"hp-status: {error}", file=sys.stderr)
        return None


def _overview(folder: RunFolder, queue: list[Job] | None) -> Overview:
    said = folder.spec(), folder.status(), folder.jobs(), folder.events(), queue
    return overview(*said, now=time.time(), end=_end(folder))


def _end(folder: RunFolder) -> float | None:
    """When the run's time is up; what cannot be read is not known."""
    try:
        limit = folder.time_limit()
    except ElasticError:
        return None
    return None if limit is None else limit.end


def _queues(users: set[str], client: Callable[[], SlurmClient]) -> dict[str, list[Job] | None]:
    """The jobs of each: in a folder that people share, or seen by an operator, runs are of several."""
    found: dict[str, list[Job] | None] = {}
    for user in sorted(users):
        found[user] = None if None in found.values() else _queue(user, client)
    return found


def _queue(user: str, client: Callable[[], SlurmClient]) -> list[Job] | None:
    try:
        return client().jobs(user=user)
    except (UnreachableError, CommandError, ReleaseError) as error:
        print(f"hp-status: {error}", file=sys.stderr)
        return None


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


if __name__ == "__main__":
    sys.exit(main())
