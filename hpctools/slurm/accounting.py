"""What slurmdbd remembers of jobs, read with sacct."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

from hpctools.errors import BudgetError, CommandError, UnreachableError
from hpctools.slurm.environment import asking
from hpctools.slurm.run import run

FEW_JOBS = 20_000  # in one answer; sacct prints about 300 bytes a job
LONGEST_WINDOW = 8  # days
IDS_AT_ONCE = 500

# No field that a user can fill freely (job name, comment, WCKey): it could carry separators and line breaks.
FIELDS = (
    "JobIDRaw",
    "Cluster",
    "DBIndex",
    "User",
    "Account",
    "Partition",
    "QOS",
    "Submit",
    "Start",
    "End",
    "Suspended",
    "State",
    "AllocTRES",
    "NodeList",
    "Reservation",
)

LABELS = ("JobID", "Comment")
"""What jobs are called. A user can fill the comment freely: it is asked for behind a mark that nobody
can guess, and only the name of an elastic run is kept of it."""

_SIZES: dict[str, Decimal] = {
    "": Decimal(1),
    "K": Decimal(1) / 1024,
    "M": Decimal(1),
    "G": Decimal(1024),
    "T": Decimal(1024**2),
    "P": Decimal(1024**3),
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_DURATION = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_NAME = re.compile(r"\d{1,10}[_+]\d{1,10}")
_RUN = re.compile(r"hp-run:([A-Za-z0-9._-]{1,64})")
_UNKNOWN = frozenset({"", "None", "Unknown", "None assigned"})
_AWAY = re.compile(r"Connection refused|problem talking to the database|Unable to connect|persist", re.I)


@dataclass(frozen=True, order=True)
class JobRecord:
    """One job, or one run of a requeued job, as slurmdbd has it.

    (cluster, dbindex) identifies it for ever; job ids are recycled and a requeue keeps the id.

    Attributes:
        submitted, start, end: Unix seconds; `start` is None when it never started, `end` when it runs.
        suspended_seconds: how long it was stopped in between.
        state: Slurm's long form without the `by <uid>` of cancelled jobs.
        cpus, memory_mb, gpus, shards: what it was given in all (AllocTRES, never ReqTRES).
        nodes: a folded host list; empty when it never had any.
        name: as users know it, of a task of an array (`123_4`) or a part of a heterogeneous job (`123+1`);
            else empty.
        run: the elastic run that it belongs to; its user said so, who may say anything.
    """

    cluster: str
    dbindex: int
    job_id: int
    user: str
    account: str
    partition: str
    qos: str
    submitted: int
    start: int | None
    end: int | None
    suspended_seconds: int
    state: str
    cpus: int
    memory_mb: int
    gpus: int
    shards: int
    nodes: str
    reservation: str
    name: str = ""
    run: str = ""


@dataclass(frozen=True)
class Window:
    """What sacct answered about some UTC days, as `parse` reads it; `end` is exclusive."""

    first: date
    end: date
    text: str


def read_windows(
    first: date, end: date, *, sacct: Path | str = "sacct", timeout: float = 300.0
) -> Iterator[Window]:
    """What sacct says of a span of days, a window at a time; a job is in each window that it ran in.

    One query runs at a time, because slurmdbd fails on results over 3 GiB and concurrent large queries have
    brought databases down. The first covers a day; the next twice as many as long as answers stay small,
    else a day again: a quiet month takes a handful of queries (each costs 0.3 s before slurmdbd does
    anything), a busy one stays at days.

    Args:
        first, end: UTC days; `end` is exclusive.
        sacct: the program.
        timeout: seconds for each window.

    Raises:
        UnreachableError: slurmdbd does not answer.
        CommandError: sacct failed otherwise.
    """
    day, days = first, 1
    while day < end:
        after = min(day + timedelta(days=days), end)
        text = _query(day, after, sacct, timeout)
        yield Window(day, after, text)
        day, days = after, min(2 * days, LONGEST_WINDOW) if text.count("\n") <= FEW_JOBS else 1


def read_jobs(
    first: date, end: date, *, sacct: Path | str = "sacct", timeout: float = 300.0
) -> Iterator[JobRecord]:
    """Every job that was known in a span of days, each once; asks as `read_windows` does.

    Raises:
        UnreachableError: slurmdbd does not answer.
        CommandError: sacct failed otherwise.
        BudgetError: its output is not what was asked for.
    """
    seen: set[tuple[str, int]] = set()
    for window in read_windows(first, end, sacct=sacct, timeout=timeout):
        for record in parse(window.text):
            if (record.cluster, record.dbindex) not in seen:
                seen.add((record.cluster, record.dbindex))
                yield record


def read_ids(
    ids: Sequence[int], first: date, *, sacct: Path | str = "sacct", timeout: float = 60.0
) -> list[JobRecord]:
    """The jobs with some ids, every run of a requeued one, and all that ever had such an id since a day.

    Args:
        first: UTC day.
        timeout: seconds for each query.

    Raises:
        UnreachableError: slurmdbd does not answer.
        CommandError: sacct failed otherwise.
        BudgetError: its output is not what was asked for.
    """
    found: list[JobRecord] = []
    for place in range(0, len(ids), IDS_AT_ONCE):
        chosen = ",".join(map(str, ids[place : place + IDS_AT_ONCE]))
        whole = arguments(first, first, sacct)
        kept = [word for word in whole if not word.startswith("--endtime=")]
        found += parse(answer([*kept, f"--jobs={chosen}"], timeout))
    return found


def ended_as(job_id: int, *, sacct: Path | str = "sacct", timeout: float = 15.0) -> str:
    """The state of a job as slurmdbd knows it, for example `NODE_FAIL` or `RUNNING`; "" when it knows none.

    Of a job whose processes are still being ended it is the one with which it will have ended; of an array it
    is that of its last task.

    Raises:
        UnreachableError: slurmdbd does not answer.
        CommandError: sacct failed otherwise.
    """
    return next(reversed(states(job_id, sacct=sacct, timeout=timeout)), "")


def states(job_id: int, *, sacct: Path | str = "sacct", timeout: float = 15.0) -> list[str]:
    """The states of a job and of an array's tasks as slurmdbd knows them, a task each; see `ended_as`."""
    return states_of([job_id], sacct=sacct, timeout=timeout).get(job_id, [])


