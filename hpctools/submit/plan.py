"""From an intent and the facts to an elastic run: pure. What `--dry-run` prints, `execute` carries out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from hpctools.elastic.policy import ElasticPolicy
from hpctools.elastic.spec import MODES, RunSpec
from hpctools.elastic_qos import ELASTIC_QOS
from hpctools.errors import SubmitError
from hpctools.slurm.limits import Limits
from hpctools.slurm.sbatch_options import Option
from hpctools.slurm.types import Partition
from hpctools.submit import batch, fitting, inheritance, torchrun
from hpctools.submit.allowance import check_allowance, check_each_qos, replica_minutes
from hpctools.submit.arrays import Array, array_of, with_index
from hpctools.submit.budget import Budget, check_budget
from hpctools.submit.intent import Intent
from hpctools.submit.nodes import NodeSizes
from hpctools.submit.partitions import check_partitions, only_from
from hpctools.submit.plain import command_name
from hpctools.submit.preemption import any_replica_first, short_grace, takers_of, who_may_preempt
from hpctools.submit.preloading import preload_of
from hpctools.submit.request import Request
from hpctools.submit.suffix import id_stem
from hpctools.submit.times import is_unlimited, minutes_of

if TYPE_CHECKING:
    from hpctools.submit.policy_file import PolicyFile

# Without the #SBATCH lines of the user's script, which may ask for what only the first job can have.
_NEXT_BASELINE = "next-baseline.sh"
_SUBMIT_FOLDER = "SLURM_SUBMIT_DIR"


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
        follows: of an array with a limit: id of the run that must have ended before; else empty.
    """

    spec: RunSpec
    folder: Path
    files: tuple[BatchFile, ...]
    options: tuple[str, ...]
    script: Path
    follows: str = ""


@dataclass(frozen=True)
class Facts:
    """What an elastic plan needs to know of the world.

    Attributes:
        python: the interpreter that runs agent and coordinator on the nodes.
        runs_root: where the user's run folders lie.
        suffix: six hexadecimal digits that make the run's id unique.
        created: the present, ISO 8601, UTC.
        partitions: the cluster's; None when they are not known, and then not checked.
        limits: what the user may have; None when that is not known, and then not checked.
        policy: what the file of `--elastic-policy` says; None without one.
        resumed_from: absolute path of the run folder that `--resume` names; empty without.
        budget: of the account that is charged; None when it is not known, and then not checked.
    """

    user: str
    python: str
    runs_root: Path
    suffix: str
    created: str
    partitions: tuple[Partition, ...] | None
    limits: Limits | None = None
    policy: PolicyFile | None = None
    resumed_from: str = ""
    budget: Budget | None = None


def run_comment(run_id: str) -> str:
    """The comment by which the queue and the accounting show a run's jobs as one."""
    return f"hp-run:{run_id}"


def plan_elastic(intent: Intent, facts: Facts) -> tuple[ElasticSubmission, ...]:
    """The folder and the jobs of an elastic run; of `--array`, one run for each index.

    Raises:
        SubmitError: the intent cannot be elastic, or the cluster does not allow it.
        UsageError: two places say how large it is, or none.
    """
    inheritance.check_options(intent)
    intent = torchrun.unwrapped(intent)
    fitting.check_saving(intent, facts.policy)
    runs_command = intent.command or intent.effective("wrap") is not None
    fitting.check_launchers(intent, _command(intent, Path()) if runs_command else ())
    preload_of(intent, facts.policy)
    sizes = fitting.agreed_sizes(intent.nodes, facts.policy)
    array = array_of(intent)
    fitting.check_places(facts.policy, array)
    request = _request(intent, sizes, facts, array)
    asked = intent.effective("partition")
    check_each_qos(request, facts.limits, lambda each: _check_cluster(each, asked, facts))
    if facts.budget is not None:
        check_budget(facts.budget)
    if array is None:
        return (_run(intent, sizes, facts),)
    return tuple(_run(intent, sizes, facts, array, place) for place in range(len(array.indices)))


