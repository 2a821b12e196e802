"""A command that starts Python, taken apart as Python itself does it (python(1), "Interface options")."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CODE, MODULE, FILE = "c", "m", "file"
_WITH_A_VALUE = ("-W", "-X")


@dataclass(frozen=True)
class PythonCommand:
    """A command that starts Python.

    Attributes:
        interpreter: its first word.
        flags: what stands between that and what is run, as it was given.
        kind: `m` (a module), `c` (code) or `file` (a script); empty when it names nothing to run.
        target: the module, the code, or the script's path; empty when it is missing.
        arguments: what the program gets after its own name.
    """

    interpreter: str
    flags: tuple[str, ...]
    kind: str
    target: str
    arguments: tuple[str, ...]


def python_command(command: Sequence[str]) -> PythonCommand | None:
    """The parts of a command that starts `python`, `python3.11`, ...; None: it is another one."""
    if not command or not re.fullmatch(r"python[\d.]*", Path(command[0]).name):
        return None
    flags: list[str] = []
    words = iter(command[1:])
    for word in words:
        if word in _WITH_A_VALUE:
            flags += [word, *([value] if (value := next(words, "")) else [])]
        elif found := re.fullmatch(r"-([bBdEiIOPqsSuvx]*)([mc])(.*)", word, re.DOTALL):
            flags += [f"-{found[1]}"] if found[1] else []
            return PythonCommand(
                command[0], tuple(flags), found[2], found[3] or next(words, ""), tuple(words)
            )
        elif word == "-":
            break
        elif not word.startswith("-"):
            return PythonCommand(command[0], tuple(flags), FILE, word, tuple(words))
        else:
            flags.append(word)
    return PythonCommand(command[0], tuple(flags), "", "", ())
