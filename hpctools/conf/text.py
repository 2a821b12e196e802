"""How Slurm's configuration files are spelled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ClusterShell.NodeSet import NodeSet

from hpctools.errors import UsageError

HEADER = "# Made by hpctools from the site file. Edit that instead: the next apply replaces this file.\n"


def fold(names: Iterable[str]) -> str:
    """Fold node names: `a-1, a-2, b-1` becomes `a-[1-2],b-1`."""
    return str(NodeSet.fromlist(list(names)))


def line(settings: Mapping[str, object]) -> str:
    """Spell settings on one line, as node and partition lines have them; None leaves a key out."""
    return " ".join(f"{key}={_spell(value)}" for key, value in settings.items() if value is not None) + "\n"


def section(title: str, settings: Mapping[str, object]) -> str:
    """Spell settings a line each under a comment; None leaves a key out."""
    lines = [f"{key}={_spell(value)}\n" for key, value in settings.items() if value is not None]
    return f"\n# {title}\n" + "".join(lines)


def _spell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    if any(ord(character) < 32 for character in text):
        raise UsageError(
            f"the value {text!r} cannot stand in a Slurm configuration", "remove control characters"
        )
    return text
