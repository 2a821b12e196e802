"""From an intent and the facts to an elastic run: pure. What `--dry-run` prints, `execute` carries out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from hpctools.elastic.spec import RunSpec
from hpctools.errors import SubmitError
from hpctools.slurm.types import Partition
from hpctools.submit import batch, inheritance
from hpctools.submit.intent import Intent
from hpctools.submit.nodes import NodeSizes
from hpctools.submit.plain import command_name
from hpctools.submit.script import command_launcher, launchers


@dataclass(frozen=True)
class BatchFile:
    """A file of the run folder that Slurm or the agent executes."""

    name: str
    text: str


@dataclass(frozen=True)
class ElasticSubmission:
    """An elastic run about to be: its folder and its first job.

    Attributes:
        folder: the run folder, which does not exist yet.
        files: the batch scripts in it, and a copy of the user's script.
        options: sbatch's, for the baseline job.
        script: path of the baseline job's batch script.
    """

    spec: RunSpec
    folder: Path
    files: tuple[BatchFile, ...]
    options: tuple[str, ...]
    script: Path


@dataclass(frozen=True)
class Facts:
    """What an elastic plan needs to know of the world.

    Attributes:
        python: the interpreter that runs agent and coordinator on the nodes.
        runs_root: where the user's run folders lie.
        suffix: six hexadecimal digits that make the run's id unique.
        created: the present, ISO 8601, UTC.
        partitions: the cluster's; None when they are not known, and then not checked.
    """

    user: str
    python: str
    runs_root: Path
    suffix: str
    created: str
    partitions: tuple[Partition, ...] | None


def run_comment(run_id: str) -> str:
    """The comment by which the queue and the accounting show a run's jobs as one."""
    return f"hp-run:{run_id}"


def plan_elastic(intent: Intent, nodes: NodeSizes, facts: Facts) -> ElasticSubmission:
    """The folder and the jobs of an elastic run of so many nodes.

    Raises:
        SubmitError: the intent cannot be elastic, or the cluster is too small for it.
    """
    inheritance.check_options(intent)
    _check_launchers(intent)
    if facts.partitions is not None:
        _check_size(nodes, intent.effective("partition"), facts.partitions)
    name = intent.effective("job-name") or _default_name(intent)
    run_id = f"{_id_stem(name)}-{facts.suffix}"
    folder = facts.runs_root / run_id
    spec = _spec(intent, nodes, facts, name, run_id)
    return ElasticSubmission(
        spec=spec,
        folder=folder,
        files=_files(intent, nodes, facts.python, spec, folder),
        options=inheritance.baseline_options(intent, nodes, name, run_comment(run_id)),
        script=folder / "baseline.sh",
    )


def _spec(intent: Intent, nodes: NodeSizes, facts: Facts, name: str, run_id: str) -> RunSpec:
    folder = facts.runs_root / run_id
    workdir = str(intent.cwd / (intent.effective("chdir") or ""))
    # In a file name pattern of Slurm, %% is a percent sign.
    log = str(folder / "logs").replace("%", "%%") + "/replica-%j.out"
    return RunSpec(
        id=run_id,
        name=name,
        user=facts.user,
        cluster="",
        min_nodes=nodes.minimum,
        max_nodes=nodes.maximum,
        workers_per_node=inheritance.workers_per_node(intent),
        command=_command(intent, folder),
        workdir=workdir,
        replica_options=inheritance.replica_options(intent, name, run_comment(run_id), workdir, log),
        replica_script=str(folder / "replica.sh"),
        created=facts.created,
    )


def _command(intent: Intent, folder: Path) -> tuple[str, ...]:
    if intent.command:
        return intent.command
    wrap = intent.effective("wrap")
    if wrap is not None:
        return ("/bin/sh", "-c", wrap)
    return (str(folder / "script"), *intent.arguments)


def _files(
    intent: Intent, nodes: NodeSizes, python: str, spec: RunSpec, folder: Path
) -> tuple[BatchFile, ...]:
    options = inheritance.script_options(intent)
    jobs = (
        BatchFile("baseline.sh", batch.baseline(spec.id, str(folder), python, nodes, options)),
        BatchFile("replica.sh", batch.replica(spec.id, str(folder), python)),
    )
    return (*jobs, BatchFile("script", intent.script.text)) if intent.script else jobs


def _check_launchers(intent: Intent) -> None:
    remedy = "the agent starts your program once per worker, so start the program itself"
    wrap = intent.effective("wrap")
    found = command_launcher(_command(intent, Path())) if intent.command or wrap is not None else None
    if found:
        raise SubmitError(f"{found} starts processes itself, which an elastic run's agent does", remedy)
    for launcher in launchers(intent.script) if intent.script else ():
        name = intent.script.name if intent.script else ""
        raise SubmitError(
            f"{name} line {launcher.line}: {launcher.name} starts processes itself, which an elastic "
            "run's agent does",
            remedy,
        )


def _check_size(nodes: NodeSizes, asked: str | None, partitions: Sequence[Partition]) -> None:
    chosen = _chosen(asked, partitions)
    if not chosen:
        return
    largest = max(chosen, key=lambda partition: partition.total_nodes)
    if nodes.maximum > largest.total_nodes:
        raise SubmitError(
            f"--nodes {nodes}: partition {largest.name} has only {largest.total_nodes} nodes",
            f"ask for at most {largest.total_nodes}, or for another partition (see `sinfo -s`)",
        )
    job_limits = [partition.max_nodes for partition in chosen]
    limit = None if None in job_limits else max(limit for limit in job_limits if limit is not None)
    if limit is not None and nodes.minimum > limit:
        raise SubmitError(
            f"--nodes {nodes}: a job in partition {largest.name} may have at most {limit} nodes",
            f"lower the minimum to {limit}",
        )


def _chosen(asked: str | None, partitions: Sequence[Partition]) -> list[Partition]:
    if asked is None:
        return [partition for partition in partitions if partition.is_default]
    by_name = {partition.name: partition for partition in partitions}
    for name in asked.split(","):
        if name not in by_name:
            raise SubmitError(
                f"there is no partition {name}", f"this cluster has: {', '.join(sorted(by_name))}"
            )
    return [by_name[name] for name in asked.split(",")]


def _default_name(intent: Intent) -> str:
    if intent.command:
        return command_name(intent.command)
    if intent.script_word:
        return PurePath(intent.script_word).name
    return "wrap" if intent.script is None else "sbatch"


def _id_stem(name: str) -> str:
    stem = re.sub(r"\.(py|sh|bash|sbatch|slurm|job)$", "", name)
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", stem)[:40].strip("-.") or "run"
