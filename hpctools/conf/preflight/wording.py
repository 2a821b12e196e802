"""What slurmctld's complaints mean, in the words of a site file, and which are none: pure.

Every pattern was seen in a real slurmctld's log (22.05.8, 24.11.5 or 26.05.5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpctools.conf.preflight.model import Problem

# What a slurmctld says that has no past, cannot reach slurmdbd, or lacks programs that it does not need.
# The last three are what comes of going without slurmdbd, and of reaching no node.
HARMLESS = (
    r"MailProg",
    r"mpi/pmix|MPI: Cannot create context|PMIx|plugin name for mpi/",
    r"default partition not set",
    r"(state|state save|fed_mgr_state) file",
    r"_shutdown_bu_thread",
    r"Sending PersistInit msg|failed to open persistent connection|Association database appears down",
    r"^error: \w*slurmdbd|DBD_|slurmdbd: .*(Connection|connection)",
    r"information gathered, but not stored|asked for it not to be stored",
    r"can only be used with SlurmDBD, ignoring",
    r"Could not open .*(usage|priority_last_decay)",
    r"^error: (Unable to |)get_addr_info",
)


# What it says of a past that the configuration leaves behind on purpose; the jobs are named by `lost_job`.
OF_THE_PAST = (
    r"has vanished from configuration",
    r"lookup failure for node|invalid node specified",
    r"JobId=\d+",
    r"getpwuid failed",
)
_LOST = re.compile(r"(?:Invalid nodes? .*|Invalid partition .*|Node count mismatch .*)JobId=(\d+)")


@dataclass(frozen=True)
class _Meaning:
    pattern: re.Pattern[str]
    meaning: str
    remedy: str


def _means(pattern: str, meaning: str, remedy: str) -> _Meaning:
    return _Meaning(re.compile(pattern, re.IGNORECASE), meaning, remedy)


_MEANINGS: tuple[_Meaning, ...] = ()


def plain(line: str) -> str:
    """A line without the time in front."""
    return re.sub(r"^\[[\dT:.-]+\] ", "", line).strip()


def lost_job(line: str) -> int | None:
    """The job that a line says is lost; None when it says nothing of the kind."""
    found = _LOST.search(line)
    return int(found[1]) if found else None


def problem(line: str, *, past: bool) -> Problem | None:
    """The problem that a line of slurmctld's log tells of; None when it tells of none.

    Args:
        line: the line.
        past: whether it was given the state of a live slurmctld.
    """
    said = plain(line)
    passed_over = (*HARMLESS, *(OF_THE_PAST if past else ()))
    fatal = said.startswith("fatal: ")
    if not fatal and (not said.startswith("error: ") or any(re.search(each, said) for each in passed_over)):
        return None
    for each in _MEANINGS:
        found = each.pattern.search(said)
        if found:
            return Problem(said, found.expand(each.meaning), found.expand(each.remedy))
    return Problem(said, "", "")
