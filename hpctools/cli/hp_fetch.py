"""hp-fetch: results of a submission, from the cluster to here."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import hpctools
from hpctools.cli.ending import arguments, run_command
from hpctools.cli.remote_cluster import find_cluster, session, tell
from hpctools.remote import diary
from hpctools.remote.meter import Meter
from hpctools.remote.names import shown

if TYPE_CHECKING:
    from hpctools.remote.fetching import Fetched


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    given = arguments(_parser(), argv)
    return run_command("hp-fetch", lambda: _fetch(given), debug=given.debug)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hp-fetch",
        description="Bring files of a submission's run folder here. What was begun is resumed, "
        "what is here is never overwritten.",
        epilog="Example: hp-fetch train-3fa9c1d20b7e 'checkpoints/*.pt' --to results",
    )
    parser.add_argument("submission", metavar="SUBMISSION", help="its id, or its job's")
    parser.add_argument(
        "patterns", nargs="*", metavar="PATTERN", help="files or folders; everything when left out"
    )
    parser.add_argument(
        "--to", type=Path, metavar="FOLDER", help="where to; a folder of the submission's name"
    )
    parser.add_argument(
        "--cluster", default="", metavar="NAME", help="where from; known of what you submitted here"
    )
    parser.add_argument("--debug", action="store_true", help="show a traceback when something fails")
    parser.add_argument("-V", "--version", action="version", version=f"hp-fetch {hpctools.__version__}")
    return parser


def _fetch(given: argparse.Namespace) -> int:
    name = given.submission
    cluster = find_cluster(given.cluster or diary.cluster_of(os.environ, name))
    folder = given.to or Path(shown(name).replace("/", "_"))
    with session(cluster, "hp-fetch") as open_session:
        from hpctools.remote.fetching import Fetched, Wanted, fetch

        done, meter = Fetched(), Meter(sys.stderr, "hp-fetch")
        open_session.tell = meter.aside(open_session.tell)
        try:
            fetch(Wanted(name, tuple(given.patterns), folder), open_session, done, meter)
        finally:
            _tell(done, folder)
    if not any((done.new, done.present, done.other, done.changed, done.gone)):
        tell("hp-fetch")("there are no such files")
        return 1
    return 1 if done.other or done.changed or done.gone else 0


def _tell(done: Fetched, folder: Path) -> None:
    say = tell("hp-fetch")
    for path in done.new:
        print(folder / shown(path))
    for path in done.other:
        say(f"{folder / shown(path)} is another file than the cluster's: left as it is (--to FOLDER)")
    for path in done.changed:
        say(f"{shown(path)} changed while it was fetched: its job may still write it; fetch again")
    for path, why in done.gone.items():
        say(f"{shown(path)} was not fetched: {why}")


if __name__ == "__main__":
    sys.exit(main())
