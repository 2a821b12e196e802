"""Where the benches of elastic training run: a cluster of real Slurm daemons, or bare processes.

Both offer the same: a run of `elastic_programs/train.py`, room for its replicas, and faults.
"""

from __future__ import annotations

import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from bench import run_processes, steps
from hpctools.elastic.folder import RunFolder
from hpctools.sandbox import process
from hpctools.sandbox.blueprint import example_site
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.rise import up
from hpctools.slurm.run import run
from hpctools.testing.local_run import LocalRun

PROGRAMS = Path(__file__).with_name("elastic_programs")
RESEARCHER, PARTITION = "dl1", "dl"
URGENT_USER, OTHER_USER = "cv2", "cv1"
"""Who submits what preempts; nodes that are only to be full belong to both, for each may have 32 GPUs."""
URGENT = ("--partition=cv", "--qos=high", "--exclusive", "--time=120")
LIMIT_SECONDS = 180.0
POLL_SECONDS = 0.1


class Rig(Protocol):
    """A run on some kind of cluster.

    Attributes:
        logs: folder of its step logs.
        least, most: nodes that the run may have.
    """

    logs: Path
    least: int
    most: int

    @property
    def folder(self) -> RunFolder:
        """The run's folder."""
        ...

    def room(self, replicas: int) -> None:
        """Let so many replicas run; more are preempted, fewer start again by themselves."""
        ...

    def processes(self) -> list[run_processes.Proc]:
        """Agents and workers that live."""
        ...


def end_well() -> None:
    """SIGTERM ends the bench as Ctrl-C does: clusters, runs and mounts of it end, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def await_(condition: Callable[[], object], otherwise: str, limit: float = LIMIT_SECONDS) -> None:
    """Wait until it is so.

    Raises:
        TimeoutError: it did not become so.
    """
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} within {limit:g} s")
        time.sleep(POLL_SECONDS)


def await_size(rig_logs: Path, workers: int, since: float, settled: int = steps.NORMAL_STEPS) -> None:
    """Wait until so many workers have trained some steps together after a moment."""

    tail = steps.Tail(rig_logs)

    def is_so() -> bool:
        recent = [step for step in tail.look() if step["at"] > since][-settled - 1 :]
        return len(recent) > settled and all(step["world"] == workers for step in recent)

    await_(is_so, f"{rig_logs.name} did not come to {workers} workers")


def await_whole(rig: Rig) -> None:
    """Give all of its nodes to the run; wait until it trains with them."""
    rig.room(rig.most - rig.least)
    await_size(rig.logs, rig.most, time.monotonic())


class Local:
    """Processes of this machine, and a Slurm that is a folder."""

    def __init__(self, run: LocalRun, logs: Path) -> None:
        self._run = run
        self.logs = logs
        self.least, self.most = run.spec.min_nodes, run.spec.max_nodes

    @property
    def folder(self) -> RunFolder:
        """The run's folder."""
        return self._run.folder

    def room(self, replicas: int) -> None:
        """More room, or some of them are preempted."""
        if replicas >= self._run.capacity:
            self._run.capacity = replicas
        else:
            self._run.preempt(self._run.capacity - replicas)

    def lose_baseline(self) -> None:
        """The baseline's nodes die at once, and Slurm says so."""
        self._run.lose_baseline()

    def processes(self) -> list[run_processes.Proc]:
        """Agents and workers of this run."""
        return list(run_processes.processes(lambda pid: True, str(self.folder.path)))


@contextmanager
def local(
    least: int, most: int, environ: dict[str, str], storage: Path | None = None, **more: Any
) -> Iterator[Local]:
    """A run on this machine.

    Args:
        storage: an empty folder for all of the run but the step logs; a temporary one when None.
        more: fields of its `RunSpec`.
    """
    with tempfile.TemporaryDirectory(prefix="bench-local-", ignore_cleanup_errors=True) as temporary:
        base = storage or Path(temporary)
        logs = Path(temporary) / "hpctools"
        logs.mkdir()
        with LocalRun(base, _training(str(logs), environ), (least, most), **more) as running:
            try:
                yield Local(running, logs)
            except TimeoutError:
                _tell(running.folder, running.log.read_text(errors="replace"))
                raise


@contextmanager
def disk() -> Iterator[Path]:
    """A small file system of its own, which `frozen` can stop.

    Raises:
        CommandError: it cannot be made here (loop devices, root).
    """
    with tempfile.TemporaryDirectory(prefix="bench-disk-") as base:
        image, mount = Path(base) / "image", Path(base) / "disk"
        mount.mkdir()
        with image.open("wb") as file:
            file.truncate(64 << 20)
        run(["mkfs.ext4", "-q", str(image)], timeout=30)
        run(["mount", "-o", "loop,noatime", str(image), str(mount)], timeout=30)
        try:
            (mount / "lost+found").rmdir()
            yield mount
        finally:
            run(["umount", "--lazy", str(mount)], timeout=30)


@contextmanager
def frozen(mount: Path) -> Iterator[None]:
    """Whatever writes to the file system waits until the context ends."""
    run(["fsfreeze", "--freeze", str(mount)], timeout=30)
    try:
        yield
    finally:
        run(["fsfreeze", "--unfreeze", str(mount)], timeout=30)


