"""Which of the user's sbatch options an elastic run's jobs get."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hpctools.elastic_qos import ELASTIC_QOS
from hpctools.errors import SubmitError
from hpctools.slurm.sbatch_options import ARITIES, Option, foreign_directive
from hpctools.submit.intent import Intent
from hpctools.submit.nodes import NodeSizes

_PER_NODE_TASKS = "say how many workers each node runs: --ntasks-per-node=N"
_PER_NODE_GPUS = "say how many GPUs each node gives: --gpus-per-node=N"
_REFUSED = {
    "ntasks": _PER_NODE_TASKS,
    "ntasks-per-core": _PER_NODE_TASKS,
    "ntasks-per-gpu": _PER_NODE_TASKS,
    "ntasks-per-socket": _PER_NODE_TASKS,
    "ntasks-per-tres": _PER_NODE_TASKS,
    "gpus": _PER_NODE_GPUS,
    "gpus-per-task": _PER_NODE_GPUS,
    "gpus-per-socket": _PER_NODE_GPUS,
    "tres-per-task": _PER_NODE_GPUS,
    "clusters": "submit on a login node of the cluster that shall run it",
    "comment": "the run's jobs are found by their comment; put your words into --wckey or --job-name",
    "external": "an elastic run needs a script or a command",
    "input": "each worker is started with no input; read the file in the program",
    "requeue": "the run replaces lost replica jobs by itself",
    "signal": "before it ends or loses a node the run saves by itself, and a script that asks "
    "elastic_event_detected() is told",
    "test-only": "use --dry-run, or --test-only with --nodes MIN",
    "wait": "follow the run with: hp-status --watch RUN",
}
# What only the first job needs, or what would be wrong on one node of many.
_BASELINE_ONLY = """
    autocomplete batch bb bbf begin contiguous deadline dependency error export export-file get-user-env
    hold ignore-pbs input kill-on-invalid-dep licenses mail-type mail-user no-kill nodefile nodelist
    open-mode output priority reboot spread-job spread-segments consolidate-segments segment
    stepmgr switches time-min use-min-nodes wait-all-nodes
