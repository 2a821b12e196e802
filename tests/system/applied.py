"""A real cluster that applies are made of, and the site files that they go to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hpctools.slurm.run import Completed, Process, start
from tests.system.harness import Cluster, until


class Applied:
    """A cluster that applies are made of; site files and programs are put into root's reach inside.

    Attributes:
        base: the text of the site that the cluster was made from.
    """

    def __init__(self, cluster: Cluster, site_file: Path) -> None:
        self.cluster = cluster
        self.base = site_file.read_text()
        self.facts = self.read("/etc/slurm/facts.yaml")
        self.folder = cluster.sandbox.layout.tree / "home"

    def read(self, path: str) -> str:
        return self.cluster.inside("cat", path).stdout

    def give(self, name: str, text: str) -> str:
        """Put a file into /home, for root; return its path inside."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return f"/home/{name}"

    def command(self, text: str, *words: str, facts: str = "") -> list[str]:
        chosen = self.give("facts.yaml", facts or self.facts)
        return ["hpctools", "apply", self.give("site.yaml", text), "--facts", chosen, *words]

    def apply(self, text: str, *words: str, facts: str = "", check: bool = True) -> Completed:
        argv = self.command(text, *words, facts=facts)
        return self.cluster.inside(*argv, timeout=90, check=check)

    def starting(self, text: str, *words: str, facts: str = "", log: Path) -> Process:
        """An apply that runs beside the test."""
        argv = self.cluster.sandbox.command(self.command(text, *words, facts=facts))
        with log.open("wb") as stream:
            return start(argv, stdout=stream, stderr=stream)

    def hpctools(self, *words: str, check: bool = True) -> Completed:
        return self.cluster.inside("hpctools", *words, timeout=90, check=check)

    def history(self) -> list[dict[str, Any]]:
        changes: list[dict[str, Any]] = json.loads(self.hpctools("history", "--json").stdout)["changes"]
        return changes

    def applies(self) -> list[str]:
        """What came of each apply."""
        return [each["result"] for each in self.history() if each["kind"] == "apply"]

    def max_time(self) -> str:
        """nlp's, as slurmctld runs it."""
        shown = self.cluster.inside("scontrol", "--oneliner", "show", "partition", "nlp").stdout
        return re.findall(r"MaxTime=(\S+)", shown)[0]

    def plan(self, text: str) -> dict[str, Any]:
        site = self.give("site.yaml", text)
        plan: dict[str, Any] = json.loads(self.hpctools("plan", site, "--json").stdout)
        return plan

    def running_job(self) -> int:
        """A job that runs, and that slurmctld has written down: it forgets by kill -9 what it has not."""
        job = self.cluster.submit("nlp1", "-p", "nlp", "--wrap", "sleep 600")
        until(lambda: self.cluster.job(job, "nlp1").state == "RUNNING")
        self.written_down(job)
        return job

    def written_down(self, job: int) -> None:
        """Wait until slurmctld's file has a job as it is now."""
        before = self._saved_at()
        # What changes is written once more: it may have been before we looked, and then not again for long.
        self.cluster.inside("scontrol", "update", f"jobid={job}", "comment=written")
        until(lambda: self._saved_at() > before)

    def _saved_at(self) -> int:
        try:
            return (self.cluster.sandbox.layout.tree / "var/spool/slurmctld/job_state").stat().st_mtime_ns
        except FileNotFoundError:  # slurmctld is just putting another in its place
            return 0

    def members(self) -> set[str]:
        rows = self.cluster.inside("sacctmgr", "-nP", "show", "assoc", "account=nlp-lab-a", "format=User")
        return set(rows.stdout.split())


def shorter(text: str, hours: int = 36) -> str:
    """nlp's jobs may run for a shorter time: a reconfigure."""
    changed = text.replace("max_time: 2-00:00:00", f"max_time: {hours}:00:00", 1)
    assert changed != text
    return changed


def with_member(text: str) -> str:
    """One more person in nlp-lab-a: live."""
    changed = text.replace("members: [nlp1, nlp2]", "members: [nlp1, nlp2, nlp9]")
    assert changed != text
    return changed


def restarting(text: str, value: int) -> str:
    """A setting that takes a restart of slurmctld on 22.05."""
    return text.replace("cluster:\n", f"cluster:\n  parameters: {{MaxJobCount: '{value}'}}\n", 1)


def anew(text: str) -> str:
    """A site whose change takes a restart of slurmctld on every release."""
    return text.replace("cluster:\n", "cluster:\n  parameters: {SlurmctldPidFile: /run/slurm/other.pid}\n", 1)
