"""The edge: asks the disk, slurmctld and slurmdbd what there is; everything at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from hpctools.conf.live import live_queries, parse_live
from hpctools.conf.plan.live import Live, OnDisk
from hpctools.conf.plan.shown import Shown, read_shown
from hpctools.conf.plan.slurmfile import included_paths
from hpctools.errors import CommandError, HpctoolsError
from hpctools.slurm import parse, run
from hpctools.slurm.environment import asking
from hpctools.slurm.types import Job
from hpctools.slurm.versions import Release, parse_release

Answer = TypeVar("Answer")
Ask = Callable[[Sequence[str]], str]
"""Runs a program with its arguments and returns what it prints."""

# sacctmgr keeps on trying for a while; more than this no person waits for a plan.
ASK_SECONDS = 30.0
# Files that slurmctld, slurmd and slurmdbd read beside slurm.conf, wherever they are.
KNOWN_FILES = (
    "slurm.conf",
    "gres.conf",
    "cgroup.conf",
    "slurmdbd.conf",
    "topology.conf",
    "topology.yaml",
    "job_container.conf",
    "acct_gather.conf",
)
_DEEPEST = 8
_SHOW = ("scontrol", "--all", "--future", "--oneliner", "show")


def ask_commands(argv: Sequence[str]) -> str:
    """Run one of Slurm's commands.

    Raises:
        CommandError: it failed, or did not answer in time.
    """
    return run.run(argv, timeout=ASK_SECONDS, env=asking()).stdout


def read(folder: Path, cluster: str, *, paths: Sequence[str] = (), ask: Ask = ask_commands) -> Live:
    """Read what there is.

    A daemon that does not answer is no error: `unknown` says so, and what it would have said is missing.

    Args:
        folder: the configuration folder.
        cluster: the cluster's name.
        paths: more files of the folder that count, relative to it.
        ask: runs Slurm's commands.
    """
    with ThreadPoolExecutor(12) as pool:
        known = [pool.submit(ask, ("sacctmgr", "-nP", *query)) for query in live_queries()]
        shown, jobs, silence = _controller(pool, ask)
        disk = read_folder(folder, cluster, paths)
        accounts, no_accounts = _answer(
            lambda: parse_live(*(each.result() for each in known), cluster=cluster),
            "accounts and QoS are not compared",
        )
    unreadable = tuple(f"{folder / path} cannot be read" for path in disk.unreadable)
    unknown = (*unreadable, *silence, *no_accounts)
    return Live(disk, shown, accounts, jobs, _release(shown, ask), unknown)


def _controller(pool: ThreadPoolExecutor, ask: Ask) -> tuple[Shown | None, tuple[Job, ...], tuple[str, ...]]:
    """What slurmctld runs, its jobs, and what it does not tell.

    A ping first: the other commands try for half a minute to reach a slurmctld that is down.
    """
    down = _silence(ask)
    if down:
        return None, (), (f"what slurmctld runs and its jobs are not compared: {down}",)
    config = pool.submit(ask, ("scontrol", "show", "config"))
    nodes = pool.submit(ask, (*_SHOW, "node"))
    partitions = pool.submit(ask, (*_SHOW, "partition"))
    queue = pool.submit(ask, ("squeue", "--all", "--noheader", f"--format={parse.JOB_FORMAT}"))
    shown, silence = _answer(
        lambda: read_shown(config.result(), nodes.result(), partitions.result()),
        "what slurmctld runs is not compared",
    )
    jobs, no_jobs = _answer(lambda: tuple(parse.jobs(queue.result())), "jobs are not looked at")
    return shown, jobs or (), (*silence, *no_jobs)


def _silence(ask: Ask) -> str:
    """Why slurmctld cannot be asked; "" when it answers, or its backup does."""
    try:
        return "" if "UP" in ask(("scontrol", "ping")) else "it does not answer scontrol ping"
    except CommandError as error:
        return "it does not answer scontrol ping" if error.code else error.message


def read_folder(folder: Path, cluster: str, paths: Sequence[str] = ()) -> OnDisk:
    """Read a configuration folder: Slurm's own files, `paths`, and whatever slurm.conf includes."""
    files: dict[str, str] = {}
    written: dict[str, float] = {}
    unreadable: list[str] = []
    waiting = [(path, 0) for path in dict.fromkeys((*KNOWN_FILES, *paths))]
    while waiting:
        path, depth = waiting.pop(0)
        try:
            files[path] = (folder / path).read_text(encoding="utf-8", errors="replace")
            written[path] = (folder / path).stat().st_mtime
        except FileNotFoundError:
            continue
        except OSError:
            unreadable.append(path)
            continue
        if depth < _DEEPEST and (depth or path == "slurm.conf"):
            more = included_paths(files[path], cluster)
            waiting += [(each, depth + 1) for each in more if each not in files]
    return OnDisk(files, written, tuple(unreadable))


def _answer(asked: Callable[[], Answer], without: str) -> tuple[Answer | None, tuple[str, ...]]:
    """An answer, or why there is none."""
    try:
        return asked(), ()
    except HpctoolsError as error:
        words = error.stderr_tail.splitlines() if isinstance(error, CommandError) else []
        return None, (f"{without}: {words[-1] if words else error.message}",)


def _release(shown: Shown | None, ask: Ask) -> Release | None:
    try:
        return parse_release(shown.release if shown else ask(("scontrol", "--version")))
    except (HpctoolsError, ValueError):
        return None