"""
_NEITHER = ("array", "parsable", "quiet", "verbose", "usage", "no-requeue", "nodes", "job-name", "wrap")
_APPEND = "--open-mode=append"
_OTHER_FOR_REPLICAS = ("qos", "chdir", "time")
# Of the first baseline job only: the run has begun, and may not be bound to the node that it has lost.
_ONLY_THE_FIRST = (
    "begin",
    "deadline",
    "dependency",
    "export-file",
    "hold",
    "nodefile",
    "nodelist",
    "time-min",
)
# Where one of these stands in a variable and another in words, sbatch takes that in words (slurm_opt.c,
# validate_options_salloc_sbatch_srun, validate_hint_option); two in words it refuses, and the hint it drops.
_WORDS_BEFORE_VARIABLES = (
    ("mem", "mem-per-cpu", "mem-per-gpu"),
    ("cpus-per-task", "cpus-per-gpu"),
    ("hint", "threads-per-core"),
)
# Of these it takes the last that it reads, and refuses two in words.
_LAST_OF = (("exclusive", "oversubscribe"), ("core-spec", "thread-spec"))
_NOT_FOR_REPLICAS = frozenset((*_BASELINE_ONLY.split(), *_NEITHER, *_OTHER_FOR_REPLICAS))


def check_options(intent: Intent) -> None:
    """Refuse what has no meaning for a run whose size changes.

    Raises:
        SubmitError: names the option, where it stands, and the right word for it.
    """
    if intent.heterogeneous:
        raise SubmitError("an elastic run cannot have heterogeneous components", "remove `:` or hetjob")
    for line in intent.directives:
        if line.rest:
            raise SubmitError(
                f"{intent.script.name if intent.script else 'script'}: {line.rest[0]!r} in an #SBATCH line "
                "is no option",
                "write the value as --option=value",
            )
    _check_foreign(intent)
    for option in intent.all_options:
        if option.name == "array" and _from_variable(option):
            # sbatch would take it for the baseline job, too.
            raise SubmitError(
                f"{option.place}: --array from the environment is not for an elastic run",
                f"{_away(option)} and give --array",
            )
        if option.name in _REFUSED and not _reads_nothing(option):
            raise SubmitError(
                f"{option.place}: --{option.name} is not for an elastic run",
                f"{_away(option)}; {_REFUSED[option.name]}",
            )
    _check_excluded(intent)


def _check_excluded(intent: Intent) -> None:
    """What has a slash sbatch takes for a file of names (verify_node_list in src/common/proc_args.c).

    Later jobs are submitted in another folder, and with names of lost nodes behind it, it is no file.
    """
    given = [option for option in intent.all_options if option.name == "exclude"]
    file = given[-1].value or "" if given else ""
    if "/" in file:
        raise SubmitError(
            f"{given[-1].place}: --exclude={file} names a file, which a run's later jobs do not find",
            f"give the names, on the command line: --exclude=$(paste -sd, {shlex.quote(file)})",
        )


def _reads_nothing(option: Option) -> bool:
    """Whether it is an `--input` that asks for what workers have anyway."""
    return option.name == "input" and (option.value or "").lower() in ("/dev/null", "none")


def _check_foreign(intent: Intent) -> None:
    """Options of PBS and LSF, which sbatch would take and no job of the run would get."""
    line = foreign_directive(intent.script.text) if intent.script else None
    if line is not None and intent.effective("ignore-pbs") is None:
        name = intent.script.name if intent.script else ""
        raise SubmitError(
            f"{name} line {line}: options of PBS or LSF are not for an elastic run",
            "write them as #SBATCH lines, or have them ignored: --ignore-pbs",
        )


def _away(option: Option) -> str:
    """How an option goes, which another word beside it does not take away."""
    if _from_variable(option):
        return f"unset {option.place[1:]}"
    return "leave it out" if option.place == Option.place else "take it out there"


def workers_per_node(intent: Intent) -> int:
    """How many workers the agent starts on each node: torchrun's number, `--ntasks-per-node`, or 1.

    Raises:
        SubmitError: it is no positive number.
    """
    value = intent.settings.get("workers-per-node") or intent.effective("ntasks-per-node")
    if value is None:
        return 1
    if not value.isdecimal() or int(value) < 1:
        raise SubmitError(f"--ntasks-per-node={value} is no number of workers", "give 1 or more")
    return int(value)


def gpus_per_node(intent: Intent) -> int | None:
    """How many GPUs each node gives, by `--gpus-per-node` or `--gres`; None when neither says it."""
    parts = _gpus_asked(intent)
    return sum(count for _, count in map(_kind_and_count, parts)) if parts else None


def gpu_tres(intent: Intent) -> dict[str, int]:
    """The same by the names of TRES: `gres/gpu`, and `gres/gpu:a100` of each type that is named."""
    gpus = gpus_per_node(intent)
    found = Counter({} if gpus is None else {"gres/gpu": gpus})
    for kind, count in map(_kind_and_count, _gpus_asked(intent)):
        found.update({f"gres/gpu:{kind}": count} if kind else {})
    return dict(found)


def _gpus_asked(intent: Intent) -> list[str]:
    """What `--gpus-per-node` or `--gres` says of GPUs, each as `4`, `a100:4`, `a100` or nothing: one."""
    asked = intent.effective("gpus-per-node")
    if asked is not None:
        return asked.split(",")
    parts = (intent.effective("gres") or "").split(",")
    found = (re.fullmatch(r"(?:gres[:/])?gpu(?:[:=](.*))?", part) for part in parts)
    return [each[1] or "" for each in found if each]


def _kind_and_count(part: str) -> tuple[str, int]:
    words = re.split("[:=]", part.partition("(")[0])  # Slurm takes either before the number
    count = int(words.pop()) if words[-1].isdecimal() else 1
    return words[0] if words else "", count


def cpus_per_node(intent: Intent) -> int:
    """How many CPUs each node gives at least: those of the tasks that sbatch is asked for.

    Of torchrun's `--nproc-per-node` Slurm knows nothing.
    """
    tasks, cpus = (intent.effective(name) or "" for name in ("ntasks-per-node", "cpus-per-task"))
    return (int(tasks) if tasks.isdecimal() else 1) * (int(cpus) if cpus.isdecimal() else 1)


def script_options(intent: Intent) -> tuple[Option, ...]:
    """Options of the user's #SBATCH lines, for the baseline's batch script."""
    return tuple(option for option in intent.script_options if option.name not in _NEITHER)


def baseline_options(intent: Intent, nodes: NodeSizes, name: str, comment: str) -> tuple[str, ...]:
    """Options on the baseline job's sbatch command line; they win over the script's and the environment's."""
    own = tuple(option.word for option in intent.options if option.name not in _NEITHER)
    # Slurm's own default depends on the site. The jobs that come later always append: the run has begun.
    mode = (_APPEND,) if intent.effective("open-mode") is None else ()
    return (*own, f"--nodes={nodes.minimum}", *_always(name, comment), *mode)


