"""A whole elastic run on this machine: real agents and workers, and a Slurm that is a folder of job files."""

from __future__ import annotations

import getpass
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hpctools.elastic.folder import Event, RunFolder, RunStatus, utc_now
from hpctools.elastic.spec import RunSpec

PROGRAMS = Path(__file__).parent / "programs"
AGENT = [sys.executable, str(PROGRAMS / "agent.py")]
POLL = 0.02


class LocalRun:
    """An elastic run, and the part of Slurm that starts, preempts and cancels its jobs.

    Attributes:
        capacity: how many replica jobs may run at a time; pending ones start when there is room.
    """

    def __init__(
        self, base: Path, command: Sequence[str], nodes: tuple[int, int], grace: float = 8.0
    ) -> None:
        self.queue = base / "queue"
        self.out = base / "out"
        for folder in (self.queue, self.out):
            folder.mkdir()
        spec = RunSpec(
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
        self.spec = spec
        self.folder = RunFolder.create(base / "runs" / spec.id, spec)
        self.capacity = 0
        self.baseline: list[subprocess.Popen[bytes]] = []
        self.replicas: dict[int, subprocess.Popen[bytes]] = {}
        self._logs = (base / "agents.log").open("ab")
        self._stop = threading.Event()
        self._scheduler = threading.Thread(target=self._schedule, daemon=True)

    def __enter__(self) -> LocalRun:
        self.baseline = [
            self._agent("baseline", 1, node, f"n{node + 1}") for node in range(self.spec.min_nodes)
        ]
        self._scheduler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._scheduler.join()
        for agent in [*self.baseline, *self.replicas.values()]:
            if agent.poll() is None:
                agent.kill()
            agent.wait()
        self._logs.close()

    # What a test does to the run

    def preempt(self, count: int) -> list[int]:
        """The youngest replicas get SIGTERM, and their nodes are not given back; returns their job ids."""
        running = sorted(job for job, agent in self.replicas.items() if agent.poll() is None)
        self.capacity -= count
        for job in running[-count:]:
            self.replicas[job].send_signal(signal.SIGTERM)
        return running[-count:]

    def pid_of(self, prefix: str) -> int:
        """The process of a worker whose name begins so, once it was fed something."""
        return int(
            self.wait(lambda: [line["pid"] for line in self.ledger() if line["worker"].startswith(prefix)])[
                -1
            ]
        )

    def wait(self, condition: Callable[[], Any], limit: float = 40.0) -> Any:
        """What the condition returns as soon as it is true."""
        deadline = time.monotonic() + limit
        while not (value := condition()):
            ended = [agent.poll() for agent in self.baseline]
            if time.monotonic() > deadline or None not in ended:
                raise AssertionError(f"did not happen; baseline {ended}, {self.status()}\n{self.story()}")
            time.sleep(POLL)
        return value

    def wait_for_world(self, size: int, limit: float = 40.0) -> None:
        """Until `size` workers have committed a step together, as the last thing that happened."""
        self.wait(lambda: (self.committed() or [{}])[-1].get("world") == size, limit)

    def wait_for_steps(self, count: int) -> None:
        """Until so many further steps are committed."""
        first = len(self.committed())
        self.wait(lambda: len(self.committed()) >= first + count)

    def end(self, limit: float = 60.0) -> int:
        """Wait for the baseline's first agent; returns its exit code, when all agents have ended."""
        code = self.baseline[0].wait(limit)
        for agent in [*self.baseline, *self.replicas.values()]:
            agent.wait(10)
        return code

    # What a test sees

    def status(self) -> RunStatus | None:
        return self.folder.status()

    def events(self, *kinds: str) -> list[Event]:
        return [event for event in self.folder.events() if event.event in kinds]

    def ledger(self) -> list[dict[str, Any]]:
        """Everything that the workers have written."""
        return [line for path in sorted(self.out.glob("*.jsonl")) for line in _lines(path)]

    def committed(self) -> list[dict[str, Any]]:
        """One line a committed step, in order; workers that tell of the same step must agree."""
        steps: dict[int, dict[str, Any]] = {}
        for line in self.ledger():
            if "committed" in line:
                known = steps.setdefault(line["step"], line)
                assert (known["committed"], known["loss"]) == (line["committed"], line["loss"]), (known, line)
                if line["rank"] == 0:
                    steps[line["step"]] = line
        return [steps[step] for step in sorted(steps)]

    def story(self) -> str:
        """All that is known, for a failed assertion."""
        events = "\n".join(f"{event.time} {event.event} {event.detail}" for event in self.folder.events())
        log = (self.out.parent / "agents.log").read_text(errors="replace")
        return f"{events}\n--- agents\n{log[-6000:]}"

    # Slurm

    def _agent(self, role: str, job_id: int, index: int, node: str) -> subprocess.Popen[bytes]:
        environ = {
            **os.environ,
            "SLURM_JOB_ID": str(job_id),
            "SLURM_NODEID": str(index),
            "SLURMD_NODENAME": node,
        }
        argv = [*AGENT, str(self.queue), "--run-dir", str(self.folder.path), "--role", role]
        return subprocess.Popen(argv, env=environ, stdout=self._logs, stderr=self._logs)

    def _schedule(self) -> None:
        while not self._stop.wait(POLL):
            for path in sorted(self.queue.glob("1*.json")):
                job_id, values = int(path.stem), json.loads(path.read_text())
                agent = self.replicas.get(job_id)
                if values["state"] == "PENDING":
                    self._start_or_cancel(job_id)
                elif values["state"] == "RUNNING" and agent is not None:
                    self._end_or_cancel(job_id, agent)

    def _start_or_cancel(self, job_id: int) -> None:
        running = sum(agent.poll() is None for agent in self.replicas.values())
        if (self.queue / f"{job_id}.cancel").exists():
            self._mark(job_id, "CANCELLED")
        elif running < self.capacity:
            node = f"n{self.spec.min_nodes + 1 + len(self.replicas)}"
            self.replicas[job_id] = self._agent("replica", job_id, 0, node)
            self._mark(job_id, "RUNNING", nodes=[node], comment=f"hp-run:{self.spec.id}")

    def _end_or_cancel(self, job_id: int, agent: subprocess.Popen[bytes]) -> None:
        if agent.poll() is not None:
            self._mark(job_id, "COMPLETED")
        elif (self.queue / f"{job_id}.cancel").exists():
            agent.send_signal(signal.SIGTERM)

    def _mark(self, job_id: int, state: str, **values: object) -> None:
        temporary = self.queue / f".{job_id}.test"
        temporary.write_text(json.dumps({"state": state, **values}))
        temporary.rename(self.queue / f"{job_id}.json")


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        if line.endswith("}"):
            yield json.loads(line)


def training(out: Path, *options: str) -> list[str]:
    """The command of the test training."""
    return [sys.executable, str(PROGRAMS / "train.py"), "--out", str(out), *options]
