#!/usr/bin/env python3
"""Watch slurm.conf and resource_config.json, and run the steps of Slurm's files when they have changed."""

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

SECONDS = float(os.environ.get("HPCTOOLS_FOLLOW_SECONDS", "5"))
ATTEMPTS, PAUSE = 3, 60.0
STEPS = ("slurm-include", "slurm-daemons")


def watched() -> tuple[Path, ...]:
    """The files that the agent writes."""
    slurm = read_settings(BUNDLE / "site/settings.json").section("slurm")
    config = on_node("/opt/ml/config/resource_config.json")
    return config, on_node(slurm.get("folder", "/opt/slurm/etc")) / "slurm.conf"


def seen(paths: tuple[Path, ...]) -> tuple[tuple[int, int, int] | None, ...]:
    """What tells whether a file is another one; None where it is missing."""
    return tuple(_mark(path) for path in paths)


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def run_steps() -> bool:
    """Run the steps; whether both are done."""
    runner = [sys.executable, str(BUNDLE / "run_steps.py")]
    return all(subprocess.run([*runner, "--step", name], check=False).returncode == 0 for name in STEPS)


def main() -> None:
    """Look every few seconds, for ever.

    A step that failed is tried a few times, and then not before the files change again: what slurmctld does
    not take would otherwise restart it for ever.
    """
    paths = watched()
    handled: object = None
    failures = 0
    while True:
        now = seen(paths)
        time.sleep(SECONDS)
        # Two looks alike: nobody is in the middle of writing.
        if now == handled or now != seen(paths) or None in now:
            continue
        failures = 0 if run_steps() else failures + 1
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
