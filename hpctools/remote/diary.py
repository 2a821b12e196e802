"""What a laptop submitted where: so that `hp-logs ID` needs no `--cluster`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hpctools.errors import RemoteError

_REMEDY = "nothing was submitted; see its permissions and free space, or set XDG_STATE_HOME to another folder"


def place(environment: Mapping[str, str]) -> Path:
    """The file, in $XDG_STATE_HOME."""
    home = Path(environment.get("HOME", "/nonexistent"))
    return Path(environment.get("XDG_STATE_HOME") or home / ".local/state") / "hpctools" / "submissions.jsonl"


def note(environment: Mapping[str, str], name: str, cluster: str, command: str = "", **what: bool) -> None:
    """Write down an id before anything is sent, and again before the end of it is (`whole`).

    Args:
        command: which command sends it, of several with that id.
        what: `whole`, or `unmade`: the cluster says of what that command has sent that it was not submitted.

    Raises:
        RemoteError: it cannot be written.
    """
    path = place(environment)
    time = datetime.now(timezone.utc).isoformat()
    line = json.dumps(
        {"id": name, "cluster": cluster, "time": time, "command": command, "whole": False, **what}
    )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_end_of_torn(descriptor) + line.encode("ascii") + b"\n")
    except OSError as error:
        raise RemoteError(f"cannot write {path}: {error.strerror}", _REMEDY) from None


def _end_of_torn(descriptor: int) -> bytes:
    """What ends a last line that a full disk cut off, so that it takes no other with it."""
    size = os.fstat(descriptor).st_size
    return b"" if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n" else b"\n"


def cluster_of(environment: Mapping[str, str], name: str) -> str:
    """Where an id was sent; empty when nobody knows."""
    found = [str(said["cluster"]) for said in _lines(environment, name) if "cluster" in said]
    return found[-1] if found else ""


@dataclass(frozen=True)
class Earlier:
    """What is known of earlier attempts with an id.

    Attributes:
        again: it may have been submitted.
        since: no earlier than then, Unix seconds; None where that is not known.
    """

    again: bool = False
    since: float | None = None


NEVER = Earlier()
"""It was never sent to its end."""


def earlier(environment: Mapping[str, str], name: str) -> Earlier:
    """What is known of earlier attempts with an id that a person repeats.

    When they were is not known of an id that is not here: it is a person's own, or another laptop's. Nothing
    of what was never sent to its end, or was not submitted, as the cluster says. An older release noted only
    when it began.
    """
    lines = list(_lines(environment, name))
    whole = _may_be_made(lines)
    if lines and not whole:
        return NEVER
    try:
        return Earlier(True, datetime.fromisoformat(whole[0]["time"]).timestamp())
    except (IndexError, KeyError, ValueError, TypeError):
        return Earlier(True)


def _may_be_made(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines of what was sent to its end, and may have been submitted."""
    whole: list[dict[str, Any]] = []
    for said in lines:
        if said.get("unmade"):  # of its own command; another one may be at it besides
            whole = [each for each in whole if each.get("command") != said.get("command")]
        elif said.get("whole", True):
            whole.append(said)
    return whole


def _lines(environment: Mapping[str, str], name: str) -> Iterator[dict[str, Any]]:
    """What is noted of an id, the oldest first."""
    try:
        lines = place(environment).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            said = json.loads(line)
        except ValueError:
            continue  # a line that was cut off by a full disk
        if isinstance(said, dict) and said.get("id") == name:
            yield said