def _check_cluster(request: Request, partition: str | None, facts: Facts) -> None:
    if facts.partitions is not None:
        check_partitions(request, partition, facts.partitions, facts.limits)
    if facts.limits is not None:
        check_allowance(request, facts.limits)


def cautions(intent: Intent, facts: Facts) -> tuple[str, ...]:
    """What whoever submits should know although it is allowed, one line each.

    Raises:
        SubmitError, UsageError: as `plan_elastic`, which is called first.
    """
    intent = torchrun.unwrapped(intent)
    request = _request(intent, fitting.agreed_sizes(intent.nodes, facts.policy), facts)
    asked = (who_may_preempt, short_grace, any_replica_first)
    told = [ask(request, facts.limits) for ask in asked] if facts.limits else []
    if facts.partitions is not None:
        told.append(only_from(request, intent.effective("partition"), facts.partitions))
    return tuple(said for said in (*told, torchrun.without_effect(intent)) if said is not None)


def _run(
    intent: Intent, sizes: NodeSizes, facts: Facts, array: Array | None = None, place: int = 0
) -> ElasticSubmission:
    name = intent.effective("job-name") or _default_name(intent)
    group = f"{id_stem(name)}-{facts.suffix}"
    run_id = f"{group}_{array.indices[place]}" if array else group
    if array:
        intent = _of_index(intent, array.indices[place])
    folder = facts.runs_root / run_id
    spec = _spec(intent, sizes, facts, name, run_id)
    # sbatch tells each job where it was submitted, and the coordinator's is in the run folder.
    environment = {_SUBMIT_FOLDER: str(intent.cwd), **(array.environment(place, group) if array else {})}
    before = array.before(place) if array else None
    return ElasticSubmission(
        spec=spec,
        folder=folder,
        files=_files(intent, sizes, facts.python, spec, folder, environment),
        options=_baseline_options(intent, sizes, name, run_id, waits=before is not None),
        script=folder / "baseline.sh",
        follows=f"{group}_{array.indices[before]}" if array and before is not None else "",
    )


def _baseline_options(
    intent: Intent, sizes: NodeSizes, name: str, run_id: str, *, waits: bool
) -> tuple[str, ...]:
    options = inheritance.baseline_options(intent, sizes, name, run_comment(run_id))
    own = intent.effective("dependency") if waits else None
    if own and "?" in own:
        raise SubmitError(
            f"--dependency={own} cannot be joined with the limit of --array, which is a dependency, too",
            "separate with `,` instead of `?`, or leave out the limit (%N)",
        )
    # The command line takes the place of the script's line, so it has to say it again.
    return (*options, f"--dependency={own}") if own else options


def _of_index(intent: Intent, index: int) -> Intent:
    directives = tuple(
        replace(line, options=tuple(with_index(option, index) for option in line.options))
        for line in intent.directives
    )
    # A variable is sbatch's, which knows no index: what it means for this one is said in words.
    meant = [with_index(each, index) for each in intent.environment]
    stated = [each for each in meant if each not in intent.environment]
    options = (*stated, *(with_index(each, index) for each in intent.options))
    if index in intent.awaited:
        options = (*options, Option("dependency", intent.awaited[index]))  # sbatch takes the last one
    return replace(intent, options=options, directives=directives)