def states_of(
    job_ids: Sequence[int | str], *, sacct: Path | str = "sacct", timeout: float = 15.0
) -> dict[int, list[str]]:
    """As `states`, of many jobs at once, or of tasks (`7_3`) by their array's id; without those that slurmdbd
    does not know."""
    found: dict[int, list[str]] = {}
    for place in range(0, len(job_ids), IDS_AT_ONCE):
        chosen = ",".join(map(str, job_ids[place : place + IDS_AT_ONCE]))
        words = ["--allocations", "--noheader", "--parsable2", "--format=JobID,State", f"--jobs={chosen}"]
        said = answer([str(sacct), *words], timeout)
        for job_id, state in re.findall(r"^(\d+)[^|]*\|(\S+)", said, re.MULTILINE):
            found.setdefault(int(job_id), []).append(state)
    return found


def arguments(first: date, end: date, sacct: Path | str = "sacct") -> list[str]:
    """The command line that asks for all jobs of some UTC days; `end` is exclusive."""
    return [
        *(str(sacct), "--allusers", "--allocations", "--duplicates", "--parsable2", "--noheader"),
        "--noconvert",
        f"--starttime={first.isoformat()}T00:00:00",
        f"--endtime={end.isoformat()}T00:00:00",
        f"--format={','.join(FIELDS)}",
    ]


def parse(text: str) -> tuple[JobRecord, ...]:
    """Job records out of sacct's output, in its order: `FIELDS`, and after them a job's name and run, or not.

    Raises:
        BudgetError: a line does not have the fields that were asked for; says which.
    """
    return tuple(_record(number, line) for number, line in enumerate(filter(None, text.split("\n")), 1))


def expand(nodes: str) -> tuple[str, ...]:
    """Node names of a folded host list (`gpu-[1-3]`), sorted as Slurm sorts them."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    return tuple(NodeSet(nodes, resolver=RESOLVER_NOGROUP)) if nodes else ()


def duration(text: str) -> int:
    """Seconds of Slurm's `[days-[hours:]]minutes:seconds[.fraction]`, for example `32-00:00:00`.

    Raises:
        ValueError: it is none.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration")
    days, hours, minutes, seconds = (match[n] or "0" for n in range(1, 5))
    return ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(Decimal(seconds))


