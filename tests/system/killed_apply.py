"""Runs inside a sandbox: kills applies of the real cluster, and prints what was found after each as JSON.

Usage: killed_apply.py ONE.yaml OTHER.yaml POINTS RANDOM SEED [whole]

Every apply goes from one site to the other or back. It is killed at POINTS acts, evenly spread over all that
an apply makes, and RANDOM times from outside at any time. Unless `whole`, slurmdbd's answers are kept, for
sites that differ in files alone, and nothing is booted beforehand: what is killed then is the switch and what
loads it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hpctools import conf
from hpctools.conf.apply import Boot, Cluster, Generations, History, Request, change, fileset, unfinished
from hpctools.conf.apply.live_planner import LivePlanner
from hpctools.conf.apply.slurm_daemons import SlurmDaemons
from hpctools.conf.apply.who import me
from hpctools.conf.facts_file import load_facts
from hpctools.conf.slurmdbd import Slurmdbd
from hpctools.conf.text import without_comments
from hpctools.site import load
from hpctools.slurm.ask import ask_commands
from hpctools.slurm.run import run

sys.path.insert(0, str(Path(__file__).parents[1] / "conf/apply"))
from killing import killed_at

FOLDER = Path("/etc/slurm")
FACTS = load_facts(FOLDER / "facts.yaml")
HISTORY = History(Path("/dev/shm/killed-apply"))  # in memory: thousands of records wait for no disk
WHOLE = sys.argv[6:] == ["whole"]
SHOW = ("scontrol", "--oneliner", "show", "partition", "nlp")
ANSWERS: dict[tuple[str, ...], str] = {}


def ask(argv: Sequence[str]) -> str:
    """Slurm's commands; slurmdbd is asked each question once."""
    if WHOLE or argv[0] != "sacctmgr":
        return ask_commands(argv)
    if tuple(argv) not in ANSWERS:
        ANSWERS[tuple(argv)] = ask_commands(argv)
    return ANSWERS[tuple(argv)]


class Planner(LivePlanner):
    def preflight(self, wanted: conf.Bundle) -> Boot:
        return super().preflight(wanted) if WHOLE else Boot()


PLANNER = Planner(FOLDER, None, ask)


def apply(bundle: conf.Bundle) -> Any:
    """One apply."""
    assert FACTS.daemons is not None
    name = bundle.accounts.clusters[0]
    cluster = Cluster(PLANNER, Slurmdbd(name), SlurmDaemons(FACTS.daemons, 2))
    request = Request(bundle, 2, "slurm", me(), "hpctools apply", prune=WHOLE)
    return change(request, Generations(FOLDER), HISTORY, cluster, agree=lambda _: None, tell=lambda _: None)


def texts() -> dict[str, str]:
    """The files as daemons read them: a file that differs in comments alone is left as it is."""
    names = [path.name for path in FOLDER.glob("*.conf")]
    found = fileset.read(FOLDER, names)
    return {name: without_comments(file.content.decode()) for name, file in found.items()}


def loaded() -> str:
    """What slurmctld says that nlp's MaxTime is; one that a killed apply has restarted is waited for."""
    end = time.monotonic() + 20
    while not (line := run(SHOW, timeout=20, check=time.monotonic() > end).stdout):
        time.sleep(0.05)
    return next(word.partition("=")[2] for word in line.split() if word.startswith("MaxTime="))


def people() -> set[str]:
    """Who is in which account, as slurmdbd says."""
    text = run(["sacctmgr", "-nP", "show", "assoc", "format=User,Account"], timeout=20).stdout
    return {line for line in text.split() if not line.startswith("|") and line != "root|root"}


def wanted_people(bundle: conf.Bundle) -> set[str]:
    """Who is to be in which account."""
    return {f"{row.user}|{row.account}" for row in bundle.accounts.associations}


def killed_after(seconds: float, action: Callable[[], object]) -> bool:
    """Run the action in a child that is killed from outside after a while."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def look(bundles: Sequence[conf.Bundle], target: conf.Bundle, limits: Sequence[str]) -> dict[str, Any]:
    """What there is after a kill, and what the next plan and the next apply make of it."""
    found = texts()
    sets = [{file.path: without_comments(file.text) for file in bundle.files} for bundle in bundles]
    goal = bundles.index(target)
    state = next((index for index, files in enumerate(sets) if files == found), None)
    runs = loaded()
    plan = PLANNER.plan(target, prune=WHOLE)
    # What a killed apply had told slurmctld may be done while we look; then the plan may tell of either.
    settled = loaded() == runs
    known = people() if WHOLE else set()
    owed = unfinished(HISTORY, Generations(FOLDER))
    outcome = apply(target)
    last = HISTORY.last()
    return {
        "files": state,
        "files_new": state == goal,
        "runs_new": runs == limits[goal],
        "runs": runs in limits,
        "plan_empty": plan.empty and not plan.unknown,
        "settled": settled,
        "owed": bool(owed and owed.owed),
        "changed": outcome.record is not None,
        "completed": texts() == sets[goal] and loaded() == limits[goal],
        "missing": sorted(set.intersection(*map(wanted_people, bundles)) - known) if WHOLE else [],
        "people": not WHOLE or wanted_people(target) == people(),
        "closed": last is not None and not last.open and not last.owed,
        "left": apply(target).record is not None,
    }


def main() -> None:
    """Kill, look, complete; the other way round; again."""
    paths, (points, at_random, seed) = sys.argv[1:3], map(int, sys.argv[3:6])
    bundles = [conf.compile(load(Path(path)), FACTS) for path in paths]
    limit, limits = at_random, []
    for bundle in (*bundles, bundles[0]):
        apply(bundle)
        limits.append(loaded())
    began = time.monotonic()
    acts = count(lambda: apply(bundles[1]))
    apply(bundles[0])
    seconds = time.monotonic() - began
    chosen, longest = random.Random(seed), seconds * 0.45
    rows: list[dict[str, Any]] = []
    while len(rows) < points + at_random:
        number = len(rows)
        target = bundles[1 - number % 2]
        if number < points:
            where: float = 1 + number * acts // points
            killed = killed_at(int(where), lambda target=target: apply(target))
        else:
            where = chosen.uniform(0, longest)
            killed = killed_after(where, lambda target=target: apply(target))
            if not killed:  # it had ended before: next time earlier, on the way back
                longest = where
        rows.append({"where": where, "killed": killed, **look(bundles, target, limits)})
        at_random += number >= points and not killed and at_random < 2 * limit
    print(json.dumps({"acts": acts, "limits": limits, "seconds": seconds, "rows": rows}))


def count(action: Callable[[], object]) -> int:
    """How many acts an action makes."""
    acts = 0
    from killing import is_act

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal acts
        acts += counting and is_act(event, arguments)

    counting = True
    sys.addaudithook(hook)
    action()
    counting = False
    return acts


if __name__ == "__main__":
    main()
