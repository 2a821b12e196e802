"""Which client to take: pyslurm where it is there and fits, else Slurm's commands, and why."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from hpctools.errors import HpctoolsError, ReleaseError, UsageError
from hpctools.slurm.versions import Release, spell_release

if TYPE_CHECKING:
    from hpctools.slurm.client import SlurmAdministration

Wanted = Literal["auto", "commands", "pyslurm"]
CHOICES: tuple[Wanted, ...] = ("auto", "commands", "pyslurm")
VARIABLE = "HPCTOOLS_SLURM_CLIENT"
OLDEST_PYSLURM: Release = (23, 2)  # before, it has other classes
_CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")


@dataclass(frozen=True)
class Choice:
    """The client to use, and why it is that one.

    Attributes:
        reason: one line for people.
    """

    client: SlurmAdministration
    kind: Literal["commands", "pyslurm"]
    reason: str


def choose(wanted: Wanted = "auto", environment: Mapping[str, str] = os.environ) -> Choice:
    """Choose a client; nothing of Slurm's daemons is asked.

    Args:
        wanted: the site's `cluster.slurm_client`; `HPCTOOLS_SLURM_CLIENT` comes before it.

    Raises:
        UsageError: the variable holds something else.
        ReleaseError: pyslurm is demanded, and is missing or of another release.
    """
    asked = environment.get(VARIABLE) or wanted
    if asked not in CHOICES:
        raise UsageError(f"{VARIABLE} is {asked!r}", f"set it to one of: {', '.join(CHOICES)}")
    from hpctools.slurm.cli import CommandClient

    commands = CommandClient()
    if asked == "commands":
        return Choice(commands, "commands", "the commands were asked for")
    hindrance = hindered(_installed(), lambda: commands.release, _configured(environment))
    if hindrance is None:
        module = _load()
        if isinstance(module, ModuleType):
            from hpctools.slurm.native import NativeClient

            return Choice(NativeClient(module, commands), "pyslurm", "pyslurm of this release is installed")
        hindrance = module
    if asked == "pyslurm":
        raise ReleaseError(
            f"pyslurm cannot be used: {hindrance}",
            "install the pyslurm of this Slurm release, or set cluster.slurm_client to commands",
        )
    return Choice(commands, "commands", hindrance)


def hindered(installed: str | None, release: Callable[[], Release], configured: bool) -> str | None:
    """Why pyslurm cannot be used; None when it can.

    pyslurm ends the whole process when it finds no slurm.conf, and links against one release's library: both
    are known before it is loaded.

    Args:
        installed: pyslurm's version; None when there is none.
        release: the installed Slurm's; asked only when it matters.
        configured: whether a slurm.conf is to be found.
    """
    if installed is None:
        return "pyslurm is not installed"
    theirs = tuple(int(number) for number in installed.split(".")[:2] if number.isdecimal())
    if theirs < OLDEST_PYSLURM:
        return f"pyslurm {installed} is older than {spell_release(OLDEST_PYSLURM)}"
    try:
        ours = release()
    except HpctoolsError as error:
        return error.message
    if theirs != ours[:2]:
        return f"pyslurm {installed} is not for Slurm {spell_release(ours)}"
    return None if configured else "no slurm.conf is here for pyslurm to read"


def _installed() -> str | None:
    try:
        return metadata.version("pyslurm")
    except metadata.PackageNotFoundError:
        return None


def _configured(environment: Mapping[str, str]) -> bool:
    named = environment.get("SLURM_CONF")
    return any(Path(path).is_file() for path in ([named] if named else _CONFIGURATIONS))


def _load() -> ModuleType | str:
    try:
        return import_module("pyslurm")
    except ImportError as error:
        return f"pyslurm cannot be loaded: {error}"
