#!/usr/bin/env python3
"""Configure this node: run the steps of its role, in order, each until its check says that it is done."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

BUNDLE = Path(__file__).resolve().parent
sys.path.insert(0, str(BUNDLE))
# Compiled once for the node, and not into the bundle, which is what was uploaded and nothing else.
sys.pycache_prefix = os.environ.get("HPCTOOLS_ROOT", "") + "/var/lib/hpctools-lifecycle/compiled"

from provision.failures import Failure, Interrupted  # noqa: E402
from provision.files import STATE, on_node  # noqa: E402
from provision.journal import Journal  # noqa: E402
from provision.roles import UNKNOWN, Node, read_node  # noqa: E402
from provision.runner import Runner, exclusive, on_signals  # noqa: E402
from provision.settings import Settings, read_settings  # noqa: E402
from provision.stepfiles import Step, chosen, read_steps  # noqa: E402

RESOURCE_CONFIG = "/opt/ml/config/resource_config.json"
LOG = "/var/log/provision/provisioning.log"


def arguments(argv: list[str]) -> argparse.Namespace:
    """The command line; wrong usage ends with exit code 2."""
    parser = argparse.ArgumentParser(prog="run_steps.py", description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="the steps of this node's role; runs nothing")
    what.add_argument("--check", action="store_true", help="only ask each step whether it is done")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--step", metavar="NAME", help="this step alone (`10-mounts` or `mounts`)")
    which.add_argument("--from", dest="first", metavar="NAME", help="this step and those after it")
    parser.add_argument(
        "--json", action="store_true", help="what is said on the terminal is JSON, a line each"
    )
    parser.add_argument("--log", type=Path, default=on_node(LOG), help="the log file (JSON, a line each)")
    parser.add_argument("--steps", type=Path, default=BUNDLE / "steps", help=argparse.SUPPRESS)
    parser.add_argument(
        "--backoff", type=float, default=2.0, metavar="SECONDS", help="before the second attempt"
    )
    return parser.parse_args(argv)


def environment(node: Node, settings: Path, config: Path) -> dict[str, str]:
    """What a step finds in its environment; README.md has the list."""
    known = {
        "HPCTOOLS_BUNDLE": str(BUNDLE),
        "HPCTOOLS_SETTINGS": str(settings),
        "HPCTOOLS_RESOURCE_CONFIG": str(config),
        "HPCTOOLS_ROOT": os.environ.get("HPCTOOLS_ROOT", ""),
        "HPCTOOLS_PYTHON": sys.executable,
        "PYTHONPATH": str(BUNDLE),
        "PYTHONPYCACHEPREFIX": str(sys.pycache_prefix),
        "PYTHONNOUSERSITE": "1",
        "LC_ALL": "C",
    }
    return {**os.environ, **known, **node.environment()}


def this_node(settings_file: Path, config: Path, journal: Journal) -> tuple[Node, Settings]:
    """Who this node is, and the settings; a node of unknown role, and what settings there are, else."""
    settings = Settings({}, settings_file.parent)
    try:
        settings = read_settings(settings_file)
        return read_node(config, settings.groups()), settings
    except Failure as failure:
        journal.event("error", "role-unknown", message=str(failure))
        return Node.unknown(), settings


def listed(steps: tuple[Step, ...], as_json: bool) -> None:
    """Print the steps."""
    for step in steps:
        plain = {
            "step": step.name,
            "roles": sorted(step.roles),
            "limit": step.limit,
            "required": step.required,
        }
        print(json.dumps(plain) if as_json else f"{step.name:24} {' '.join(sorted(step.roles))}")


def main(argv: list[str]) -> int:
    """Run; returns 0 (all is done), 1 (a step failed), 2 (wrong usage) or 3 (the role is not known)."""
    options = arguments(argv)
    journal = Journal(options.log, sys.stdout, as_json=options.json)
    file = Path(os.environ.get("HPCTOOLS_SETTINGS") or BUNDLE / "site" / "settings.json")
    config = Path(os.environ.get("HPCTOOLS_RESOURCE_CONFIG") or on_node(RESOURCE_CONFIG))
    try:
        steps = read_steps(options.steps)
        node, settings = this_node(file, config, journal)
        code = 3 if node.role == UNKNOWN else 0
        steps = chosen(steps, node.role, only=options.step, first=options.first)
        if options.list:
            listed(steps, options.json)
            return code
        runner = Runner(journal, environment(node, file, config), node, settings, backoff=options.backoff)
        if options.check:
            return code or runner.check(steps)
        if os.geteuid() != 0 and not os.environ.get("HPCTOOLS_ROOT"):
            raise Failure("only root may configure a node: sudo bash on_create.sh", exit_code=2)
        with on_signals(), exclusive(on_node(STATE), journal):
            return max(code, runner.run(steps))
    except Interrupted as interrupted:
        journal.event("error", "interrupted", signal=interrupted.signal)
        return 128 + interrupted.signal
    except Failure as failure:
        journal.event("error", "failed", message=str(failure))
        return failure.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
