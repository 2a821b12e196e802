"""The edge: asks the disk, slurmctld and slurmdbd what there is; everything at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from hpctools.conf.accounts import AccountTree, Settings
from hpctools.conf.bundle import Bundle
from hpctools.conf.live import parse_live
from hpctools.conf.plan.demand import Demand, Holder, Used, demand_format, read_demands, read_used
from hpctools.conf.plan.live import Known, Live, OnDisk
from hpctools.conf.plan.people import groups_of
from hpctools.conf.plan.reservations import read_reservations
from hpctools.conf.plan.shown import Shown, read_shown
from hpctools.conf.plan.slurmfile import included_paths
from hpctools.errors import CommandError, HpctoolsError
from hpctools.slurm import parse
from hpctools.slurm.account_questions import live_queries
from hpctools.slurm.ask import VERSION, Ask, commands
from hpctools.slurm.states import WAITING
from hpctools.slurm.types import Job
from hpctools.slurm.versions import OLDEST, Release, parse_release

Answer = TypeVar("Answer")
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
# All there is, also what is hidden from people; a record a line.
SHOW = ("scontrol", "--all", "--future", "--oneliner", "show")


def read(
    folder: Path,
    cluster: str,
    *,
    paths: Sequence[str] = (),
    wanted: AccountTree | None = None,
    groups: bool = False,
    ask: Ask | None = None,
    wait: bool = True,
) -> Live:
    """Read what there is.

    A daemon that does not answer is no error: `unknown` says so, and what it would have said is missing.

    Args:
        folder: the configuration folder.
        cluster: the cluster's name.
        paths: more files of the folder that count, relative to it.
        wanted: the accounts to be; what is used of their limits on used time is asked for.
        groups: whether the groups of people whose jobs wait are asked for; a directory may take its time.
        ask: runs Slurm's commands; `commands(folder)` when None.
        wait: whether slurmdbd is waited for; else `Live.complete` waits.
    """
    ask = ask or commands(folder)
    pool = ThreadPoolExecutor(13)
    try:
        known = [pool.submit(ask, ("sacctmgr", "-nP", *query)) for query in live_queries()]
        queue = _controller(pool, ask, wanted)
    finally:
        pool.shutdown(wait=False)
    disk = read_folder(folder, cluster, paths)
    people = {job.user for job in queue.jobs if job.state in WAITING} if groups else ()
    live = Live(
        disk,
        queue.shown,
        None,
        queue.jobs,
        _release(queue.shown, ask),
        (*(f"{folder / path} cannot be read" for path in disk.unreadable), *queue.silence),
        queue.demands,
        queue.used,
        groups_of(people),
        cache(lambda: _accounts(known, cluster)),
        queue.reservations,
        queue.jobs_told,
    )
    return live.complete() if wait else live


def _accounts(known: Sequence[Future[str]], cluster: str) -> Known:
    return answer(
        lambda: parse_live(*(each.result() for each in known), cluster=cluster),
        "accounts and QoS are not compared",
    )


def read_for(wanted: Bundle, folder: Path, ask: Ask | None = None, *, wait: bool = True) -> Live:
    """Read what there is of all that a bundle is compared with; see `read`."""
    cluster, paths = wanted.accounts.clusters[0], [file.path for file in wanted.files]
    groups = any("allowgroups=" in file.text.lower() for file in wanted.files)
    return read(folder, cluster, paths=paths, wanted=wanted.accounts, groups=groups, ask=ask, wait=wait)


class _Controller(NamedTuple):
    """What slurmctld tells, and in `silence` what it does not."""

    shown: Shown | None
    silence: tuple[str, ...]
    jobs: tuple[Job, ...] = ()
    demands: Mapping[int, Demand] = {}
    used: Mapping[Holder, Used] = {}
    reservations: Mapping[str, frozenset[str]] = {}
    jobs_told: bool = False


def _controller(pool: ThreadPoolExecutor, ask: Ask, wanted: AccountTree | None) -> _Controller:
    """What slurmctld tells.

    A ping first: the other commands try for half a minute to reach a slurmctld that is down.
    """
    down = _silence(ask)
    if down:
        return _Controller(None, (f"what slurmctld runs and its jobs are not compared: {down}",))
    config = pool.submit(ask, ("scontrol", "show", "config"))
    release = _release(None, ask) or OLDEST
    nodes = pool.submit(ask, (*SHOW, "node"))
    partitions = pool.submit(ask, (*SHOW, "partition"))
    queue = pool.submit(ask, ("squeue", "--all", "--noheader", f"--format={parse.JOB_FORMAT}"))
    reserved = pool.submit(ask, (*SHOW, "reservation"))
    asked = pool.submit(ask, ("squeue", "--all", "--noheader", f"--Format={demand_format(release)}"))
    spent = [pool.submit(ask, argv) for argv in _usage_queries(wanted)]
    shown, silence = answer(
        lambda: read_shown(config.result(), nodes.result(), partitions.result()),
        "what slurmctld runs is not compared",
    )
    jobs, no_jobs = answer(lambda: tuple(parse.jobs(queue.result())), "jobs are not looked at")
    demands, no_demands = answer(
        lambda: read_demands(asked.result(), release), "what jobs ask for is not compared with limits"
    )
    used, no_used = answer(
        lambda: {holder: use for each in spent for holder, use in read_used(each.result()).items()},
        "what is used of limits is not looked at",
    )
    reservations, no_reservations = answer(
        lambda: read_reservations(reserved.result()), "reservations for accounts that go are not looked at"
    )
    told = (*silence, *no_jobs, *no_demands, *no_used, *no_reservations)
    return _Controller(
        shown, told, jobs or (), demands or {}, used or {}, reservations or {}, jobs is not None
    )


def _usage_queries(wanted: AccountTree | None) -> Iterator[tuple[str, ...]]:
    """Questions after those that have limits on used time; slurmctld answers with thousands of others."""
    if wanted is None:
        return
    qos = [each.name for each in wanted.qos if _counts_time(each.settings)]
    accounts = [each.name for each in wanted.accounts if _counts_time(each.settings)]
    accounts += [each.account for each in wanted.associations if _counts_time(each.settings)]
    if qos:
        yield "scontrol", "show", "assoc_mgr", f"qos={','.join(qos)}", "flags=qos"
    if accounts:
        yield "scontrol", "show", "assoc_mgr", f"accounts={','.join(dict.fromkeys(accounts))}", "flags=assoc"


def _counts_time(settings: Settings) -> bool:
    return any(settings.get(key) for key in ("GrpTRESMins", "GrpWall"))


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


def answer(asked: Callable[[], Answer], without: str) -> tuple[Answer | None, tuple[str, ...]]:
    """Return an answer, or None and a line that begins with `without` and says why there is none."""
    try:
        return asked(), ()
    except HpctoolsError as error:
        words = error.stderr_tail.splitlines() if isinstance(error, CommandError) else []
        return None, (f"{without}: {words[-1] if words else error.message}",)


def _release(shown: Shown | None, ask: Ask) -> Release | None:
    try:
        return parse_release(shown.release if shown else ask(VERSION))
    except (HpctoolsError, ValueError):
        return None
