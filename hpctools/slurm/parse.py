"""What Slurm's commands print, read into records: pure."""

from __future__ import annotations

import re
from functools import lru_cache

from hpctools.errors import ReleaseError
from hpctools.slurm import states
from hpctools.slurm.types import Job, Partition
from hpctools.slurm.versions import gives_whole_nodes

FIELD, RECORD = "\x1f", "\x1e"
# squeue(1), --format; the separators can stand in no name that a person types.
JOB_FIELDS = ("%A", "%j", "%u", "%a", "%P", "%q", "%T", "%r", "%N", "%k", "%V", "%S", "%l")
JOB_FORMAT = FIELD.join(JOB_FIELDS) + RECORD

DEPENDENCY_FORMAT = f"%A{FIELD}%E{RECORD}"


_STATE = JOB_FIELDS.index("%T")
_COMMENT = JOB_FIELDS.index("%k")
_STATES = re.compile("|".join(sorted(states.ALL)))
_LONGEST_WORDS = 100


def jobs(text: str, *, everybodys: bool = False) -> list[Job]:
    """Read `squeue --noheader --format=JOB_FORMAT` with times as Unix seconds (SLURM_TIME_FORMAT=%s).

    Args:
        everybodys: leave out a job of which the record is no such one, whoever gave it what name: it may not
            hide the others. Of a person's own jobs, or named ones, none may be missed.

    Raises:
        ReleaseError: it is not what squeue prints; names the words that are not.
    """
    *records, rest = re.split(rf"{RECORD}(?:\n|\Z)", text)
    if rest.strip():  # cut off, or not squeue's: a job that is not told of would be taken to be over
        raise unreadable("squeue", rest)
    read = [_job_or_none(record.lstrip("\n")) for record in records]
    if None in read and not everybodys:
        raise unreadable("squeue", records[read.index(None)])
    return [job for job in read if job is not None]


def unreadable(command: str, words: str) -> ReleaseError:
    """What one of Slurm's commands has printed is not what was asked for."""
    first = words.strip("\n")[:_LONGEST_WORDS]
    return ReleaseError(
        f"what {command} printed cannot be read: {first!r}",
        f"run {command} here and see who prints that: what stands in its place may add nothing to its "
        "standard output, and Slurm's release is to be one from 22.05 to 26.05",
    )


def _job_or_none(record: str) -> Job | None:
    try:
        return _job(_aligned(record.split(FIELD)))
    except (ValueError, ReleaseError):
        return None


def _aligned(fields: list[str]) -> list[str]:
    """As many fields as were asked for, also of a job that has separators in its name or comment.

    Raises:
        ValueError: they are too few, or the state does not tell which of the two has them.
    """
    more = len(fields) - len(JOB_FIELDS)
    fitting = [at for at in range(more + 1) if _STATES.fullmatch(fields[_STATE + at])] if more else [0]
    if len(fitting) != 1:
        raise ValueError
    (at,) = fitting
    name, comment = fields[1 : 2 + at], fields[_COMMENT + at : _COMMENT + more + 1]
    between, after = fields[2 + at : _COMMENT + at], fields[_COMMENT + more + 1 :]
    return [fields[0], FIELD.join(name), *between, FIELD.join(comment), *after]


def _job(fields: list[str]) -> Job:
    number, name, user, account, partition, qos, state, reason, nodes, comment, submitted, started, limit = (
        fields
    )
    return Job(
        id=int(number),
        name=name,
        user=user,
        account=account,
        partition=partition,
        qos=qos,
        state=state,
        reason=reason,
        nodes=unfold(nodes),
        comment="" if comment == "(null)" else comment,
        submitted=_seconds(submitted),
        # Of a job that waits squeue prints a forecast.
        started=None if states.is_waiting(state) else _seconds(started),
        time_limit=minutes(limit),
    )


