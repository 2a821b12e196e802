"""The log: one JSON object a line in the file, the same in words on standard output."""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import TextIO

LONGEST = 4000  # characters of a message; a step that prints a core dump must not fill the disk


class Journal:
    """Writes events.

    A log that cannot be written (a full disk) stops nothing: the node matters more, and standard output,
    which HyperPod sends to CloudWatch, has the same lines.

    Args:
        path: the log file; its folder is made.
        terminal: where the same is said in words.
        as_json: whether it is JSON there too.
    """

    def __init__(self, path: Path, terminal: TextIO, *, as_json: bool = False) -> None:
        self._path = path
        self._terminal = terminal
        self._as_json = as_json

    def event(self, level: str, event: str, **facts: object) -> None:
        """Write one event.

        Args:
            level: info, warning or error.
            event: its name, such as `step-done`.
            facts: JSON values; `message` is cut where it is very long.
        """
        if isinstance(facts.get("message"), str):
            facts["message"] = str(facts["message"])[:LONGEST]
        # Wall-clock time, for people; durations come from the monotonic clock and survive a clock that jumps.
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        line = json.dumps({"time": now, "level": level, "event": event, **facts}, ensure_ascii=False)
        self._to_file(line)
        self._to_terminal(line if self._as_json else _words(now, level, event, facts))

    def _to_file(self, line: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # One write in append mode: lines of two processes never mix.
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
            try:
                os.write(handle, f"{line}\n".encode("utf-8", "replace"))
            finally:
                os.close(handle)
        except OSError:
            return

    def _to_terminal(self, line: str) -> None:
        try:
            self._terminal.write(f"{line}\n")
            self._terminal.flush()
        except (OSError, ValueError):  # the reader has gone
            return


def _words(now: str, level: str, event: str, facts: dict[str, object]) -> str:
    mark = {"warning": " WARNING", "error": " ERROR"}.get(level, "")
    said = " ".join(f"{key}={value}" for key, value in facts.items() if key != "message")
    message = f": {facts['message']}" if "message" in facts else ""
    return f"{now}{mark} {event} {said}{message}"