class Cluster:
    """A sandbox: real slurmctld, slurmdbd and slurmds; the run's replicas are real jobs.

    Args:
        nodes: that the cluster has; all that the run may have.
        policy: an elastic policy in YAML; empty for none.
    """

    def __init__(
        self, sandbox: Sandbox, least: int, most: int, environ: dict[str, str], policy: str = ""
    ) -> None:
        self.sandbox = sandbox
        self.least, self.most = least, most
        self._home = sandbox.layout.tree / "home" / RESEARCHER
        self.logs = self._home / "hpctools"
        self._blockers: list[int] = []
        sandbox.inside("mkdir", "-p", f"/home/{RESEARCHER}/hpctools", user=RESEARCHER)
        words = [f"--partition={PARTITION}", "--exclusive", "--time=120", f"--nodes={least}:{most}"]
        if policy:
            (self.logs / "policy.yaml").write_text(policy)
            words += ["--elastic-policy", f"/home/{RESEARCHER}/hpctools/policy.yaml"]
        words += ["--", *_training(f"/home/{RESEARCHER}/hpctools", environ)]
        done = sandbox.inside("hp-submit", *words, user=RESEARCHER)
        found = re.search(r"Elastic run (\S+):", done.stdout + done.stderr)
        if found is None:
            raise RuntimeError(f"hp-submit: {done.stdout}{done.stderr}")
        self._id = found.group(1)
        self._inside = f"/home/{RESEARCHER}/.hpctools/runs/{self._id}"

    @property
    def folder(self) -> RunFolder:
        """The run's folder."""
        return RunFolder(self._home / ".hpctools" / "runs" / self._id)

    def room(self, replicas: int) -> None:
        """Urgent jobs of one node each take what is not for replicas."""
        wanted = self.most - self.least - replicas
        while len(self._blockers) < wanted:
            user = OTHER_USER if len(self._blockers) % 2 else URGENT_USER
            self._blockers.append(self.urgent(1, user=user))
        if gone := self._blockers[wanted:]:
            self.cancel(*gone)
            del self._blockers[wanted:]

    def urgent(
        self, nodes: int, *more: str, script: str = "exec sleep 100000", user: str = URGENT_USER
    ) -> int:
        """Submit a job that preempts; returns its id."""
        words = ["sbatch", "--parsable", *URGENT, f"--nodes={nodes}", "--output=/dev/null", *more]
        return int(self.sandbox.inside(*words, "--wrap", script, user=user).stdout.split(";")[0])

    def cancel(self, *jobs: int) -> None:
        """scancel, as root."""
        self.sandbox.inside("scancel", *map(str, jobs))

    def states(self) -> dict[int, str]:
        """The state of each job that slurmctld knows."""
        lines = self.sandbox.inside("squeue", "-h", "-t", "all", "-o", "%A %T").stdout.split("\n")
        return {int(words[0]): words[1] for line in lines if (words := line.split())}

    def wait_of_urgent(self, nodes: int) -> tuple[int, float]:
        """Submit a job that preempts, and wait until it runs; its id, and seconds since before sbatch."""
        mark = f"/home/{URGENT_USER}/began"
        seen = self.sandbox.layout.tree / "home" / URGENT_USER / "began"
        seen.unlink(missing_ok=True)
        asked = time.clock_gettime(time.CLOCK_BOOTTIME)
        script = f"cut -d' ' -f1 /proc/uptime >{mark}.new; mv {mark}.new {mark}; exec sleep 100000"
        job = self.urgent(nodes, script=script)
        await_(seen.exists, f"urgent job {job} did not start")
        return job, float(seen.read_text()) - asked

    def processes(self) -> list[run_processes.Proc]:
        """Agents and workers of this run, in this sandbox only."""
        holder = self.sandbox.running().holder
        assert holder is not None
        own = run_processes.namespace(holder.pid)
        return list(run_processes.processes(lambda pid: run_processes.namespace(pid) == own, self._inside))

    def daemon(self, name: str) -> process.Identity:
        """A daemon of the cluster: `slurmctld`, `slurmd-NODE`."""
        return self.sandbox.running().processes[name]

    def heal(self) -> None:
        """Start again what does not run."""
        _up(self.sandbox, self.most)

    def kill_node(self, node: str) -> None:
        """Everything on a node dies at once: slurmd, the steps' daemons, agents and workers."""
        process.send(self.daemon(f"slurmd-{node}"), signal.SIGKILL)
        holder = self.sandbox.running().holder
        assert holder is not None
        own = run_processes.namespace(holder.pid)
        # What starts a killed process again may have done so before it was killed itself.
        while killed := list(run_processes.on_node(node, own)):
            for pid in killed:
                run_processes.kill(pid)


@contextmanager
def cluster(least: int, most: int, environ: dict[str, str], policy: str = "") -> Iterator[Cluster]:
    """A run on a cluster of its own; both end with the context. `policy` as `Cluster` takes it."""
    base = Path(tempfile.mkdtemp(prefix="bench-cluster-"))
    sandbox = Sandbox(base / "state")
    try:
        _up(sandbox, most)
        rig = Cluster(sandbox, least, most, environ, policy)
        try:
            yield rig
        except TimeoutError:
            _tell(rig.folder, sandbox.inside("squeue").stdout)
            raise
    finally:
        down(sandbox)
        shutil.rmtree(base, ignore_errors=True)


def _tell(folder: RunFolder, more: str) -> None:
    """What the run and its cluster say, when something that was awaited did not happen."""
    events = [f"{event.time} {event.event} {event.detail}" for event in folder.events()[-40:]]
    print("\n".join([*events, str(folder.status()), more[-3000:]]), file=sys.stderr, flush=True)


def _up(sandbox: Sandbox, nodes: int) -> None:
    site = example_site()
    if site is None:
        raise RuntimeError("the example site is not there: run this from a checkout")
    up(sandbox, site, nodes, lambda name, seconds: None)


def _training(logs: str, environ: dict[str, str]) -> list[str]:
    """The command; it sets its own environment, so that it begins with Python and workers can be forked."""
    assignments = [f"{name}={value}" for name, value in environ.items()]
    return [sys.executable, str(PROGRAMS / "train.py"), logs, *assignments]