def tres(text: str) -> dict[str, int]:
    """A TRES list as numbers, memory in megabytes: `cpu=8,gres/gpu=4,mem=64G,node=1`.

    Raises:
        ValueError: an entry is not `name=number`.
    """
    result: dict[str, int] = {}
    for entry in filter(None, text.split(",")):
        name, _, value = entry.rpartition("=")
        match = _SIZE.fullmatch(value)
        if not name or match is None:
            raise ValueError(f"{entry!r} is not a TRES")
        result[name] = int(Decimal(match[1]) * (_SIZES[match[2]] if name == "mem" else 1))
    return result


def _query(first: date, end: date, sacct: Path | str, timeout: float) -> str:
    mark = f"<{secrets.token_hex(16)}>"
    words = [*arguments(first, end, sacct)[:-1], f"--format={','.join((*FIELDS, *LABELS))}"]
    return without_mark(answer([*words, f"--delimiter={mark}"], timeout), mark)


def without_mark(text: str, mark: str) -> str:
    """Lines that `parse` reads out of lines whose fields a mark divides, `LABELS` the last.

    What follows a line break in a comment has no mark and is left out, whatever it looks like. An answer
    without any mark is of a sacct that did not take it, and has no comments.
    """
    if mark not in text:
        return text
    return "".join(_plain(line, mark) for line in text.split("\n") if mark in line)


def _plain(line: str, mark: str) -> str:
    values = line.split(mark)
    if len(values) != len(FIELDS) + len(LABELS):
        return f"{'|'.join(values)}\n"
    name, run = _NAME.fullmatch(values[-2]), _RUN.fullmatch(values[-1])
    labels = (name[0] if name else "", run[1] if run else "")
    return f"{'|'.join((*values[: len(FIELDS)], *labels))}\n"


def answer(argv: list[str], timeout: float) -> str:
    """What sacct or sacctmgr prints, with times in UTC.

    Raises:
        UnreachableError: slurmdbd does not answer.
        CommandError: the program failed otherwise.
    """
    environment = asking() | {"TZ": "UTC"}
    try:
        return run(argv, timeout=timeout, env=environment).stdout
    except CommandError as error:
        if error.code is not None and _AWAY.search(error.stderr_tail):
            raise UnreachableError(
                f"slurmdbd does not answer: {error.stderr_tail.splitlines()[-1]}",
                "check that slurmdbd runs (sacctmgr ping), then try again; nothing was changed",
            ) from None
        raise


def _record(number: int, line: str) -> JobRecord:
    values = line.split("|")
    if len(values) == len(FIELDS):
        values += [""] * len(LABELS)
    if len(values) != len(FIELDS) + len(LABELS):
        raise _malformed(number, f"{len(values)} fields instead of {len(FIELDS)}", line)
    fields = dict(zip((*FIELDS, *LABELS), values, strict=True))
    try:
        return _from_fields(fields)
    except ValueError as error:
        raise _malformed(number, str(error), line) from None


def _from_fields(fields: Mapping[str, str]) -> JobRecord:
    resources = tres(fields["AllocTRES"])
    return JobRecord(
        cluster=fields["Cluster"],
        dbindex=int(fields["DBIndex"]),
        job_id=int(fields["JobIDRaw"]),
        user=fields["User"],
        account=fields["Account"],
        partition=fields["Partition"],
        qos=fields["QOS"],
        submitted=_seconds(fields["Submit"]) or 0,
        start=_seconds(fields["Start"]),
        end=_seconds(fields["End"]),
        suspended_seconds=duration(fields["Suspended"]),
        state=fields["State"].partition(" by ")[0],
        cpus=resources.get("cpu", 0),
        memory_mb=resources.get("mem", 0),
        gpus=_gres(resources, "gpu"),
        shards=_gres(resources, "shard"),
        nodes="" if fields["NodeList"] in _UNKNOWN else fields["NodeList"],
        reservation=fields["Reservation"],
        name=fields["JobID"],
        run=fields["Comment"],
    )


def _gres(resources: Mapping[str, int], name: str) -> int:
    """How many of a GRES; typed entries (`gres/gpu:a100`) repeat the plain one, never added."""
    plain = f"gres/{name}"
    typed = sum(count for entry, count in resources.items() if entry.startswith(f"{plain}:"))
    return resources.get(plain, typed)


def _seconds(text: str) -> int | None:
    if text in _UNKNOWN:
        return None
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp())


def _malformed(number: int, what: str, line: str) -> BudgetError:
    return BudgetError(
        f"line {number} of sacct's output cannot be read ({what}): {line[:120]!r}",
        "check that `sacct --version` is a supported Slurm release",
    )
