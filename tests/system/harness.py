"""What system tests ask of a cluster."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from hpctools.errors import CommandError
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.rise import up
from hpctools.slurm import parse
from hpctools.slurm.types import Job

Seen = TypeVar("Seen")


class Cluster:
    """A sandbox with what tests ask of it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.inside = sandbox.inside

    def home(self, user: str) -> Path:
        """A person's home, seen from outside."""
        return self.sandbox.layout.tree / "home" / user

    def give(self, user: str, name: str, text: str) -> str:
        """Put a file into a person's home; return its path inside."""
        path = self.home(user) / name
        path.write_text(text)
        owner = self.home(user).stat()
        os.chown(path, owner.st_uid, owner.st_gid)
        return f"/home/{user}/{name}"

    def jobs(self, user: str) -> list[Job]:
        """A person's jobs as the controller knows them."""
        argv = [
            "env",
            "SLURM_TIME_FORMAT=%s",
            "squeue",
            "-h",
            "-t",
            "all",
            f"--format={parse.JOB_FORMAT}",
            "-u",
            user,
        ]
        return parse.jobs(self.inside(*argv).stdout)

    def job(self, job_id: int, user: str) -> Job:
        """One job; when slurmctld does not know it, the failure has what its log says of jobs."""
        found = [job for job in self.jobs(user) if job.id == job_id]
        assert found, f"slurmctld knows no job {job_id}:\n{self._accounted(job_id)}\n{self._said_of_jobs()}"
        return found[0]

    def _accounted(self, job_id: int) -> str:
        columns = "--format=JobID,State,ExitCode,Start,End,NodeList,Reason"
        return self.inside("sacct", "--duplicates", "-XP", f"--jobs={job_id}", columns, check=False).stdout

    def _said_of_jobs(self) -> str:
        log = self.sandbox.layout.logs / "slurmctld.log"
        words = ("job", "recover", "state", "fatal", "version", "Terminate", "cache")
        lines = [
            line for line in log.read_text(errors="replace").splitlines() if any(w in line for w in words)
        ]
        return "\n".join(lines[-150:])

    def said(self, daemon: str = "slurmctld") -> str:
        """The last lines of a daemon's log."""
        log = self.sandbox.layout.logs / f"{daemon}.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-40:])

    def until(self, look: Callable[[], Seen | None], limit: float = 30) -> Seen:
        """`until`, whose failure has slurmctld's last words: it may have died of what is waited for."""
        try:
            return until(look, limit)
        except AssertionError as error:
            raise AssertionError(f"{error}; slurmctld's last words:\n{self.said()}") from None

    def ended(self, job_id: int, user: str, limit: float = 30) -> Job:
        """Wait until a job has ended."""
        running = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")
        return until(lambda: ((j := self.job(job_id, user)) and j.state not in running and j) or None, limit)

    def kill(self, daemon: str) -> None:
        """Kill a daemon, and wait until it is gone."""
        self.inside("pkill", "-KILL", "-x", daemon)
        with contextlib.suppress(CommandError):
            until(lambda: not self.inside("pgrep", "-x", daemon).stdout or None, 20)

    def submit(self, user: str, *words: str) -> int:
        """`sbatch --parsable` as a person; the job id."""
        return int(self.inside("sbatch", "--parsable", *words, user=user).stdout.split(";")[0])


@contextlib.contextmanager
def cluster_of(folder: Path, site: Path, nodes: int, release: str) -> Iterator[Cluster]:
    """A cluster of a site in a folder of a test's own; it ends with the block."""
    sandbox = Sandbox(folder / "state")
    try:
        up(sandbox, site, nodes, lambda name, seconds: None, slurm=release)
        yield Cluster(sandbox)
    finally:
        down(sandbox)


def until(look: Callable[[], Seen | None], limit: float = 30) -> Seen:
    """Look until something is there; fail after `limit` seconds."""
    end = time.monotonic() + limit
    while True:
        seen = look()
        if seen is not None and seen is not False:
            return seen
        assert time.monotonic() < end, f"not seen within {limit} s"
        time.sleep(0.05)
