"""The matcher: a process of its own beside each agent that has log rules.

    python -m hpctools.elastic.recovery.matcher RULES     with a socket as standard input

Python's `re` holds the interpreter's lock while it works, so a thread with an expression that backtracks for
ever would stop the agent. Here a timer of computing time interrupts each attempt, which `re` allows in a
main thread only.

It reads `worker TAB line NEWLINE` from the socket and writes to it one JSON object a line, at most five times
a second. It ends with the socket.
"""

from __future__ import annotations

import json
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hpctools.elastic.recovery.lines import LineRules, TooSlow
from hpctools.elastic.recovery.settings import LogRule, Threshold

BUDGET_SECONDS = 0.05
TELL_SECONDS = 0.2
CHUNK = 1 << 16


def rules_to_text(rules: Sequence[LogRule]) -> str:
    """Rules as the matcher's argument."""
    return json.dumps([asdict(rule) for rule in rules])


def rules_from_text(text: str) -> tuple[LogRule, ...]:
    """The inverse of `rules_to_text`."""
    return tuple(_rule(values) for values in json.loads(text))


def search_in_time(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    """The match at the beginning of the line.

    Raises:
        TooSlow: it was not found out within the budget.
    """
    signal.setitimer(signal.ITIMER_VIRTUAL, BUDGET_SECONDS)
    try:
        return pattern.match(line)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)


def serve(connection: socket.socket, rules: LineRules) -> None:
    """Match what comes until the other side closes."""
    partial, due = b"", time.monotonic() + TELL_SECONDS
    while True:
        ready, _, _ = select.select([connection], [], [], max(0.0, due - time.monotonic()))
        if ready:
            chunk = connection.recv(CHUNK)
            if not chunk:
                return
            *lines, partial = (partial + chunk).split(b"\n")
            for line in lines:
                worker, _, text = line.partition(b"\t")
                rules.feed(worker.decode(), text.decode(errors="replace"))
        if time.monotonic() >= due:
            due = time.monotonic() + TELL_SECONDS
            told = "".join(json.dumps(message) + "\n" for message in rules.take())
            connection.sendall(told.encode())


def main(argv: Sequence[str]) -> int:
    """The matcher's command line; returns the exit code."""
    signal.signal(signal.SIGVTALRM, _interrupt)
    # Slurm signals all of a job's processes; the matcher ends with its agent.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=0) as connection:
        try:
            serve(connection, LineRules(rules_from_text(argv[0]), search_in_time))
        except (BrokenPipeError, ConnectionResetError):
            return 0
    return 0


def _interrupt(*_: object) -> None:
    raise TooSlow


def _rule(values: Mapping[str, Any]) -> LogRule:
    threshold = values["threshold"]
    known = {**values, "do": tuple(values["do"])}
    return LogRule(**{**known, "threshold": None if threshold is None else Threshold(**threshold)})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