def _spec(intent: Intent, sizes: NodeSizes, facts: Facts, name: str, run_id: str) -> RunSpec:
    folder = facts.runs_root / run_id
    workdir = str(intent.cwd / (intent.effective("chdir") or ""))
    # In a file name pattern of Slurm, %% is a percent sign.
    log = str(folder / "logs").replace("%", "%%") + "/replica-%j.out"
    comment = run_comment(run_id)
    minutes = _minutes(intent)
    request = _request(intent, sizes, facts)
    longest = [each for each in (minutes, replica_minutes(request, facts.limits)) if each is not None]
    policy = facts.policy.policy(sizes.totals) if facts.policy else ElasticPolicy(sizes.totals)
    return RunSpec(
        id=run_id,
        name=name,
        user=facts.user,
        cluster="",
        min_nodes=sizes.minimum,
        max_nodes=sizes.maximum,
        workers_per_node=inheritance.workers_per_node(intent),
        command=_command(intent, folder),
        workdir=workdir,
        replica_options=inheritance.replica_options(
            intent, name, comment, workdir, log, min(longest, default=None)
        ),
        replica_script=str(folder / "replica.sh"),
        created=facts.created,
        grace_seconds=_grace(request, facts.limits),
        kill_wait_s=RunSpec.kill_wait_s if facts.limits is None else float(facts.limits.kill_wait),
        sizes=() if sizes.are_all_between else sizes.totals,
        mode=intent.settings.get("elastic-mode", MODES[0]),
        role=intent.settings.get(torchrun.ROLE, ""),
        policy={**policy.to_json(), "sizes": []} if sizes.are_all_between else policy.to_json(),
        recovery=torchrun.with_restarts(intent, facts.policy.recovery if facts.policy else {}),
        checkpoint=_checkpoint(facts),
        baseline_options=inheritance.next_baseline_options(intent, sizes, name, comment, workdir),
        baseline_script=str(
            folder / (_NEXT_BASELINE if inheritance.script_options(intent) else "baseline.sh")
        ),
        time_limit_s=None if minutes is None else minutes * 60.0,
        resumed_from=facts.resumed_from,
        preload=preload_of(intent, facts.policy),
        takers=takers_of(facts.limits),
    )


def _minutes(intent: Intent) -> int | None:
    asked = intent.effective("time")
    return None if asked is None else minutes_of(asked)


def _grace(request: Request, limits: Limits | None) -> float:
    """Seconds that Slurm leaves a preempted replica; what a policy says of it counts later."""
    if limits is None:
        return RunSpec.grace_seconds
    return float(limits.grace_of(ELASTIC_QOS, request.partitions)[0])


def _checkpoint(facts: Facts) -> dict[str, Any]:
    stated = dict(facts.policy.checkpoint) if facts.policy else {}
    return {**stated, "resumeFrom": facts.resumed_from} if facts.resumed_from else stated


def _request(intent: Intent, sizes: NodeSizes, facts: Facts, array: Array | None = None) -> Request:
    asked, policy = intent.effective("partition"), facts.policy
    defaults = tuple(each.name for each in facts.partitions or () if each.is_default)
    return Request(
        sizes=sizes,
        account=intent.effective("account"),
        qos=intent.effective("qos"),
        partitions=tuple(filter(None, asked.split(","))) if asked else defaults,
        per_node={"cpu": inheritance.cpus_per_node(intent), **inheritance.gpu_tres(intent)},
        minutes=_minutes(intent),
        begins_later=intent.effective("begin") is not None,
        graceful_s=policy.settings.get("graceful_shutdown_s") if policy else None,
        graceful_place=policy.place("elasticPolicy.gracefulShutdownTimeoutInSeconds") if policy else "",
        runs=len(array.indices) if array else 1,
        at_once=array.at_once if array else 1,
        unlimited=is_unlimited(intent.effective("time") or ""),
        whole=intent.wants_whole_nodes,
    )


def _command(intent: Intent, folder: Path) -> tuple[str, ...]:
    if intent.command:
        return intent.command
    wrap = intent.effective("wrap")
    if wrap is not None:
        return ("/bin/sh", "-c", wrap)
    return (str(folder / "script"), *intent.arguments)


def _files(
    intent: Intent, sizes: NodeSizes, python: str, spec: RunSpec, folder: Path, environment: Mapping[str, str]
) -> tuple[BatchFile, ...]:
    options = inheritance.script_options(intent)
    path = str(folder)
    files = [BatchFile("baseline.sh", batch.baseline(spec.id, path, python, sizes, options, environment))]
    if options:
        plain = batch.baseline(spec.id, path, python, sizes, (), environment)
        files.append(BatchFile(_NEXT_BASELINE, plain))
    files.append(BatchFile("replica.sh", batch.replica(spec.id, path, python, environment)))
    if intent.script:
        files.append(BatchFile("script", intent.script.text))
    return tuple(files)


def _default_name(intent: Intent) -> str:
    if intent.command:
        return command_name(intent.command)
    if intent.script_word:
        return PurePath(intent.script_word).name
    return "wrap" if intent.script is None else "sbatch"
