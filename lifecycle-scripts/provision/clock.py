"""The clock: munge refuses credentials, and AWS signatures, from a clock that is minutes off."""

from __future__ import annotations

import re
import shutil

from provision.failures import Failure
from provision.processes import call
from provision.step import Context

MOST_SECONDS = 5.0
_UNITS = ("chrony", "chronyd", "systemd-timesyncd")
_OFFSET = re.compile(r"System time\s*:\s*([\d.]+) seconds")


def is_done(context: Context) -> bool:
    """Whether the clock is synchronized, as chrony or systemd say; true where neither is there to ask."""
    offset = _chrony_offset()
    if offset is not None:
        return offset <= MOST_SECONDS
    synchronized = _timedatectl()
    if synchronized is None:
        print("neither chrony nor timedatectl is here to tell whether the clock is right")
        return True
    return synchronized


def do(context: Context) -> None:
    """Start what keeps the clock, and set it at once.

    Raises:
        Failure: nothing that keeps it can be started, or it does not come right.
    """
    started = _start_one()
    if started != "systemd-timesyncd":
        call(["chronyc", "-n", "waitsync", "10", str(MOST_SECONDS), "0", "1"], limit=30)
        call(["chronyc", "-n", "makestep"], limit=10)
    if not is_done(context):
        raise Failure("the clock is not right yet; see `chronyc sources` or `timedatectl timesync-status`")


def _start_one() -> str:
    """Start the first that there is: two that keep the clock at once pull at it in turns."""
    for unit in _UNITS:
        if call(["systemctl", "restart", unit], limit=30).code == 0:
            return unit
    raise Failure(f"none of {', '.join(_UNITS)} can be started: the clock is not kept")


def _chrony_offset() -> float | None:
    """Seconds off; infinity when chrony does not know; None without chrony."""
    if not shutil.which("chronyc"):
        return None
    done = call(["chronyc", "-n", "tracking"], limit=10)
    found = _OFFSET.search(done.out)
    if done.code != 0 or found is None or re.search(r"Leap status\s*:\s*Not synchronised", done.out):
        return float("inf")
    return float(found[1])


def _timedatectl() -> bool | None:
    if not shutil.which("timedatectl"):
        return None
    done = call(["timedatectl", "show", "-p", "NTPSynchronized", "--value"], limit=10)
    return done.out.strip() == "yes" if done.code == 0 else None
