"""The text of batch scripts: pure functions, every word quoted for bash."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from hpctools.slurm.sbatch_options import Option, directive
from hpctools.submit.nodes import NodeSizes

ARRAY_JOB = "array-job"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
NOT_INHERITED = (
    "SBATCH_BATCH SBATCH_BURST_BUFFER SBATCH_CONSOLIDATE_SEGMENTS SBATCH_ERROR SBATCH_GET_USER_ENV "
    "SBATCH_IGNORE_PBS SBATCH_INPUT SBATCH_NO_KILL SBATCH_REQ_SWITCH SBATCH_SEGMENT_SIZE SBATCH_SPREAD_JOB "
    "SBATCH_SPREAD_SEGMENTS SBATCH_USE_MIN_NODES SBATCH_WAIT4SWITCH SBATCH_WAIT_ALL_NODES"
)
"""Variables of sbatch that are for a baseline job only: the first has them, and later ones have words;
the sbatch of the run's coordinator is not to find them (docs/decisions/0240)."""
# Layout of tasks and bindings that the job may have for its workers, or that a replica inherits from the
# step that submitted it; the one agent on a node must have the whole node.
_UNSET = (
    'export HPCTOOLS_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK-}"\n'  # for the workers, who share the node
    "unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK SLURM_DISTRIBUTION SLURM_HINT "
    "${!SLURM_CPU_BIND*} ${!SLURM_MEM_BIND*} ${!SLURM_GPU_BIND*} ${!SLURM_TRES_BIND*}\n"
    f"unset {NOT_INHERITED}"
)
# An agent that is killed (kill -9, the kernel short of memory) is started again, so that its node is not lost
# with it; any other end is one. Slurm signals a task, not its children (proctrack/cgroup), so bash passes the
# SIGTERM of a preemption on, also one that came before it knew the agent that it has just started. A signal
# ends `wait`, which is then asked again: it knows how the agent ended.
_KEEP = """keep='told= agent=
trap "told=x\\$agent; kill -TERM \\$agent 2>/dev/null" TERM
for HPCTOOLS_AGENT_STARTED in {0..99}; do
    export HPCTOOLS_AGENT_STARTED
    "$@" & agent=$!
    [[ ! $told || $told == "x$agent" ]] || kill -TERM "$agent"
    wait "$agent"; code=$?
    while kill -0 "$agent" 2>/dev/null; do wait "$agent"; code=$?; done
    wait "$agent" 2>/dev/null; again=$?
    ((again == 127)) || code=$again
    ((code == 137)) || break
done
exit "$code"'
"""
# Of all runs of an array the first job of the first run; hp-submit tells the other runs which that is.
_FIRST_JOB = f'[[ -s {ARRAY_JOB} ]] || echo "$SLURM_JOB_ID" >{ARRAY_JOB}\n'
_ARRAY_JOB = f"export SLURM_ARRAY_JOB_ID=$(<{ARRAY_JOB})\n"
_LAYOUT = "--ntasks-per-node=1 --cpu-bind=none --export=ALL --wait=0 --kill-on-bad-exit=0"


def quote(word: str) -> str:
    r"""A word for bash, on one line.

    Control characters become `$'\n'` and the like: sbatch refuses a script with `\r\n` in it.
    """
    if not _CONTROL.search(word):
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", escaped) + "'"


def wrapped(command: Sequence[str]) -> str:
    """A batch script that becomes the command."""
    words = " ".join(quote(word) for word in command)
    return f"#!/bin/bash\n# Written by hp-submit around the command.\nexec -- {words}\n"


def baseline(
    run_id: str,
    folder: str,
    python: str,
    nodes: NodeSizes,
    options: Sequence[Option],
    environment: Mapping[str, str] | None = None,
) -> str:
    """The batch script of an elastic run's baseline job.

    Args:
        folder: absolute path of the run folder.
        python: the interpreter that has hpctools.
        options: what the user's script asked for in its #SBATCH lines.
        environment: variables that the program shall find; those of an array get its SLURM_ARRAY_JOB_ID, too.
    """
    directives = "".join(f"{directive(option)}\n" for option in options)
    return f"""#!/bin/bash
{directives}# Baseline job of the elastic run {run_id}: {nodes.minimum} node(s) of up to {nodes.maximum}.
# Written by hp-submit.
run={quote(folder)}
python={quote(python)}

# Away from the user's folder: its files must not take the place of Python's modules.
cd -- "$run" || exit 1
{_UNSET}
{_exports(environment or {}, _FIRST_JOB)}
# With a trap, bash outlives the SIGTERM of a cancelled job until the replicas are cancelled too.
trap : TERM
{_KEEP}srun --nodes={nodes.minimum} --ntasks={nodes.minimum} {_LAYOUT} \\
    bash -c "$keep" agent "$python" -m hpctools.elastic.agent --run-dir "$run" --role baseline
code=$?
"$python" -m hpctools.cli.hp_cancel --replicas "$run"
exit "$code"
"""


def replica(run_id: str, folder: str, python: str, environment: Mapping[str, str] | None = None) -> str:
    """The batch script of each of an elastic run's replica jobs, on however many nodes it has."""
    return f"""#!/bin/bash
# Replica job of the elastic run {run_id}.
# Written by hp-submit.
run={quote(folder)}
python={quote(python)}

cd -- "$run" || exit 1
{_UNSET}
{_exports(environment or {})}
{_KEEP}exec srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" {_LAYOUT} \\
    bash -c "$keep" agent "$python" -m hpctools.elastic.agent --run-dir "$run" --role replica
"""


def _exports(environment: Mapping[str, str], before: str = "") -> str:
    exports = "".join(f"export {name}={quote(value)}\n" for name, value in environment.items())
    return f"{exports}{before}{_ARRAY_JOB}" if "SLURM_ARRAY_TASK_ID" in environment else exports
