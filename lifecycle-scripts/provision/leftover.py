"""A step whose runner was killed lives on; the next run ends it before it begins."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from provision.failures import Failure
from provision.files import read_json, write_whole
from provision.journal import Journal

_FILE = "running.json"
_GRACE = 3.0


def remember(folder: Path, step: str, pid: int) -> None:
    """Note which process a step is; a full disk does not stop the step."""
    with contextlib.suppress(Failure):
        note = {"step": step, "pid": pid, "since": _since(pid), "boot": _boot()}
        write_whole(folder / _FILE, json.dumps(note) + "\n", 0o600)


def forget(folder: Path) -> None:
    """Note that the step has come to its end, so that what it left on purpose is left alone."""
    with contextlib.suppress(OSError):
        (folder / _FILE).unlink(missing_ok=True)


def end_leftover(folder: Path, journal: Journal) -> None:
    """End the noted process and all of its session, if that is still the one that was noted.

    A step leads a session of its own, whose number nothing else gets while any process is in it: also when
    the step itself has ended, and what it began has not.
    """
    try:
        note = read_json(folder / _FILE, "note of the running step")
    except Failure:
        return
    if not isinstance(note, dict) or not isinstance(note.get("pid"), int):
        return
    pid = note["pid"]
    if _is_left(note, pid):
        journal.event("warning", "leftover-ended", step=note.get("step"), pid=pid)
        _end(pid)
    (folder / _FILE).unlink(missing_ok=True)


def _is_left(note: Mapping[str, object], pid: int) -> bool:
    now = _since(pid)
    if now is not None:
        return now == note.get("since")
    return note.get("boot") == _boot() and bool(_session(pid))


def _end(pid: int) -> None:
    for number, seconds in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _GRACE)):
        for each in _session(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)
        until = time.monotonic() + seconds
        while _session(pid) and time.monotonic() < until:
            time.sleep(0.02)


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _session(pid: int) -> list[int]:
    """The processes of a session that have not ended."""
    numbers = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [each for each in numbers if (words := _stat(each)) and int(words[3]) == pid]


def _since(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None when there is none, or only its remains."""
    words = _stat(pid)
    return int(words[19]) if words else None


def _stat(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on; empty when there is none, or only its remains."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    words = stat.rpartition(")")[2].split()
    return [] if words[0] in "ZX" else words
