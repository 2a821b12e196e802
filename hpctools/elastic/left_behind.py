"""What an agent that was killed has left behind, found by its successor on the same node, and ended.

The kernel ends the process that an agent has started (PR_SET_PDEATHSIG), but not what that one has started:
behind a wrapper that forks (a batch script without `exec`, `uv run`, a container's starter) the training
goes on. Processes are told by the mark in their environment, which children inherit: nothing has to be
written down in time, and no number of a process that somebody else has by now can be taken for one of ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

STARTED_BY = "HPCTOOLS_STARTED_BY"
JOB = "SLURM_JOB_ID"
END_SECONDS = 5.0
LOOK_SECONDS = 0.02
PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One that runs.

    Attributes:
        group: the id of its process group, which signals are sent to (killpg(3)).
        session: the id of its session (setsid(2)); each worker of an agent has one.
        started: ticks since the machine's start; with the id it names one process for good.
    """

    pid: int
    group: int
    session: int
    started: int

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        with contextlib.suppress(OSError):
            now = _process(self.pid)
            return now is not None and now.started == self.started
        return False

    def kill(self) -> None:
        """End it, and nobody who has its number by now."""
        with contextlib.suppress(OSError):
            if self.runs:
                os.kill(self.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Mark:
    """By which an agent's workers, and what they start, are known.

    Attributes:
        text: of the variable STARTED_BY.
        job_id: of the agent. A job that was submitted from within inherits the text, and has its own.
    """

    text: str
    job_id: int

    @classmethod
    def of(cls, run_dir: Path, agent: str, job_id: int) -> Mark:
        """The same for an agent and for the one that is started in its place."""
        return cls(f"{agent} {job_id} {run_dir}", job_id)

    def is_on(self, pid: int) -> bool:
        """Whether a process has it; False of one that cannot be looked into."""
        try:
            words = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            return False
        values = dict(word.partition(b"=")[::2] for word in words)
        job = values.get(JOB.encode(), b"")  # scripts that must not know of Slurm unset it
        return values.get(STARTED_BY.encode()) == os.fsencode(self.text) and job in (
            b"",
            str(self.job_id).encode(),
        )


def started_by_another_job(environ: Mapping[str, str]) -> bool:
    """Whether the mark there is of an agent in another job, within which ours was submitted."""
    text, job = environ.get(STARTED_BY, ""), environ.get(JOB, "")
    return bool(text and job) and text.split(" ")[1:2] != [job]


def end_left_behind(mark: Mark, seconds: float = END_SECONDS) -> list[Process]:
    """End everything with the mark, and what is in its sessions; returns what was found.

    SIGKILL: whoever trained with them has given them up. Waits for their end, but not longer than `seconds`.
    """
    return _end(lambda: _marked(mark), seconds)


def end_rest_of_session(leader: int, seconds: float = END_SECONDS) -> list[Process]:
    """End what a session's leader has left behind when it ended, in whichever group; returns what was found.

    A shell's `set -m`, `timeout` and others give what they start a group of its own.
    """
    return _end(lambda: [each for each in own_processes() if each.session == leader != each.pid], seconds)


def _end(find: Callable[[], list[Process]], seconds: float) -> list[Process]:
    deadline, found = time.monotonic() + seconds, dict[Process, None]()
    while True:
        new, alive = find(), own_processes()
        found.update(dict.fromkeys(new))
        for each in new:
            each.kill()
        if time.monotonic() > deadline or not (new or set(alive) & set(found)):
            return list(found)
        time.sleep(LOOK_SECONDS)


def _marked(mark: Mark) -> list[Process]:
    """What is in a session of which a process has the mark. Our own session is the job's, and no worker's."""
    others = [each for each in own_processes() if each.session not in (0, os.getsid(0))]
    sessions = {each.session for each in others if mark.is_on(each.pid)}
    return [each for each in others if each.session in sessions]


def own_processes() -> list[Process]:
    """Our user's processes that have not ended."""
    found = []
    for folder in PROC.iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):  # it has just ended
                if folder.stat().st_uid == os.getuid() and (process := _process(int(folder.name))):
                    found.append(process)
    return found


def _process(pid: int) -> Process | None:
    """By its line in proc(5); None: it has ended, and its parent has not asked yet."""
    # Bytes: a process's name may be cut inside a letter.
    fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X") else Process(pid, *map(int, (fields[2], fields[3], fields[19])))
