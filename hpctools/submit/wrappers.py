"""Commands that start another one: where in a command the program itself begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

PASSING = (
    "env|nice|ionice|nohup|time|timeout|setsid|stdbuf|numactl|taskset|uv|poetry|pixi|pipenv|pdm|hatch|rye|"
    "conda|mamba|micromamba|apptainer|singularity"
)
"""Those that start one program, once, with the environment that they have: names as an expression."""
OTHERS = "docker|podman|enroot|nsys|ncu|strace|ltrace|perf"
"""Those that do more: an environment of their own, or a file for each program."""
LAUNCHERS = r"srun|torchrun|hyperpodrun|mpirun|mpiexec(?:\.hydra)?|orterun|deepspeed|accelerate"
MODULES = r"torch\.distributed\.(?:run|launch|launcher)"
PYTHON = r"python[\d.]*"
SHELL = r"(?:ba|da|z|k|mk)?sh"
_STARTS = re.compile(rf"{LAUNCHERS}|{PYTHON}|{SHELL}")


def program_start(command: Sequence[str], wrappers: str = f"{PASSING}|{OTHERS}") -> int:
    """Where the launcher, Python or shell stands that a wrapper starts; 0: none is known to be started.

    What a wrapper's options mean is not known here. So the first word is taken that names such a program, or
    `-m` before the name of torch's launcher (`uv run -m torch.distributed.run`), and none behind a script.

    Args:
        command: its words; at least one.
        wrappers: their names, as an expression.
    """
    if not re.fullmatch(wrappers, PurePath(command[0]).name):
        return 0
    for place, word in enumerate(command[1:], start=1):
        follows = command[place + 1 : place + 2]
        starts_module = word in ("-m", "--module") and follows and re.fullmatch(MODULES, follows[0])
        if starts_module or (_STARTS.fullmatch(PurePath(word).name) and not _is_value(command[place - 1])):
            return place
        if word.endswith(".py"):
            break
    return 0


def _is_value(option: str) -> bool:
    """Whether the word behind it says which Python is meant (uv run --python python3.12)."""
    return option in ("-p", "--python")
