"""What a laptop submitted where: so that `hp-logs ID` needs no `--cluster`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from hpctools.errors import RemoteError

_REMEDY = "nothing was submitted; see its permissions and free space, or set XDG_STATE_HOME to another folder"


def place(environment: Mapping[str, str]) -> Path:
    """The file, in $XDG_STATE_HOME."""
    home = Path(environment.get("HOME", "/nonexistent"))
    return Path(environment.get("XDG_STATE_HOME") or home / ".local/state") / "hpctools" / "submissions.jsonl"


def note(environment: Mapping[str, str], name: str, cluster: str) -> None:
    """Write down an id before anything is sent.

    Raises:
        RemoteError: it cannot be written.
    """
    path = place(environment)
    line = json.dumps({"id": name, "cluster": cluster, "time": datetime.now(timezone.utc).isoformat()})
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
    try:
        lines = place(environment).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        try:
            said = json.loads(line)
            if said["id"] == name:
                return str(said["cluster"])
        except (ValueError, KeyError, TypeError):
            continue  # a line that was cut off by a full disk
    return ""
