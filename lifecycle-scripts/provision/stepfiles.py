"""The steps: executable files named `NN-name` whose first comment lines say when and how they run."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from provision.failures import Failure
from provision.roles import ROLES, UNKNOWN

_NAME = re.compile(r"\d\d-[a-z0-9]+(-[a-z0-9]+)*")
_HEADER = re.compile(r"# (roles|limit|attempts|needs|required): *(.*?) *")
_HEADER_LINES = 20


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        name: `NN-name`; steps run in the order of their names.
        path: the program.
        roles: on which nodes it runs.
        limit: seconds that one attempt may take.
        attempts: how often it is tried.
        needs: commands that must be there.
        required: whether the node is of no use without it: `yes`, `no`, or the setting that says so.
    """

    name: str
    path: Path
    roles: frozenset[str]
    limit: float = 300.0
    attempts: int = 3
    needs: tuple[str, ...] = ()
    required: str = "yes"


def read_steps(folder: Path) -> tuple[Step, ...]:
    """Read all steps of a folder, in order.

    Raises:
        Failure: there are none, or a file is no proper step.
    """
    paths = sorted(path for path in folder.glob("[0-9]*") if path.is_file())
    if not paths:
        raise Failure(
            f"there are no steps in {folder}: the bundle is incomplete, upload it again", exit_code=2
        )
    return tuple(_step(path) for path in paths)


def chosen(
    steps: tuple[Step, ...], role: str, *, only: str | None = None, first: str | None = None
) -> tuple[Step, ...]:
    """Return the steps of a role: all, one alone, or from one on.

    Raises:
        Failure: the named step is not among them.
    """
    mine = tuple(step for step in steps if role in step.roles)
    wanted = only or first
    if wanted is None:
        return mine
    for place, step in enumerate(mine):
        if wanted in (step.name, step.name[3:]):
            return (step,) if only else mine[place:]
    names = ", ".join(step.name for step in mine) or "none"
    raise Failure(f"a {role} node has no step {wanted!r}; it has: {names}", exit_code=2)


def _step(path: Path) -> Step:
    if not _NAME.fullmatch(path.name):
        raise Failure(f"{path} is no name of a step (NN-name)", exit_code=2)
    if not os.access(path, os.X_OK):
        # S3 keeps no permission bits: the copy on a node has lost them.
        path.chmod(path.stat().st_mode | 0o555)
    said = _header(path)
    roles = frozenset(said.get("roles", "").split())
    if not roles or roles - {*ROLES, UNKNOWN}:
        raise Failure(f"{path} needs a line `# roles:` with some of {', '.join(ROLES)}", exit_code=2)
    try:
        return Step(
            name=path.name,
            path=path,
            roles=roles,
            limit=float(said.get("limit", 300)),
            attempts=int(said.get("attempts", 3)),
            needs=tuple(said.get("needs", "").split()),
            required=said.get("required", "yes"),
        )
    except ValueError as error:
        raise Failure(f"{path}: {error}", exit_code=2) from None


def _header(path: Path) -> dict[str, str]:
    with path.open(encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line, _ in zip(file, range(_HEADER_LINES), strict=False)]
    matches = (_HEADER.fullmatch(line) for line in lines)
    return {match[1]: match[2] for match in matches if match}
