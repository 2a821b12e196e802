"""A real cluster whose site is edited, and somebody who does exactly what a plan says."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpctools import conf
from hpctools.conf.account_difference import difference
from hpctools.conf.facts_file import FACTS_FILE, load_facts
from hpctools.conf.plan import Change, Need, Plan, Step, make_plan, read
from hpctools.conf.sync import additions, removals
from hpctools.sandbox import daemons, namespace, process
from hpctools.sandbox.daemons import Daemon
from hpctools.sandbox.reconfigure import reconfigure
from hpctools.site import loads
from tests.system.harness import Cluster, until

Edit = tuple[str, str]
Told = tuple[str, str, str, str | None, str | None, Need]


def told(plan: Plan) -> list[Told]:
    """The changes without what they mean for people."""
    return [(c.area, c.subject, c.key, c.before, c.after, c.needs) for c in plan.changes]


class Rig:
    """A sandbox, its site and its facts."""

    def __init__(self, cluster: Cluster, site_file: Path) -> None:
        self.cluster = cluster
        self.sandbox = cluster.sandbox
        self.folder = self.sandbox.layout.slurm_conf
        self.text = site_file.read_text()
        self.facts = load_facts(self.folder / FACTS_FILE)
        self.controller = self.sandbox.blueprint().controller

    def bundle(self, *edits: Edit, **facts: Any) -> conf.Bundle:
        """What the edited site wants, with facts changed; each edit must find its text."""
        text = self.text
        for before, after in edits:
            assert before in text
            text = text.replace(before, after)
        return conf.compile(loads(text), replace(self.facts, **facts))

    def ask(self, argv: Sequence[str]) -> str:
        return self.cluster.inside(*argv).stdout

    def plan(self, wanted: conf.Bundle, *, prune: bool = False) -> Plan:
        live = read(self.folder, wanted.accounts.clusters[0], wanted=wanted.accounts, ask=self.ask)
        return make_plan(wanted, live, folder=Path("/etc/slurm"), prune=prune)

    def obey(self, plan: Plan, wanted: conf.Bundle, *, prune: bool = False) -> None:
        """Do what the plan says, and nothing else; then the next plan is empty."""
        assert not [step for step in plan.steps if step.need is Need.DRAIN and step.nodes], "jobs first"
        self._tell_slurmdbd(wanted, "additions", prune=prune)
        self.write(wanted)
        for step in plan.steps:
            self._do(step)
        self._tell_slurmdbd(wanted, "removals", prune=prune)
        self.settled(wanted, prune=prune)

    def settled(self, wanted: conf.Bundle, *, prune: bool = False) -> None:
        """Wait until nothing separates the cluster from what is wanted; say what does otherwise."""
        last: list[list[Change]] = []

        def empty() -> bool:
            found = self.plan(wanted, prune=prune)
            last.append(list(found.changes))
            return found.empty and not found.unknown

        try:
            until(empty, 20)
        except AssertionError:
            raise AssertionError(f"not empty after what it said was done: {last[-1]}") from None

    def write(self, wanted: conf.Bundle) -> None:
        conf.write(wanted, self.folder)
        shutil.chown(self.folder / "slurmdbd.conf", *self.owner())

    def owner(self) -> tuple[int, int]:
        there = (self.sandbox.layout.tree / "var/spool/slurmctld").stat()
        return there.st_uid, there.st_gid

    def _tell_slurmdbd(self, wanted: conf.Bundle, phase: str, *, prune: bool) -> None:
        live = read(self.folder, wanted.accounts.clusters[0], ask=self.ask)
        assert live.accounts is not None
        found = difference(wanted.accounts, live.accounts, prune=prune, busy=live.jobs)
        for call in additions(found) if phase == "additions" else removals(found):
            self.cluster.inside("sacctmgr", "--immediate", *call.argv, stdin=call.stdin)

    def _do(self, step: Step) -> None:
        if step.need is Need.RECONFIGURE:
            reconfigure(self.sandbox)
        elif step.need is Need.RESTART_SLURMCTLD:
            self.restart(replace(daemons.slurmctld(), host=self.controller))
        elif step.need is Need.RESTART_SLURMDBD:
            self.restart(replace(daemons.slurmdbd(), host=self.controller))
        elif step.need is Need.RESTART_SLURMDS:
            for node in step.nodes:
                self.restart(daemons.slurmd(node, node))
        self.answers()

    def answers(self) -> None:
        until(lambda: "UP" in self.ask_patiently("scontrol", "ping"), 30)
        until(lambda: self.cluster.inside("sinfo", check=False).code == 0, 30)

    def ask_patiently(self, *argv: str) -> str:
        return self.cluster.inside(*argv, check=False).stdout

    def restart(self, daemon: Daemon) -> None:
        self.stop(daemon.name)
        holder = self.sandbox.running().holder
        assert holder is not None
        log = self.sandbox.layout.logs / f"{daemon.name}.log"
        self.sandbox.remember(daemon.name, namespace.start(holder, daemon.host, daemon.argv, log))

    def stop(self, name: str) -> None:
        identity = self.sandbox.running().processes.get(name)
        if identity and process.alive(identity):
            process.send(identity, signal.SIGTERM)
            if not process.wait_gone(identity, 20):  # a slurmctld of 24.11.5 may hang for good over it
                process.send(identity, signal.SIGKILL)
                assert process.wait_gone(identity, 20)
