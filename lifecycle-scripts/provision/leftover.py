"""A step whose runner was killed lives on; the next run ends it before it begins."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

from provision.failures import Failure
from provision.files import read_json, write_whole
from provision.journal import Journal

_FILE = "running.json"
_GRACE = 3.0


def remember(folder: Path, step: str, pid: int) -> None:
    """Note which process a step is; a full disk does not stop the step."""
    with contextlib.suppress(Failure):
        note = {"step": step, "pid": pid, "since": _since(pid)}
        write_whole(folder / _FILE, json.dumps(note) + "\n", 0o600)


def end_leftover(folder: Path, journal: Journal) -> None:
    """End the group of the noted process, if it is still that process and not another of the same number."""
    try:
        note = read_json(folder / _FILE, "note of the running step")
    except Failure:
        return
    if not isinstance(note, dict) or not isinstance(note.get("pid"), int):
        return
    pid = note["pid"]
    if note.get("since") is not None and _since(pid) == note["since"]:
        journal.event("warning", "leftover-ended", step=note.get("step"), pid=pid)
        _end(pid, note["since"])
    (folder / _FILE).unlink(missing_ok=True)


def _end(pid: int, since: int) -> None:
    for number, seconds in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _GRACE)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
        until = time.monotonic() + seconds
        while _since(pid) == since and time.monotonic() < until:
            time.sleep(0.02)


def _since(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None when there is none, or only its remains."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    words = stat.rpartition(")")[2].split()
    return None if words[0] in "ZX" else int(words[19])
