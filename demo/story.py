"""The story, chapter by chapter."""

from __future__ import annotations

import re
import shutil
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console

from demo.budget import BudgetDesk
from demo.checklist import Checklist
from demo.login import LoginDesk
from demo.ours import MAKER, take_down
from hpctools.elastic.folder import Event, RunFolder
from hpctools.sandbox.blueprint import example_site
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.rise import up
from hpctools.sandbox.status import status
from hpctools.slurm import parse, run
from hpctools.slurm.types import Job

RESEARCHER, RIVAL, NEIGHBOUR = "nlp1", "cv1", "dl1"
SMALLEST, LARGEST, URGENT = 2, 6, 2
READY_SECONDS = 20.0
DELAY = "0.02"  # seconds a sample, where a GPU would compute: two cores cannot be six nodes
SAME_WEIGHTS = """
import sys, torch
one, other = (torch.load(name) for name in sys.argv[1:])
assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
print(len(one), "tensors,", sum(value.numel() for value in one.values()), "numbers")
"""
TRAIN = Path(__file__).resolve().parents[1] / "slurm-conf" / "examples" / "university" / "train" / "train.py"


class Story:
    """One telling.

    Args:
        quick: train for fewer steps.
    """

    def __init__(self, sandbox: Sandbox, checklist: Checklist, console: Console, *, quick: bool) -> None:
        self.sandbox = sandbox
        self.see = checklist
        self.console = console
        self.steps = 180 if quick else 900
        self.train = ["python", "train.py", "--steps", str(self.steps)]

    def tell(self) -> None:
        """All chapters; raises NotObserved when one cannot go on."""
        self.cluster_comes_up()
        desk = BudgetDesk(self.sandbox, self.see, self.console)
        desk.open_books()
        door = LoginDesk(self.sandbox, self.see, desk)
        door.begins()
        busy = self.others_are_busy()
        folder = self.researcher_submits()
        self.login(NEIGHBOUR, ["scancel", str(busy)])
        self.grows(folder, f"{NEIGHBOUR}'s job has ended, replicas join the living training", after=0)
        self.urgent_job(folder)
        self.ends_as_if_nothing_happened(folder)
        desk.reconcile()
        door.shown()

    def _took(self, name: str, seconds: float) -> None:
        self.see.say(f"{name} {seconds:.1f} s")

    # --- 1 -----------------------------------------------------------------------------------------

    def cluster_comes_up(self) -> None:
        """A cluster from the reference site, and its accounts."""
        self.see.chapter("1  A university's cluster comes up on this machine")
        site = example_site()
        if site is None:
            raise FileNotFoundError("slurm-conf/examples/university/site.yaml")
        take_down(self.sandbox)
        begin = datetime.now(timezone.utc)
        up(self.sandbox, site, LARGEST, self._took, maker=MAKER)
        spent = (datetime.now(timezone.utc) - begin).total_seconds()
        found = status(self.sandbox)
        idle = [name for name, state in found.nodes if state == "idle"]
        self.see.check(found.state == "running", f"all {len(found.daemons)} daemons of the cluster run")
        self.see.check(len(idle) == LARGEST, f"{len(idle)} compute nodes are idle: {parse_fold(idle)}")
        self.see.check(spent <= READY_SECONDS, f"ready in {spent:.1f} s (at most {READY_SECONDS:.0f} s)")
        accounts = self.sandbox.inside("sacctmgr", "-nP", "show", "account", "format=account").stdout.split()
        wanted = {"nlp", "cv", "dl"}
        self.see.check(wanted <= set(accounts), f"the site is applied: {len(accounts)} accounts in slurmdbd")

    # --- 2 -----------------------------------------------------------------------------------------

    def others_are_busy(self) -> int:
        """A third department's job holds all nodes but two."""
        count = LARGEST - SMALLEST
        self.see.chapter(f"2  {NEIGHBOUR} uses {count} nodes; {RESEARCHER} submits an elastic run over SSH")
        words = ["hp-submit", "--parsable", f"--nodes={count}", "--exclusive", "--partition=dl", "--time=10"]
        job = int(self.login(NEIGHBOUR, [*words, "--", "sleep", "600"]).split(";")[0])
        self.see.wait(
            lambda: next((j for j in self.jobs(NEIGHBOUR) if j.id == job and j.state == "RUNNING"), None),
            f"job {job} of {NEIGHBOUR} runs on {count} nodes",
            30,
        )
        return job

    def researcher_submits(self) -> RunFolder:
        """nlp1 logs in over SSH and submits an elastic run."""
        self._give_training(RESEARCHER)
        words = ["hp-submit", f"--nodes={SMALLEST}:{LARGEST}", "--exclusive", "--partition=nlp", "--time=30"]
        words += [
            "--job-name=chars",
            "--output=train.log",
            "--",
            *self.train,
            "--delay",
            DELAY,
            "--save",
            "elastic.pt",
        ]
        self.see.say("$ " + " ".join(words))
        answer = self.login(RESEARCHER, words).strip()
        for line in answer.splitlines():
            self.see.say(line)
        found = re.search(r"chars-[0-9a-f]+", answer)
        self.see.check(found is not None, "hp-submit names the run", answer)
        name = found.group() if found else ""
        folder = RunFolder(self.home(RESEARCHER) / ".hpctools" / "runs" / name)
        self.see.wait(
            lambda: ((s := folder.status()) and s.step > 0 and s.world_size == SMALLEST) or None,
            f"the baseline job trains on {SMALLEST} nodes",
            40,
            lambda: self._state(folder),
        )
        return folder

    def grows(self, folder: RunFolder, why: str, after: int) -> None:
        """The run reaches its largest size."""
        self.see.chapter(
            f"3  It grows to {LARGEST} nodes: {why}" if not after else f"5  It grows back: {why}"
        )
        resize = self.see.wait(
            lambda: next((e for e in folder.events()[after:] if _is_resize(e, LARGEST)), None),
            f"the run trains on {LARGEST} nodes",
            60,
            lambda: self._state(folder),
        )
        self.see.say(f"resize at step {resize.detail.get('step')}; pause {_pause(resize)}")

    # --- 4 -----------------------------------------------------------------------------------------

    def urgent_job(self, folder: RunFolder) -> None:
        """cv1's job in a higher tier takes two nodes; only replicas yield; then the run grows back."""
        self.see.chapter(f"4  {RIVAL} of another department needs {URGENT} nodes now, in tier `high`")
        seen = len(folder.events())
        baseline = next(j.job_id for j in folder.jobs() if j.role == "baseline")
        before = {j.id for j in self.jobs(RESEARCHER) if j.state == "RUNNING"}
        words = [
            "hp-submit",
            "--parsable",
            f"--nodes={URGENT}",
            "--exclusive",
            "--qos=high",
            "--partition=cv",
        ]
        words += ["--time=5", "--job-name=urgent", "--output=urgent.log", "--", "srun", "sleep", "5"]
        self.see.say("$ " + " ".join(words))
        urgent = int(self.login(RIVAL, words).split(";")[0])
        job = self.see.wait(
            lambda: next((j for j in self.jobs(RIVAL) if j.id == urgent and j.state == "RUNNING"), None),
            f"job {urgent} of {RIVAL} runs",
            30,
        )
        self.see.say(f"it waited {(job.started or 0) - (job.submitted or 0)} s, on {', '.join(job.nodes)}")
        after = {j.id for j in self.jobs(RESEARCHER) if j.state == "RUNNING"}
        gone = before - after
        self.see.check(
            len(gone) == URGENT, f"exactly {URGENT} replica jobs yielded: {sorted(gone)}", f"{sorted(gone)}"
        )
        self.see.check(baseline in after, f"the baseline job {baseline} was not touched")
        shrunk = self.see.wait(
            lambda: next((e for e in folder.events()[seen:] if _is_resize(e, LARGEST - URGENT)), None),
            f"training goes on at {LARGEST - URGENT} nodes",
            20,
            lambda: self._state(folder),
        )
        self.see.say(f"resize at step {shrunk.detail.get('step')}; pause {_pause(shrunk)}")
        step = int(shrunk.detail.get("step") or 0)
        self.see.wait(
            lambda: ((s := folder.status()) and s.step > step + 3) or None,
            "steps are made while the urgent job runs",
            20,
            lambda: self._state(folder),
        )
        self._who_preempted(folder, seen)
        self.grows(folder, "the urgent job has ended", after=seen)

    def _who_preempted(self, folder: RunFolder, seen: int) -> None:
        self.see.wait(
            lambda: next((e for e in folder.events()[seen:] if RIVAL in str(e.detail)), None),
            f"hp-status knows that {RIVAL} preempted it",
            20,
        )
        text = self.login(RESEARCHER, ["hp-status", folder.path.name])
        for line in text.splitlines():
            self.see.say(line)

    # --- 6 -----------------------------------------------------------------------------------------

    def ends_as_if_nothing_happened(self, folder: RunFolder) -> None:
        """The run ends; a run that never resized gives the same loss and weights, bit for bit."""
        self.see.chapter("6  The run ends as if nothing had happened")
        self.see.wait(
            lambda: ((s := folder.status()) and s.state == "finished") or None,
            f"the run finishes its {self.steps} steps",
            120,
            lambda: self._state(folder),
        )
        elastic = _last_step((self.home(RESEARCHER) / "train.log").read_text())
        fixed = self._never_resized()
        self.see.say(f"elastic:       {elastic[0]}")
        self.see.say(f"never resized: {fixed[0]}")
        self.see.check(
            elastic[1:] == fixed[1:], f"the final loss is that of a run that never resized: {fixed[2]}"
        )
        words = ["python", "-c", SAME_WEIGHTS, "elastic.pt", "fixed.pt"]
        same = self.sandbox.inside(*words, user=RESEARCHER, timeout=60, check=False)
        self.see.check(
            same.code == 0, f"the weights are equal bit for bit: {same.stdout.strip()}", same.stderr[-200:]
        )
        self.see.wait(
            lambda: not self._left() or None,
            "no job of the run is left behind",
            20,
            lambda: str(self._left()),
        )

    def _never_resized(self) -> tuple[str, ...]:
        """The same training as one process, outside of any run."""
        words = [*self.train, "--save", "fixed.pt"]
        return _last_step(self.sandbox.inside(*words, user=RESEARCHER, timeout=300).stdout)

    def _left(self) -> list[int]:
        live = ("RUNNING", "PENDING", "COMPLETING")
        return [job.id for job in self.jobs(RESEARCHER) if job.state in live]

    def farewell(self) -> None:
        """Where to look, and how to end it."""
        found = status(self.sandbox)
        self.see.chapter("The cluster goes on running")
        self.see.say(f"log in:  {found.ssh[0].replace('USER', RESEARCHER)}")
        self.see.say("look:    ./dev shell, then: hpctools sandbox status")
        self.see.say("end it:  ./dev shell, then: hpctools sandbox down")

    # --- tools -------------------------------------------------------------------------------------

    def login(self, user: str, words: list[str]) -> str:
        """Run a command as a person would: over SSH, on the first login node."""
        host = self.sandbox.blueprint().login_hosts[0]
        port = self.sandbox.running().ports[f"sshd-{host}"]
        options = [
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
            "-o",
            "LogLevel=ERROR",
        ]
        argv = ["ssh", "-i", str(self.sandbox.layout.key), "-p", str(port), *options, f"{user}@127.0.0.1"]
        return run.run([*argv, "--", *words], timeout=60).stdout

    def jobs(self, user: str) -> list[Job]:
        """A user's jobs as the controller knows them."""
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
        return parse.jobs(self.sandbox.inside(*argv).stdout)

    def home(self, user: str) -> Path:
        """A person's home, seen from outside."""
        return self.sandbox.layout.tree / "home" / user

    def _give_training(self, user: str) -> None:
        for source in TRAIN.parent.glob("*.py"):
            target = self.home(user) / source.name
            shutil.copyfile(source, target)
            shutil.chown(target, user=self.home(user).stat().st_uid, group=self.home(user).stat().st_gid)

    def _state(self, folder: RunFolder) -> str:
        found = folder.status() if folder.path.exists() else None
        if found is None:
            log = self.home(RESEARCHER) / "train.log"
            return f"no status; {log.read_text()[-300:] if log.exists() else 'no log'}"
        return f"state {found.state}, {found.world_size} workers, step {found.step}, {found.message}"


def parse_fold(names: list[str]) -> str:
    """Node names as Slurm folds them."""
    from ClusterShell.NodeSet import NodeSet

    return str(NodeSet.fromlist(names))


def _is_resize(event: Event, to: int) -> bool:
    return event.event == "resize" and event.detail.get("to") == to


def _pause(event: Event) -> str:
    seconds = event.detail.get("pause_s")
    return f"{seconds:.3f} s" if isinstance(seconds, float) else "unknown"


def _last_step(text: str) -> tuple[str, ...]:
    """The last line that tells a step: the line, its step and its loss."""
    found = re.findall(r"^(epoch \d+ step (\d+) loss (\S+) world \d+)$", text, flags=re.MULTILINE)
    return tuple(found[-1]) if found else ("no step was printed", "", "")
