"""The user's batch script: found where sbatch finds it, and checked before anything is submitted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from hpctools.errors import SubmitError
from hpctools.python_command import python_command
from hpctools.submit.wrappers import MODULES, NAMES, PYTHON, SHELL, program_start

_SHELL = re.compile(SHELL)
_SHELLS = re.compile(rf"#!.*[/\s]{_SHELL.pattern}\b")
_LAUNCHERS = r"srun|torchrun|hyperpodrun|mpirun|mpiexec(?:\.hydra)?|orterun|deepspeed"
# The start of a simple command, by way of variables, keywords and commands that start another one.
_COMMAND = (
    r"(?:^|[;&|(`]|\$\()\s*"
    r"(?:(?:[A-Za-z_]\w*=\S*|exec|time|nohup|env|command|then|do|else|if|while|!|\{)\s+)*"
)
_STARTS_LAUNCHER = re.compile(
    rf"{_COMMAND}(?:[^\s=]*/)?(?P<launcher>(?:{_LAUNCHERS})(?=[\s;&|)]|$)"
    rf"|{PYTHON}\s+(?:-\S+\s+)*?-m\s+{MODULES}\b|accelerate\s+launch\b)"
)
_STARTS_WRAPPER = re.compile(rf"{_COMMAND}(?P<command>(?:[^\s;&|()=]*/)?(?:{NAMES})\s[^;&|)`]*)")


@dataclass(frozen=True)
class Script:
    """A batch script.

    Attributes:
        name: what to call it, its file name or `standard input`.
        text: its content; bytes that are no UTF-8 are kept as surrogates.
        path: the file; None when it came from standard input.
        is_pipe: reading it has used it up, as with `hp-submit <(make-script)`.
    """

    name: str
    text: str
    path: Path | None = None
    is_pipe: bool = False


@dataclass(frozen=True)
class Launcher:
    """A command that starts processes by itself.

    Attributes:
        name: the command, as written.
        line: where it stands, from 1.
    """

    name: str
    line: int


def find_script(word: str, environment: Mapping[str, str], cwd: Path) -> Path:
    """The file that sbatch would read for `word`: here first, then the folders of PATH.

    Source: `search_path` in Slurm's src/common/proc_args.c. What is nowhere comes back as it stands.
    """
    if word.startswith((".", "/")):
        return cwd / word
    folders = [cwd, *(cwd / part for part in environment.get("PATH", "").split(":") if part)]
    found = (folder / word for folder in folders if (folder / word).exists() and not (folder / word).is_dir())
    return next(found, cwd / word)


def read_script(path: Path) -> Script:
    """Read and check a script.

    Raises:
        SubmitError: it does not exist, cannot be read, or sbatch would not accept it.
    """
    if path.is_dir():
        raise SubmitError(f"{path} is a folder, not a batch script", _COMMAND_REMEDY)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise SubmitError(f"there is no script {path}", f"check the name; {_COMMAND_REMEDY}") from None
    except OSError as error:
        raise SubmitError(
            f"cannot read the script {path}: {error.strerror}", "make it readable for you"
        ) from None
    return replace(check_script(path.name, data, path), is_pipe=not path.is_file())


def check_script(name: str, data: bytes, path: Path | None = None) -> Script:
    """What sbatch asks of a script (`_get_script_buffer` in src/sbatch/sbatch.c).

    Raises:
        SubmitError: sbatch would not accept it.
    """
    if not data.strip():
        raise SubmitError(f"{name} is empty", "write a script whose first line is #!/bin/bash")
    if not data.startswith(b"#!"):
        raise SubmitError(
            f"{name} is no batch script: its first line does not start with #!",
            f"start it with #!/bin/bash; {_COMMAND_REMEDY}",
        )
    if b"\0" in data:
        raise SubmitError(f"{name} contains a NUL byte, so it is no script", _COMMAND_REMEDY)
    if b"\r\n" in data:
        raise SubmitError(f"{name} has DOS line endings", f"convert it with: sed -i 's/\\r$//' {name}")
    return Script(name, data.decode("utf-8", "surrogateescape"), path)


_COMMAND_REMEDY = "to submit a command without a script: hp-submit [options] -- command args"


def launchers(script: Script) -> Iterator[Launcher]:
    """Commands of a shell script that start processes on several nodes or GPUs by themselves."""
    lines = script.text.split("\n")
    if not _SHELLS.match(lines[0]):
        return
    for number, line in enumerate(lines, start=1):
        if not line.lstrip().startswith("#") and (found := _launcher_in(line)):
            yield Launcher(found, number)


def _launcher_in(line: str) -> str | None:
    if found := _STARTS_LAUNCHER.search(line):
        return " ".join(found["launcher"].split())
    wrapped = (_words(each["command"]) for each in _STARTS_WRAPPER.finditer(line))
    return next((name for words in wrapped if words and (name := command_launcher(words))), None)


def _words(text: str) -> tuple[str, ...]:
    """As a shell reads them; none where that hangs on other lines."""
    try:
        return tuple(shlex.split(text, comments=True))
    except ValueError:
        return ()


def command_launcher(command: tuple[str, ...]) -> str | None:
    """The launcher that a command given after `--` starts, if it is one."""
    command = command[program_start(command) :]
    name = Path(command[0]).name
    if _SHELL.fullmatch(name):
        lines = (following for word, following in pairwise(command) if re.fullmatch(r"-[a-z]*c", word))
        return next((found for line in lines if (found := _started_by(line))), None)
    if re.fullmatch(_LAUNCHERS, name):
        return name
    if name == "accelerate" and command[1:2] == ("launch",):
        return "accelerate launch"
    module = command[1] if name in ("-m", "--module") else python_module(command)
    return f"python -m {module}" if module and re.fullmatch(MODULES, module) else None


def _started_by(shell_line: str) -> str | None:
    found = next(launchers(Script("", f"#!/bin/sh\n{shell_line}")), None)
    return found.name if found else None


def python_module(command: Sequence[str]) -> str | None:
    """What `python -m` runs, if the command is that."""
    kind, word = python_target(command)
    return word if kind == "m" else None


def python_target(command: Sequence[str]) -> tuple[str, str]:
    """What a Python command runs: `m` and a module, `c` and code, or `file` and a script's path.

    Two empty texts when it is no Python command, or none that names what to run.
    """
    found = python_command(command)
    return (found.kind, found.target) if found is not None else ("", "")
