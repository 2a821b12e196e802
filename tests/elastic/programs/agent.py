"""The agent as a job step would start it, with a Slurm that is a folder of job files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hpctools.elastic.agent import main
from hpctools.errors import UnreachableError
from hpctools.slurm.types import Job, Partition


class FolderSlurm:
    """SlurmClient on a folder: a job is a file <id>.json; a file `down` makes the controller unreachable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def submit(self, options: Sequence[str], script: Path, arguments: Sequence[str] = ()) -> int:
        self._answer()
        job_id = 1000 + len(list(self.folder.glob("*.json")))
        self._write(job_id, {"state": "PENDING", "options": list(options), "script": str(script)})
        return job_id

    def cancel(self, job_ids: Sequence[int]) -> None:
        self._answer()
        for job_id in job_ids:
            (self.folder / f"{job_id}.cancel").touch()

    def jobs(
        self, *, ids: Sequence[int] = (), user: str | None = None, nodes: Sequence[str] = ()
    ) -> list[Job]:
        self._answer()
        jobs = [self._read(path) for path in sorted(self.folder.glob("*.json"))]
        return [
            job for job in jobs if (not ids or job.id in ids) and (not nodes or set(nodes) & set(job.nodes))
        ]

    def partitions(self) -> list[Partition]:
        return []

    def _answer(self) -> None:
        if (self.folder / "down").exists():
            raise UnreachableError("slurmctld does not answer")

    def _read(self, path: Path) -> Job:
        values = json.loads(path.read_text())
        return Job(
            id=int(path.stem),
            name="train",
            user=values.get("user", "nlp1"),
            account=values.get("account", "nlp"),
            partition="gpu",
            qos=values.get("qos", "elastic"),
            state=values["state"],
            nodes=tuple(values.get("nodes", ())),
            comment=values.get("comment", ""),
        )

    def _write(self, job_id: int, values: dict[str, object]) -> None:
        temporary = self.folder / f".{job_id}.{os.getpid()}"
        temporary.write_text(json.dumps(values))
        temporary.rename(self.folder / f"{job_id}.json")


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], client=FolderSlurm(Path(sys.argv[1]))))
