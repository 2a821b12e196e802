"""A whole elastic run on this machine: real agents and workers, and a Slurm that is a folder of job files."""

from __future__ import annotations

import getpass
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpctools.elastic.folder import RunFolder, utc_now
from hpctools.elastic.processes import INCARNATION
from hpctools.elastic.spec import RunSpec
from hpctools.slurm import run
from hpctools.testing.folder_slurm import FIRST_JOB, FolderSlurm

RUN = "train-000001"
COMMENT = f"hp-run:{RUN}"
FIRST_BASELINE = 1
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
        more: further fields of the run's description, as `sizes` or `recovery`.

    Attributes:
        capacity: how many replica jobs may run at a time; pending ones start when there is room.
        baseline_capacity: whether a baseline job that takes the place of a lost one may start.
        baseline: agents of the present baseline job.
        replicas: the first agent of each replica job that was started, by job id.
    """

    def __init__(
        self, base: Path, command: Sequence[str], nodes: tuple[int, int], grace: float = 8.0, **more: Any
    ) -> None:
        self.spec = RunSpec(
            id=RUN,
            name="train",
            user=getpass.getuser(),
            cluster="",
            min_nodes=nodes[0],
            max_nodes=nodes[1],
            command=tuple(command),
            workdir=str(base),
            replica_options=("--qos=elastic", f"--comment={COMMENT}"),
            replica_script=str(base / "replica.sh"),
            created=utc_now(),
            grace_seconds=grace,
            baseline_options=(f"--comment={COMMENT}",),
            **{"workers_per_node": 1, "baseline_script": str(base / "baseline.sh"), **more},
        )
        self.queue = base / "queue"
        self.queue.mkdir()
        self.folder = RunFolder.create(base / "runs" / self.spec.id, self.spec)
        self.log = base / "agents.log"
        self.capacity = 0
        self.baseline_capacity = True
        self.baseline: list[run.Process] = []
        self.replicas: dict[int, run.Process] = {}
        self._agents: dict[int, list[run.Process]] = {}
        self._nodes = 0
        self._places: dict[int, tuple[str, int, int, str]] = {}
        self._changing = threading.Lock()
        self._slurm = FolderSlurm(self.queue)
        self._stop = threading.Event()
        self._controller = threading.Thread(target=self._control, daemon=True)

    def __enter__(self) -> LocalRun:
        self.folder.append_job("baseline", FIRST_BASELINE)
        self._start_baseline(FIRST_BASELINE)
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
        return [agent for agents in list(self._agents.values()) for agent in agents]

    def preempt(self, count: int) -> list[int]:
        """The youngest replicas get SIGTERM, and their nodes are not given back; returns their job ids."""
        running = sorted(job for job in list(self.replicas) if self._runs(job))
        self.capacity -= count
        for job in running[-count:]:
            for agent in self._agents[job]:
                agent.send_signal(signal.SIGTERM)
        return running[-count:]

    def lose_baseline(self, state: str = "NODE_FAIL") -> None:
        """All nodes of the baseline job die at once; Slurm says so a moment later."""
        for agent in self.baseline:
            agent.kill()
        self._write(self._baseline_job, state, "baseline")

    def lose_node(self, *, said: bool = True) -> None:
        """The last node of the present baseline job dies, and Slurm ends the rest of the job for that.

        Args:
            said: whether Slurm says why.
        """
        self.baseline[-1].kill()
        self.fail_baseline("NODE_FAIL" if said else "")
        for agent in self.baseline[:-1]:
            agent.send_signal(signal.SIGTERM)

    def fail_baseline(self, ended: str = "NODE_FAIL") -> None:
        """Slurm says of the present baseline job that it is ended, and in accounting why ("": not yet)."""
        self._write(self._baseline_job, "COMPLETING", "baseline", ended=ended)

    def limit_time(self, seconds: float, minutes: int = 60) -> float:
        """The present baseline job began so that its limit of `minutes` ends it in so many seconds.

        Nobody here ends it then (`lose_baseline("TIMEOUT")` does). Returns when that is, Unix seconds.
        """
        started = math.ceil(time.time() + seconds) - 60 * minutes
        self._write(self._baseline_job, "RUNNING", "baseline", started=started, time_limit=minutes)
        return started + 60.0 * minutes

    def cancel_baseline(self) -> None:
        """What scancel does to the present baseline job."""
        self._write(self._baseline_job, "CANCELLED", "baseline")
        for agent in self.baseline:
            agent.send_signal(signal.SIGTERM)

    def agent_of(self, name: str) -> run.Process:
        """The process of an agent by its name in the run: b0, r1000, r1000.1, ..."""
        job, _, index = name[1:].partition(".")
        if name.startswith("b") and int(job) < FIRST_JOB:
            return self._agents[FIRST_BASELINE][int(job)]
        return self._agents[int(job)][int(index or 0)]

    def start_again(self, name: str) -> None:
        """Kill an agent; its job starts it again, as the batch script does."""
        former = self.agent_of(name)
        place = self._places[former.pid]
        with self._changing:
            former.kill()
            former.wait(CONTROLLER_SECONDS)
            agent = self._agent(*place, started=1)
            self._agents[place[1]][place[2]] = agent
            if self.replicas.get(place[1]) is former:
                self.replicas[place[1]] = agent

    def end(self, limit: float = 60.0) -> int:
        """Wait for all agents to end; returns the exit code of the last baseline job's first one.

        Raises:
            subprocess.TimeoutExpired: after `limit` seconds some are still there.
        """
        deadline = time.monotonic() + limit
        code = self.baseline[0].wait(limit)
        for agent in self.agents:
            agent.wait(max(CONTROLLER_SECONDS, deadline - time.monotonic()))
        return code if self.baseline[0].returncode is None else self.baseline[0].returncode

    def _start_baseline(self, job_id: int) -> None:
        agents = [
            self._agent("baseline", job_id, index, self._node()) for index in range(self.spec.min_nodes)
        ]
        self._baseline_job, self.baseline = job_id, agents
        self._agents[job_id] = agents
        self._write(job_id, "RUNNING", "baseline")

    def _node(self) -> str:
        self._nodes += 1
        return f"n{self._nodes}"

    def _write(
        self,
        job_id: int,
        state: str,
        role: str,
        nodes: Sequence[str] = (),
        ended: str = "",
        **more: int,
    ) -> None:
        self._slurm.write(
            job_id,
            {
                "state": state,
                "ended": ended,
                "nodes": list(nodes),
                "comment": COMMENT,
                "user": self.spec.user,
                "qos": "elastic" if role == "replica" else "normal",
                **more,
            },
        )

    def _agent(self, role: str, job_id: int, index: int, node: str, started: int = 0) -> run.Process:
        environ = {
            **os.environ,
            "SLURM_JOB_ID": str(job_id),
            "SLURM_NODEID": str(index),
            "SLURMD_NODENAME": node,
            INCARNATION: str(started),
        }
        program = [sys.executable, "-m", "hpctools.testing.folder_slurm", str(self.queue)]
        with self.log.open("ab") as log:
            agent = run.start(
                [*program, "--run-dir", str(self.folder.path), "--role", role],
                stdout=log,
                stderr=log,
                env=environ,
            )
        self._places[agent.pid] = (role, job_id, index, node)
        return agent

    def _control(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            with self._changing:
                self._control_jobs()

    def _control_jobs(self) -> None:
        self._complete_first_baseline()
        for path in sorted(self.queue.glob(f"{FIRST_JOB // 1000}???.json")):
            job_id, job = int(path.stem), json.loads(path.read_text())
            if job["state"] == "PENDING":
                self._start_or_cancel(job_id, job)
            elif job["state"] == "RUNNING":
                self._end_or_cancel(job_id)

    def _complete_first_baseline(self) -> None:
        """When its agents have ended though the run has not."""
        path = self.queue / f"{FIRST_BASELINE}.json"
        if not self._runs(FIRST_BASELINE) and json.loads(path.read_text())["state"] == "RUNNING":
            self._slurm.write(FIRST_BASELINE, {"state": "COMPLETED"})

    def _start_or_cancel(self, job_id: int, job: dict[str, Any]) -> None:
        is_baseline = job["script"] == self.spec.baseline_script
        running = sum(self._runs(other) for other in self.replicas)
        if self._is_cancelled(job_id):
            self._slurm.write(job_id, {"state": "CANCELLED"})
        elif is_baseline and self.baseline_capacity:
            self._start_baseline(job_id)
        elif not is_baseline and running < self.capacity:
            self._start_replica(job_id, _nodes_of(job["options"]))

    def _start_replica(self, job_id: int, count: int) -> None:
        nodes = [self._node() for _ in range(count)]
        agents = [self._agent("replica", job_id, index, node) for index, node in enumerate(nodes)]
        self._agents[job_id] = agents
        self.replicas[job_id] = agents[0]
        self._write(job_id, "RUNNING", "replica", nodes)

    def _end_or_cancel(self, job_id: int) -> None:
        if not self._runs(job_id):
            self._slurm.write(job_id, {"state": "COMPLETED"})
        elif self._is_cancelled(job_id):
            for agent in self._agents[job_id]:
                agent.send_signal(signal.SIGTERM)

    def _runs(self, job_id: int) -> bool:
        return any(agent.poll() is None for agent in self._agents.get(job_id, ()))

    def _is_cancelled(self, job_id: int) -> bool:
        return (self.queue / f"{job_id}.cancel").exists()


def _nodes_of(options: Sequence[str]) -> int:
    given = [option.partition("=")[2] for option in options if option.startswith("--nodes=")]
    return int(given[-1]) if given else 1
