"""A past for a sandbox: made-up jobs, given to the real slurmdbd as an archive is put back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from hpctools.budget.month import DAY_SECONDS, Month, day_of, day_start, moment
from hpctools.errors import CommandError, SandboxError, UsageError
from hpctools.sandbox import archive, past, record
from hpctools.sandbox.blueprint import Blueprint
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.past import PastJob

SEED = 1
MARK = "made up by hpctools sandbox history"
MOST_DAYS = 400
QUIET_SECONDS = 3600

# slurm.h, enum job_states
_STATES = {"COMPLETED": 3, "CANCELLED": 4, "FAILED": 5, "TIMEOUT": 6}
# slurmdb.h: started by the main scheduler, and its start was reported.
_FLAGS = 0x4 | 0x10
_EXIT_1 = 1 << 8


def load(sandbox: Sandbox, now: int, days: int | None = None, seed: int = SEED) -> int:
    """Give a running sandbox finished jobs from before it was there; they never ran.

    They end an hour before `now`, and before any real job was submitted. Each says in AdminComment what it
    is. A sandbox that has such jobs already gets no more, whatever the arguments.

    Args:
        now: Unix seconds.
        days: how far back; to the first of the month before when None.
        seed: the same seed gives the same past.

    Returns:
        how many jobs were added.

    Raises:
        UsageError: more or fewer days than may be.
        SandboxError: no sandbox runs, or slurmdbd does not take them.
    """
    if days is not None and not 1 <= days <= MOST_DAYS:
        raise UsageError(f"cannot make up {days} days", f"ask for 1 to {MOST_DAYS} with --days")
    sandbox.running()
    since = now - days * DAY_SECONDS if days else day_start(Month.of(day_of(now)).previous.start)
    with record.locked(sandbox.layout.lock):
        # As far back as an earlier call may have reached, whatever is asked for this time.
        known = _ask(sandbox, now - MOST_DAYS * DAY_SECONDS)
        if any(job_id >= past.FIRST_JOB_ID for job_id in known.submitted):
            return 0
        blueprint = sandbox.blueprint()
        until = min([now - QUIET_SECONDS, *known.submitted.values()])
        jobs = past.make(blueprint, since, until, seed)
        if jobs:
            rows = [_row(job, blueprint, known) for job in jobs]
            _give(sandbox, archive.pack(blueprint.site.cluster.name, now, rows))
    return len(jobs)


@dataclass(frozen=True)
class _Known:
    """What slurmdbd knows.

    Attributes:
        associations: ids by account and user.
        qos: ids by name.
        tres: ids by name, `gres/gpu` for example.
        submitted: of all jobs, by job id; Unix seconds.
    """

    associations: Mapping[tuple[str, str], str]
    qos: Mapping[str, str]
    tres: Mapping[str, str]
    submitted: Mapping[int, int]


def _ask(sandbox: Sandbox, since: int) -> _Known:
    """All questions at once: each waits 0.35 s for delayed acknowledgements, not for slurmdbd."""
    begin = moment(since).strftime("%Y-%m-%dT%H:%M:%S")
    show = "sacctmgr --noheader --parsable2 show"
    commands = (
        f"{show} assoc format=id,account,user",
        f"{show} qos format=id,name",
        f"{show} tres format=id,type,name",
        "env TZ=UTC SLURM_TIME_FORMAT=%s sacct --noheader --parsable2 --allusers --allocations"
        f" --duplicates --starttime={begin} --endtime=now --format=jobidraw,submit",
    )
    with ThreadPoolExecutor(len(commands)) as pool:
        asked = pool.map(lambda command: sandbox.inside(*shlex.split(command)).stdout, commands)
        assoc, qos, tres, jobs = ([line.split("|") for line in text.splitlines()] for text in asked)
    return _Known(
        associations={(account, user): number for number, account, user in assoc},
        qos={name: number for number, name in qos},
        tres={f"{kind}/{name}" if name else kind: number for number, kind, name in tres},
        submitted={int(job_id): int(submitted) for job_id, submitted in jobs},
    )


def _row(job: PastJob, blueprint: Blueprint, known: _Known) -> dict[str, str | int | None]:
    """A job as the job table has it."""
    shape = job.shape
    uid = next(person.uid for person in blueprint.persons if person.name == job.user)
    held = _tres(known, cpu=shape.cpus, mem=shape.memory_mb, node=len(shape.nodes), gpu=shape.gpus)
    return {
        "account": job.account,
        "admin_comment": MARK,
        "nodes_alloc": len(shape.nodes),
        "id_assoc": known.associations[job.account, job.user],
        "exit_code": _EXIT_1 if shape.state == "FAILED" else 0,
        "flags": _FLAGS,
        "timelimit": shape.limit_minutes,
        "time_submit": shape.submitted,
        "time_eligible": shape.submitted,
        "time_start": shape.start,
        "time_end": shape.end,
        "mod_time": shape.end,
        "id_user": uid,
        "id_group": uid,
        "id_job": job.id,
        "kill_requid": uid if shape.state == "CANCELLED" else None,
        "job_name": job.name,
        "nodelist": str(NodeSet.fromlist(shape.nodes, resolver=RESOLVER_NOGROUP)),
        "node_inx": _indices(shape.nodes, blueprint.compute_hosts),
        "partition": job.partition,
        "priority": blueprint.site.tiers[job.tier].priority,
        "id_qos": known.qos[job.tier],
        "cpus_req": shape.cpus,
        "mem_req": shape.memory_mb // len(shape.nodes),
        "state": _STATES[shape.state],
        "submit_line": f"sbatch --partition={job.partition} --qos={job.tier} {job.name}.sh",
        "tres_alloc": held,
        "tres_req": held,
        "work_dir": f"/home/{job.user}",
    }


def _tres(known: _Known, *, gpu: int, **counts: int) -> str:
    """A TRES list by id, as slurmdbd stores it."""
    wanted = {**counts, "gres/gpu": gpu} if gpu else counts
    return ",".join(f"{known.tres[name]}={count}" for name, count in wanted.items())


def _indices(nodes: Sequence[str], hosts: Sequence[str]) -> str:
    """The nodes' places in slurm.conf's order, folded: `0-1`."""
    places = NodeSet.fromlist([f"n{hosts.index(node)}" for node in nodes], resolver=RESOLVER_NOGROUP)
    return str(places).removeprefix("n").strip("[]")


def _give(sandbox: Sandbox, data: bytes) -> None:
    """Have slurmdbd load an archive; all of it or nothing."""
    with TemporaryDirectory(dir=sandbox.layout.tree / "var" / "spool", prefix="past-") as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, "jobs")
        file.write_bytes(data)
        file.chmod(0o644)
        inside = Path("/var/spool", file.parent.name, file.name)
        try:
            sandbox.inside("sacctmgr", "--immediate", "archive", "load", f"file={inside}")
        except CommandError as error:
            raise SandboxError(
                f"slurmdbd does not take the archive of jobs: {error.stderr_tail}",
                "see hpctools sandbox logs slurmdbd",
            ) from None
