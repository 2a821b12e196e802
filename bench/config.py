"""What the configuration compiler costs on real daemons: render, plan, preflight, apply, account sync.

    ./dev bench config [--slurm RELEASE] [--quick] [--each] [--check]

Every figure but the sync is a whole command, Python's start included; medians of several runs. Beside each
stands a peer of the same run: what Slurm itself needs for the like. The peer of the sync's associations is
one sacctmgr call for each person, which makes no coordinators, so that what those take is left out on our
side, too; "with.coord" is all of it beside the same calls. Twenty calls are timed, on the whole tree. With
--each the largest site's accounts, people and coordinators are really told one by one to a slurmdbd that
knows nobody (4 minutes on 26.05, half an hour on 22.05), and those are the peers: people for all but the
coordinators, all for all.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import Goal, report
from hpctools.errors import HpctoolsError
from hpctools.sandbox.releases import Installation, find
from hpctools.sandbox.root import under
from hpctools.slurm.run import run
from hpctools.slurm.versions import spell_release

ROOT = Path(__file__).resolve().parent.parent
PRIVATE = ROOT / "tests" / "conf" / "private_slurm.sh"
APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--net")
# nodes, departments, users
SIZES = ((100, 5, 100), (1000, 20, 500), (5000, 100, 2000))
QUICK_SIZES = ((100, 5, 100), (1000, 20, 500))
SECONDS = 3000.0
RENDER, PLAN, PREFLIGHT, NO_OP, SYNC, FASTER = 1.0, 3.0, 3.0, 5.0, 60.0, 10.0


def main() -> int:
    """Measure, report, and return the exit code."""
    given = _arguments()
    # As pip does when it installs: without it each command would compile what has changed since.
    compileall.compile_dir(ROOT / "hpctools", quiet=1)
    sizes = QUICK_SIZES if given.quick else SIZES
    there = _installation(given.slurm)
    measured = [_measured(there.root, *size) for size in sizes]
    if given.each:
        measured[-1] |= _run(there.root, *sizes[-1], "each")
    print(f"Slurm {spell_release(there.release)}")
    return report("config", [_row(each) for each in measured], _goals(measured[-1]), check=given.check)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The configuration compiler on real daemons.")
    parser.add_argument("--slurm", metavar="RELEASE", default="", help="another one than the machine has")
    parser.add_argument("--quick", action="store_true", help="up to 1,000 nodes only")
    parser.add_argument("--each", action="store_true", help="make every call of the sync's peer")
    parser.add_argument("--check", action="store_true", help="fail when a goal is not met")
    return parser.parse_args()


def _installation(release: str) -> Installation:
    try:
        return find(release)
    except HpctoolsError as error:
        sys.exit(f"bench config: {error}")


def _measured(root: Path, nodes: int, departments: int, users: int) -> dict[str, Any]:
    """Measure one size among daemons of its own, of the release whose system is in `root`."""
    found = _run(root, nodes, departments, users)
    return {"nodes": nodes, "departments": departments, "users": users, **found}


def _run(root: Path, *words: int | str) -> Mapping[str, Any]:
    begin = time.perf_counter()
    done = run(_inside(root, *words), timeout=SECONDS, env=_environment(), check=False)
    if done.code:
        sys.exit(f"{words[0]} nodes: {done.stdout}{done.stderr}")
    print(f"{' '.join(map(str, words))}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _inside(root: Path, *words: int | str) -> Sequence[str]:
    inside = [sys.executable, "-m", "bench.config_inside", *map(str, words)]
    return [*APART, *under(root, [str(PRIVATE), "env", "-C", str(ROOT), *inside])]


def _environment() -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _row(found: Mapping[str, Any]) -> dict[str, object]:
    """A line of the table: seconds, and ratios to the peers."""
    return {
        "nodes": found["nodes"],
        "depts": found["departments"],
        "users": found["users"],
        "render": found["render"],
        "plan": found["plan"],
        "asking": found["asking"],
        "preflight": found["preflight"],
        "slurmctld": found["slurmctld"],
        "no-op": found["no_op"],
        "sync": found["sync"],
        "people": found["people"],
        "each": found["per_user"],
        "coord": found["coordinators"],
        "faster": f"{_faster(found):.1f}x",
        "with.coord": f"{_faster_in_all(found):.1f}x",
    }


def _faster(found: Mapping[str, Any]) -> float:
    """How many times the sync of associations is faster than a sacctmgr call for each person in one."""
    calls = found.get("calls", {})
    alone = calls.get("add user", found["per_user"] * found["people"])
    return float(alone / (found["sync"] - found["coordinators"]))


def _faster_in_all(found: Mapping[str, Any]) -> float:
    """The same for the whole sync, coordinators and all, beside all calls that were made or timed."""
    calls = found.get("calls", {})
    return float((sum(calls.values()) or found["per_user"] * found["people"]) / found["sync"])


def _goals(found: Mapping[str, Any]) -> list[Goal]:
    size = f"{found['nodes']} nodes, {found['departments']} departments, {found['users']} users"
    return [
        Goal(f"render, {size}", found["render"], "s", "<=", RENDER),
        Goal(f"plan, {size}", found["plan"], "s", "<=", PLAN),
        Goal(f"preflight, {size}", found["preflight"], "s", "<=", PREFLIGHT),
        Goal(f"apply without changes, {size}", found["no_op"], "s", "<=", NO_OP),
        Goal(f"first sync of accounts, {size}", found["sync"], "s", "<=", SYNC),
        Goal("associations beside one sacctmgr call for each person", _faster(found), "x", ">=", FASTER),
    ]


if __name__ == "__main__":
    sys.exit(main())
