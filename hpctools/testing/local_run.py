"""A whole elastic run on this machine: real agents and workers, and a Slurm that is a folder of job files."""

from __future__ import annotations

import getpass
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from hpctools.elastic.folder import RunFolder, utc_now
from hpctools.elastic.spec import RunSpec
from hpctools.slurm import run
from hpctools.testing.folder_slurm import FIRST_JOB, FolderSlurm

POLL_SECONDS = 0.02
CONTROLLER_SECONDS = 10.0


class LocalRun:
    """An elastic run, and the part of Slurm that starts, preempts and cancels its jobs.

    Use it as a context: leaving it kills what is left. Nodes are called n1, n2, ...; the first ones are the
    baseline's.

    Args:
        base: an empty folder.
        command: what every worker runs.
        nodes: the least and the most.
        grace: seconds between SIGTERM and SIGKILL of a preempted replica.

    Attributes:
        capacity: how many replica jobs may run at a time; pending ones start when there is room.
        baseline: agents of the baseline job.
        replicas: agents of replica jobs that were started, by job id.
    """

    def __init__(
        self, base: Path, command: Sequence[str], nodes: tuple[int, int], grace: float = 8.0
    ) -> None:
        self.spec = RunSpec(
            id="train-000001",
            name="train",
            user=getpass.getuser(),
            cluster="",
            min_nodes=nodes[0],
            max_nodes=nodes[1],
            workers_per_node=1,
            command=tuple(command),
            workdir=str(base),
            replica_options=("--qos=elastic",),
            replica_script=str(base / "replica.sh"),
            created=utc_now(),
            grace_seconds=grace,
        )
        self.queue = base / "queue"
        self.queue.mkdir()
        self.folder = RunFolder.create(base / "runs" / self.spec.id, self.spec)
        self.log = base / "agents.log"
        self.capacity = 0
        self.baseline: list[run.Process] = []
        self.replicas: dict[int, run.Process] = {}
        self._slurm = FolderSlurm(self.queue)
        self._stop = threading.Event()
        self._controller = threading.Thread(target=self._control, daemon=True)

    def __enter__(self) -> LocalRun:
        nodes = range(self.spec.min_nodes)
        self.baseline = [self._agent("baseline", 1, node, f"n{node + 1}") for node in nodes]
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._controller.join(CONTROLLER_SECONDS)
        for agent in self.agents:
            if agent.poll() is None:
                agent.kill()
            agent.wait(CONTROLLER_SECONDS)

    @property
    def agents(self) -> list[run.Process]:
        """All agents that were ever started."""
        return [*self.baseline, *self.replicas.values()]

    def preempt(self, count: int) -> list[int]:
        """The youngest replicas get SIGTERM, and their nodes are not given back; returns their job ids."""
        running = sorted(job for job, agent in self.replicas.items() if agent.poll() is None)
        self.capacity -= count
        for job in running[-count:]:
            self.replicas[job].send_signal(signal.SIGTERM)
        return running[-count:]

    def end(self, limit: float = 60.0) -> int:
        """Wait for the baseline's first agent; returns its exit code, when all agents have ended."""
        code = self.baseline[0].wait(limit)
        for agent in self.agents:
            agent.wait(CONTROLLER_SECONDS)
        return code

    def _agent(self, role: str, job_id: int, index: int, node: str) -> run.Process:
        environ = {
            **os.environ,
            "SLURM_JOB_ID": str(job_id),
            "SLURM_NODEID": str(index),
            "SLURMD_NODENAME": node,
        }
        program = [sys.executable, "-m", "hpctools.testing.folder_slurm", str(self.queue)]
        with self.log.open("ab") as log:
            return run.start(
                [*program, "--run-dir", str(self.folder.path), "--role", role],
                stdout=log,
                stderr=log,
                env=environ,
            )

    def _control(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            for path in sorted(self.queue.glob(f"{FIRST_JOB // 1000}*.json")):
                job_id, state = int(path.stem), json.loads(path.read_text())["state"]
                if state == "PENDING":
                    self._start_or_cancel(job_id)
                elif state == "RUNNING":
                    self._end_or_cancel(job_id, self.replicas[job_id])

    def _start_or_cancel(self, job_id: int) -> None:
        running = sum(agent.poll() is None for agent in self.replicas.values())
        if self._is_cancelled(job_id):
            self._slurm.write(job_id, {"state": "CANCELLED"})
        elif running < self.capacity:
            node = f"n{self.spec.min_nodes + 1 + len(self.replicas)}"
            self.replicas[job_id] = self._agent("replica", job_id, 0, node)
            comment = f"hp-run:{self.spec.id}"
            self._slurm.write(job_id, {"state": "RUNNING", "nodes": [node], "comment": comment})

    def _end_or_cancel(self, job_id: int, agent: run.Process) -> None:
        if agent.poll() is not None:
            self._slurm.write(job_id, {"state": "COMPLETED"})
        elif self._is_cancelled(job_id):
            agent.send_signal(signal.SIGTERM)

    def _is_cancelled(self, job_id: int) -> bool:
        return (self.queue / f"{job_id}.cancel").exists()
