"""Starts a worker bound to its agent: `python -I -S bound.py AGENT_PID command...`.

A worker that outlived its agent would go on writing checkpoints beside the next generation's. The kernel
ends it instead (prctl(2), PR_SET_PDEATHSIG), also after the command has taken this process's place.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
NOT_FOUND = 127
NOT_EXECUTABLE = 126


def main(argv: list[str]) -> int:
    """Become the command; returns only when that cannot be."""
    agent, command = int(argv[0]), argv[1:]
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != agent:
        return NOT_FOUND  # the agent has ended already
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
