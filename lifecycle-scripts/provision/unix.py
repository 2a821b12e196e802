"""Unix accounts of the node."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from provision.failures import Failure
from provision.files import on_node, read_text


def ids_of(name: str) -> tuple[int, int]:
    """Return the user and group number of an account in /etc/passwd.

    Raises:
        Failure: there is none.
    """
    found = accounts().get(name)
    if found is None:
        raise Failure(f"this node has no account {name!r}")
    return found


def accounts() -> dict[str, tuple[int, int]]:
    """Return user and group number of every account in /etc/passwd; a directory's are not looked at."""
    found = {}
    for line in read_text(on_node("/etc/passwd"), "list of accounts").splitlines():
        words = line.split(":")
        if len(words) > 3 and words[2].isdigit() and words[3].isdigit():
            found[words[0]] = (int(words[2]), int(words[3]))
    return found


def as_user(number: int, work: Callable[[], None]) -> None:
    """Do something as a user: what they have linked to elsewhere is then only theirs to reach.

    Also for file systems on which root of a node has no rights.

    Args:
        number: the user's and the group's number.
        work: what to do, in a process of its own.

    Raises:
        Failure: it failed; it has said why.
    """
    child = os.fork()
    if child == 0:
        _end_after(number, work)
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise Failure(f"this cannot be done as user {number}; why stands above")


def _end_after(number: int, work: Callable[[], None]) -> None:
    code = 1
    try:
        if os.geteuid() != number:
            os.setgroups([])
            os.setgid(number)
            os.setuid(number)
        work()
        code = 0
    except (Failure, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