@lru_cache(maxsize=4096)  # many jobs are on the same nodes: 10,000 on 301 took 2.6 s
def unfold(folded: str) -> tuple[str, ...]:
    """The names of a folded host list, in its order: `gpu-[1-2]` gives `gpu-1`, `gpu-2`.

    Raises:
        ReleaseError: it is none.
    """
    if not folded or folded == "(null)":
        return ()
    if "[" not in folded:
        return tuple(folded.split(","))
    from ClusterShell.NodeSet import NodeSet, NodeSetException  # slow to import, and rarely needed

    try:
        return tuple(NodeSet(folded))
    except NodeSetException:
        raise unreadable("Slurm", folded) from None


def dependencies(text: str) -> dict[int, str]:
    """Read `squeue --noheader --format=DEPENDENCY_FORMAT`, by job id; jobs without a dependency are left out.

    squeue writes behind each part of one how it stands: `afterok:7(unfulfilled),afterany:8(failed)`.

    Raises:
        ReleaseError: it is not what squeue prints; names the words that are not.
    """
    *records, rest = (record.strip("\n") for record in text.split(RECORD))
    wrong = next((each for each in records if not re.match(rf"\d+{FIELD}", each)), rest)
    if wrong:
        raise unreadable("squeue", wrong)
    found = {int(number): value for number, _, value in (each.partition(FIELD) for each in records)}
    told = {number: _still_awaited(re.split("([,?])", value)) for number, value in found.items()}
    return {number: value for number, value in told.items() if value not in ("", "(null)")}


def _still_awaited(parts: list[str]) -> str:
    separator = parts[1] if len(parts) > 1 else ","
    left = (part for part in parts[::2] if not part.endswith("(fulfilled)"))
    return separator.join(re.sub(r"\((unfulfilled|failed)\)$", "", part) for part in left)


def _seconds(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def minutes(text: str) -> int | None:
    """Read a time limit as Slurm prints it (`[days-]hours:minutes:seconds`); None for UNLIMITED.

    Returns:
        Minutes, rounded up, since limits are whole minutes and 0 would mean none.
    """
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if not found:
        return None
    days, hours, mins, secs = (int(part or 0) for part in found.groups())
    return (days * 24 + hours) * 60 + mins + (1 if secs else 0)


def partitions(text: str) -> list[Partition]:
    """Read `scontrol --oneliner show partition`.

    Raises:
        ReleaseError: a partition is not told as these releases do; names it.
    """
    return [_partition(line) for line in text.splitlines() if line.startswith("PartitionName=")]


def _partition(line: str) -> Partition:
    try:
        return _partition_of(line)
    except ValueError:  # a number that is none
        raise unreadable("scontrol", line) from None


def _partition_of(line: str) -> Partition:
    fields = dict(part.partition("=")[::2] for part in line.split() if "=" in part)
    most = fields.get("MaxNodes", "UNLIMITED")
    return Partition(
        name=fields["PartitionName"],
        total_nodes=int(fields.get("TotalNodes", "0")),
        max_nodes=int(most) if most.isdigit() else None,
        is_default=fields.get("Default") == "YES",
        state=fields.get("State", "UP"),
        nodes=unfold(fields.get("Nodes", "")),
        allow_accounts=allowed(fields.get("AllowAccounts", "ALL")),
        allow_qos=allowed(fields.get("AllowQos", "ALL")),
        exclusive=gives_whole_nodes(fields),
        deny_accounts=allowed(fields.get("DenyAccounts", "")),
        deny_qos=allowed(fields.get("DenyQos", "")),
        submit_hosts=_submit_hosts(fields.get("AllocNodes", "ALL")),
        min_nodes=int(fields.get("MinNodes", "0")),
    )


def _submit_hosts(text: str) -> tuple[str, ...]:
    return unfold(text) if allowed(text) else ()


def allowed(text: str) -> tuple[str, ...]:
    """The names of a list that may be `ALL` or nothing, both of which are no list: ()."""
    return () if text in ("ALL", "", "(null)") else tuple(text.split(","))


def config(text: str) -> dict[str, str]:
    """Read `scontrol show config`: values by key as it spells them, the cgroup and MPI sections among them.

    Its first line, "Configuration data as of", is left out: it is when slurmctld answered, not when it read
    its files (22.05.8 and 24.11.5, measured).
    """
    found = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator:
            found[key.strip()] = value.strip()
    return found
