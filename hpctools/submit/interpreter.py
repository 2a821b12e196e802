"""The Python that an installed command runs on."""

from __future__ import annotations

import re
import shutil
from pathlib import Path, PurePath

FIRST_BYTES = 4096
_DIRECT = re.compile(rb"#!\s*(\S*/python[\d.]*)\s*")
_BY_NAME = re.compile(rb"#!\s*\S*/env\s+(python[\d.]*)\s*")
# What pip and uv write where the interpreter's path is too long for a first line, or has blanks.
_BY_SHELL = re.compile(rb"#!/bin/sh\n'''exec' [\"']?(/[^\"'\n]*/python[\d.]*)[\"']? ")


def interpreter_of(program: str, *, is_wrapped: bool = False) -> str:
    """The Python that a command like `torchrun` runs on: what its first line names, else what lies beside it.

    Args:
        program: as written in a command.
        is_wrapped: another command starts it, perhaps in a container: what there is here says nothing of it.
    """
    beside = str(PurePath(program).with_name("python")) if "/" in program else "python"
    found = None if is_wrapped else shutil.which(program)
    return (_named_in(Path(found)) if found else None) or beside


def _named_in(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            start = file.read(FIRST_BYTES)
    except OSError:
        return None
    line = start.partition(b"\n")[0]
    found = _DIRECT.fullmatch(line) or _BY_NAME.fullmatch(line) or _BY_SHELL.match(start)
    return found[1].decode("utf-8", "surrogateescape") if found else None
