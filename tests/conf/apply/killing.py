"""Ends a program at a chosen point: a forked child that kills itself at its n-th act, by audit events."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable

# What changes anything outside of the process. Between two of them nothing changes, so that a kill before
# each is a kill anywhere.
ACTS = frozenset(
    {
        "os.rename",
        "os.remove",
        "os.mkdir",
        "os.rmdir",
        "os.symlink",
        "os.chmod",
        "os.chown",
        "os.truncate",
        "fcntl.flock",
        "subprocess.Popen",
    }
)


def is_act(event: str, arguments: tuple[object, ...]) -> bool:
    """Whether an audit event is an act."""
    if event != "open":
        return event in ACTS
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


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

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if is_act(event, arguments):
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