def next_baseline_options(
    intent: Intent, nodes: NodeSizes, name: str, comment: str, workdir: str
) -> tuple[str, ...]:
    """All options of a baseline job that takes a lost one's place; its batch script has none.

    Args:
        workdir: absolute folder in which the job starts.
    """
    left_out = (*_NEITHER, *_ONLY_THE_FIRST, "chdir", "export")
    given = [option for option in _as_words(intent.all_options) if option.name not in left_out]
    return (
        *(_from_anywhere(option, intent.cwd).word for option in given),
        f"--nodes={nodes.minimum}",
        f"--chdir={workdir}",
        # The environment of the step that submits it, which is one of the run's.
        "--export=ALL",
        *_always(name, comment),
        _APPEND,
    )


def _from_anywhere(option: Option, cwd: Path) -> Option:
    """The same for an sbatch in another folder: of what replaces a baseline, it reads this file only."""
    return replace(option, value=str(cwd / option.value)) if option.name == "bbf" and option.value else option


def replica_options(
    intent: Intent, name: str, comment: str, workdir: str, log: str, minutes: int | None
) -> tuple[str, ...]:
    """Options of each replica job: preemptible, and for the rest like the baseline; its nodes come later.

    Args:
        workdir: absolute folder in which the job starts.
        log: sbatch's file name pattern of its output.
        minutes: its longest time limit; None: the partition's.
    """
    return (
        *(option.word for option in _as_words(intent.all_options) if option.name not in _NOT_FOR_REPLICAS),
        *([f"--time={minutes}"] if minutes is not None else []),
        f"--qos={ELASTIC_QOS}",
        f"--chdir={workdir}",
        f"--output={log}",
        # The environment of the step that submits it, which is the baseline's.
        "--export=ALL",
        *_always(name, comment),
        _APPEND,
    )


def _always(name: str, comment: str) -> tuple[str, ...]:
    return (f"--job-name={name}", f"--comment={comment}", "--no-requeue")


def _as_words(options: Sequence[Option]) -> tuple[Option, ...]:
    """What sbatch takes of options from several places, so that it takes all of it from one command line."""
    found = _strongest(options)
    stated = {option.name for option in found if not _from_variable(option)}
    weaker = {
        option.name
        for option in found
        for group in _WORDS_BEFORE_VARIABLES
        if _from_variable(option) and option.name in group and stated.intersection(group)
    }
    for group in _LAST_OF:
        weaker.update([option.name for option in found if option.name in group][:-1])
    return tuple(option for option in found if option.name not in weaker)


def _from_variable(option: Option) -> bool:
    return option.place.startswith("$")


def _strongest(options: Sequence[Option]) -> tuple[Option, ...]:
    # sbatch takes the last; unknown options may be repeatable, so all of those stay.
    last = {option.name: option for option in options}
    return tuple(option for option in options if last[option.name] is option or option.name not in ARITIES)
