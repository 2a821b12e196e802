"""A Slurm that is a folder of job files, shared by the processes of an elastic run on one machine.

A job is `<id>.json`; who plays the controller (`local_run`) starts and ends what stands there. A file `down`
makes the controller unreachable. As a program it is the node agent with this Slurm:

    python -m hpctools.testing.folder_slurm FOLDER [the agent's own options]
"""

from __future__ import annotations

import getpass
import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpctools.elastic.agent import main
from hpctools.errors import UnreachableError
from hpctools.slurm.types import Job, Node, Partition

FIRST_JOB = 1000


class FolderSlurm:
    """SlurmClient on a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def submit(self, options: Sequence[str], script: Path, arguments: Sequence[str] = ()) -> int:
        """Put a pending job into the folder."""
        self._answer()
        job_id = FIRST_JOB + len(list(self.folder.glob("????*.json")))
        whose = {"user": getpass.getuser(), **_described(options)}
        self.write(job_id, {"state": "PENDING", "options": list(options), "script": str(script), **whose})
        return job_id

    def cancel(self, job_ids: Sequence[int]) -> None:
        """Ask for the jobs' end."""
        self._answer()
        for job_id in job_ids:
            (self.folder / f"{job_id}.cancel").touch()

    def shorten(self, job_id: int, minutes: int) -> None:
        """Jobs of the folder have no limits."""
        self._answer()

    def exclude(self, job_id: int, nodes: Sequence[str]) -> None:
        """Jobs of the folder get nodes that were never there before."""
        self._answer()

    def dependencies(self, user: str) -> Mapping[int, str]:
        """Jobs of the folder wait for no others."""
        self._answer()
        return {}

    def depend(self, job_id: int, dependency: str) -> None:
        """Jobs of the folder wait for no others."""
        self._answer()

    def ended_as(self, job_id: int) -> str:
        """What the job's file says of it."""
        self._answer()
        path = self.folder / f"{job_id}.json"
        return str(json.loads(path.read_text()).get("ended", "")) if path.exists() else ""

    def jobs(
        self, *, ids: Sequence[int] = (), user: str | None = None, nodes: Sequence[str] = ()
    ) -> list[Job]:
        """Jobs that satisfy every condition that is given."""
        self._answer()
        return [
            job
            for job in (self._job(path) for path in sorted(self.folder.glob("*.json")))
            if (not ids or job.id in ids)
            and (user is None or job.user == user)
            and (not nodes or set(nodes) & set(job.nodes))
        ]

    def partitions(self) -> list[Partition]:
        """There are none."""
        self._answer()
        return []

    def nodes(self, names: Sequence[str] = ()) -> list[Node]:
        """The nodes that somebody drains: those with a file `<node>.drain`, which holds the reason."""
        self._answer()
        return [
            Node(path.stem, "MIXED", ("DRAIN",), reason=path.read_text())
            for path in sorted(self.folder.glob("*.drain"))
            if not names or path.stem in names
        ]

    def write(self, job_id: int, values: Mapping[str, Any]) -> None:
        """Replace a job's file as a whole."""
        temporary = self.folder / f".{job_id}.{os.getpid()}.{threading.get_ident()}"
        temporary.write_text(json.dumps(values))
        temporary.rename(self.folder / f"{job_id}.json")

    def _answer(self) -> None:
        if (self.folder / "down").exists():
            raise UnreachableError("slurmctld does not answer")

    def _job(self, path: Path) -> Job:
        values = json.loads(path.read_text())
        return Job(
            id=int(path.stem),
            name=values.get("name", "train"),
            user=values.get("user", "nlp1"),
            account=values.get("account", "nlp"),
            partition=values.get("partition", "gpu"),
            qos=values.get("qos", "elastic"),
            state=values["state"],
            nodes=tuple(values.get("nodes", ())),
            comment=values.get("comment", ""),
            started=values.get("started"),
            time_limit=values.get("time_limit"),
        )


def _described(options: Sequence[str]) -> dict[str, str]:
    """What sbatch's options say of a job that waits."""
    words = dict(option.removeprefix("--").partition("=")[::2] for option in options)
    return {name: words[name] for name in ("comment", "qos", "partition", "account") if name in words}


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], client=FolderSlurm(Path(sys.argv[1]))))
