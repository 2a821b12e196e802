"""hp-logs: what a job has written, from anywhere, while it writes or later."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import hpctools
from hpctools.cli.ending import arguments, run_command
from hpctools.cli.remote_cluster import find_cluster, session, tell
from hpctools.remote import diary
from hpctools.remote.names import shown

if TYPE_CHECKING:
    from hpctools.remote.following import Wanted
    from hpctools.remote.session import Session


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    given = arguments(_parser(), argv)
    return run_command("hp-logs", lambda: _logs(given), debug=given.debug)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hp-logs",
        description="Print the output of a job that was submitted with `hp-submit --cluster`.",
        epilog="Example: hp-logs --follow train-3fa9c1d20b7e",
    )
    parser.add_argument("submission", metavar="SUBMISSION", help="its id, or its job's")
    parser.add_argument(
        "--cluster", default="", metavar="NAME", help="where; known of what you submitted here"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
    parser.add_argument("--task", type=int, metavar="N", help="of an array, only this task")
    parser.add_argument("--errors", action="store_true", help="standard error, where that is another file")
    parser.add_argument("--debug", action="store_true", help="show a traceback when something fails")
    parser.add_argument("-V", "--version", action="version", version=f"hp-logs {hpctools.__version__}")
    return parser


def _logs(given: argparse.Namespace) -> int:
    name = given.submission
    cluster = find_cluster(given.cluster or diary.cluster_of(os.environ, name))
    with session(cluster, "hp-logs") as open_session:
        from hpctools.remote.following import Wanted

        wanted = Wanted(name, given.task, given.errors, given.follow)
        return follow_to_end(open_session, wanted, "hp-logs")


def follow_to_end(open_session: Session, wanted: Wanted, program: str) -> int:
    """Print a job's output; when it was followed to its end, the exit code says how the job ended."""
    from hpctools.remote.following import follow

    last: list[str] = []

    def write(path: str, data: bytes) -> None:
        if last and last[-1] != path:
            sys.stdout.buffer.write(f"\n==> {shown(path)} <==\n".encode())
        last[:] = [path]
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    try:
        result = follow(open_session, wanted, write)
    except KeyboardInterrupt:
        tell(program)(f"the job goes on; see it with: hp-logs --follow {wanted.name}")
        raise
    if not result["paths"]:
        tell(program)(_nothing(result, wanted))
    states = [shown(str(state)) for state in result.get("job_states", ())]
    if not wanted.follow:
        return 0
    job = f"job {shown(str(result['job_id']))}"
    tell(program)(f"{job} {', '.join(states)}" if states else f"{job} is over; how it ended is not known")
    return 0 if set(states) == {"COMPLETED"} else 1


def _nothing(result: Mapping[str, Any], wanted: Wanted) -> str:
    if result.get("forgotten"):
        job = shown(str(result["job_id"]))
        return (
            f"Slurm has forgotten job {job}, and it is not known where its output is; what lies in its "
            f"folder comes with: hp-fetch {wanted.name}"
        )
    return "there is no output" if wanted.follow else "there is no output yet"


if __name__ == "__main__":
    sys.exit(main())
