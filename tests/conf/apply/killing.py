"""Ends a program at a chosen point: a forked child that kills itself at its n-th act, by audit events."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable

# What touches the world outside of the process; reading is among it, since a kill there tells whether the
# state between two writes is sound.
ACTS = frozenset(
    {
        "open",
        "os.rename",
        "os.remove",
        "os.mkdir",
        "os.rmdir",
        "os.symlink",
        "os.chmod",
        "os.chown",
        "os.listdir",
        "os.scandir",
        "os.truncate",
        "fcntl.flock",
        "subprocess.Popen",
    }
)


def killed_at(point: int, action: Callable[[], object]) -> bool:
    """Run the action in a child that is killed before its `point`-th act; False when it ended before that.

    The child's own exit code must be 0 where it was not killed.
    """
    pid = os.fork()
    if pid == 0:
        _child(point, action)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the action failed; see its traceback above"
    return False


def _child(point: int, action: Callable[[], object]) -> None:
    left = point

    def hook(event: str, _arguments: object) -> None:
        nonlocal left
        if event in ACTS:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    code = 1
    try:
        sys.addaudithook(hook)
        action()
        code = 0
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)  # nothing of pytest may run in the child
