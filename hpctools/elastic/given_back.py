"""What a worker finds as any program of a job does, though its agent had to be started without it.

An agent must have its whole node, so the batch script takes from srun what the job asked for each task
(`SLURM_CPUS_PER_TASK` makes srun lock the agent into that share). The script also goes to the run folder, and
bash tells what it starts that it is there (`PWD`). And bash starts the agent in the background, where
programs ignore SIGINT and SIGQUIT, and have all that they start ignore them.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from types import FrameType

from hpctools.elastic.spec import RunSpec

KEPT_CPUS = "HPCTOOLS_CPUS_PER_TASK"  # by the batch script
CPUS = "SLURM_CPUS_PER_TASK"


def job_environment(environ: Mapping[str, str], spec: RunSpec) -> dict[str, str]:
    """The agent's environment, as a program of the job would have it in the folder where workers start.

    Args:
        environ: the agent's.
    """
    kept = {name: value for name, value in environ.items() if name != "OLDPWD"}
    cpus = {CPUS: environ[KEPT_CPUS]} if environ.get(KEPT_CPUS) else {}
    return {**kept, **cpus, "PWD": spec.workdir}


def ignore_for_ourselves() -> None:
    """Have SIGINT and SIGQUIT do nothing here where they are ignored, but what is started has them again.

    The kernel gives a program its signals back on execve(2), unless they are ignored.
    """
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _do_nothing)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Not SIG_IGN, which would be inherited."""
