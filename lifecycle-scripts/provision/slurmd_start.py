"""With which configuration slurmd was started: it loads its plugins then, and not at a reconfigure.

HyperPod's agent, or we when the controller is late, may start slurmd while slurm.conf is the agent's alone.
Later our Include reaches the file that slurmd has fetched, not slurmd: nothing on the node shows that but
this note. It names a process, so it says nothing of a slurmd that anybody has started since.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from provision.failures import Failure
from provision.files import on_node, read_json, write_whole

_NOTE = "/run/hpctools-slurmd.json"
_DAEMON = "slurmd"


def note(*, with_ours: bool) -> None:
    """Remember, until the next boot, with which configuration the slurmd that runs now was started.

    Raises:
        Failure: it cannot be written.
    """
    text = json.dumps({"processes": sorted(_running()), "with_ours": with_ours}) + "\n"
    write_whole(on_node(_NOTE), text, 0o644)


def started_with_ours() -> bool | None:
    """Whether the slurmd that runs was started with our Include; None when nobody has noted that."""
    try:
        found = read_json(on_node(_NOTE), "note of slurmd's start")
    except Failure:
        return None
    if not isinstance(found, dict) or not _running() & set(found.get("processes") or ()):
        return None
    return bool(found.get("with_ours"))


def command_lines(daemon: str) -> Iterator[tuple[Path, list[str]]]:
    """The processes of a daemon: their folders below /proc, and their command lines."""
    for path in on_node("/proc").glob("[0-9]*/cmdline"):
        words = _words(path)
        if words and Path(words[0]).name == daemon:
            yield path.parent, words


def _words(path: Path) -> list[str]:
    try:
        return path.read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:  # it has ended
        return []


def _running() -> set[str]:
    """Each slurmd by its number and when it began."""
    found = set()
    for folder, _ in command_lines(_DAEMON):
        try:
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended
            continue
        found.add(f"{folder.name} {stat.rpartition(')')[2].split()[19]}")
    return found
