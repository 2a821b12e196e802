#!/usr/bin/env python3
"""Watch slurm.conf and resource_config.json, and run the steps of Slurm's files when they have changed.

A slurmctld that was started, or told to read other files, has only forgotten that HyperPod's partitions are
closed: then the step that closes them is run alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

BUNDLE = Path(__file__).resolve().parent
sys.path.insert(0, str(BUNDLE))
sys.pycache_prefix = os.environ.get("HPCTOOLS_ROOT", "") + "/var/lib/hpctools-lifecycle/compiled"

from provision.files import on_node  # noqa: E402
from provision.settings import read_settings  # noqa: E402
from provision.slurm_conf import INCLUDE  # noqa: E402

SECONDS = float(os.environ.get("HPCTOOLS_FOLLOW_SECONDS", "5"))
ATTEMPTS, PAUSE = 3, 60.0
STEPS = ("slurm-include", "slurm-daemons", "agent-partitions")
Marks = tuple[tuple[int, int, int] | None, ...]


def watched() -> tuple[Path, ...]:
    """The files that the agent writes."""
    slurm = read_settings(BUNDLE / "site/settings.json").section("slurm")
    config = on_node("/opt/ml/config/resource_config.json")
    return config, on_node(slurm.get("folder", "/opt/slurm/etc")) / "slurm.conf"


def seen(paths: tuple[Path, ...]) -> Marks:
    """What tells whether a file is another one; None where it is missing."""
    return tuple(_mark(path) for path in paths)


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def running() -> tuple[object, ...]:
    """What tells whether slurmctld may have forgotten something: which process it is, and our Include."""
    pids = [each.name for each in on_node("/proc").glob("[0-9]*") if _name(each) == "slurmctld"]
    return tuple(sorted(pids)), seen((watched()[1].with_name(INCLUDE),))


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def run_steps(names: tuple[str, ...]) -> bool:
    """Run steps; whether all are done."""
    runner = [sys.executable, str(BUNDLE / "run_steps.py")]
    return all(subprocess.run([*runner, "--step", name], check=False).returncode == 0 for name in names)


def main() -> None:
    """Look every few seconds, for ever.

    A step that failed is tried a few times, and then not before the files change again: what slurmctld does
    not take would otherwise restart it for ever.
    """
    paths = watched()
    handled: object = None
    failures = 0
    daemon: object = None
    while True:
        now, alive = seen(paths), running()
        time.sleep(SECONDS)
        # Two looks alike: nobody is in the middle of writing.
        if now != seen(paths) or None in now:
            continue
        if now == handled:
            if alive != daemon and alive == running() and alive[0]:
                run_steps(STEPS[-1:])
                daemon = alive
            continue
        failures = 0 if run_steps(STEPS) else failures + 1
        if failures == 0:
            # As it was before: what the steps or the agent changed meanwhile is looked at once more.
            handled = now
        elif failures < ATTEMPTS:
            handled = None
            time.sleep(PAUSE)
        else:
            handled, failures = seen(paths), 0


if __name__ == "__main__":
    main()
