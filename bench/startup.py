"""What hp-submit costs beside sbatch: medians of alternating runs on a live cluster.

    python bench/startup.py [--quick] [--check]   brings up a sandbox and measures on its login node
    python bench/startup.py --inside              measures here: a login node of a cluster

$HPCTOOLS_BENCH_PREFIX, when set, is a command that runs its arguments on a login node of a cluster that is
already up, for example `hpctools sandbox exec --user nlp1 --`.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.report import Goal, report
from hpctools.slurm.run import attach, run

USER, PARTITION = "nlp1", "nlp"
REPEATS, QUICK_REPEATS, WARM_UP = 20, 5, 2
ADDED_SECONDS, HELP_SECONDS = 0.25, 0.2
SECONDS = 60.0
JOB = "#!/bin/sh\n#SBATCH --hold --job-name=bench-startup --output=/dev/null\n:\n"
ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = Path(sys.executable).parent


def main() -> int:
    """Measure, report, and return the exit code."""
    given = _arguments()
    if given.inside:
        return _measure(given.repeats, check=given.check)
    prefix = shlex.split(os.environ.get("HPCTOOLS_BENCH_PREFIX", ""))
    words = [sys.executable, "-m", "bench.startup", "--inside", f"--repeats={given.repeats}"]
    words += ["--check"] if given.check else []
    # `env -C`: -m finds the bench in its own root, wherever the login shell starts.
    inside = ["env", "-C", str(ROOT), f"SBATCH_PARTITION={PARTITION}", *words]
    return attach([*prefix, *inside]) if prefix else _in_a_sandbox(inside)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="hp-submit beside sbatch.")
    parser.add_argument("--quick", dest="repeats", action="store_const", const=QUICK_REPEATS, default=REPEATS)
    parser.add_argument("--repeats", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help="fail when a goal is not met")
    parser.add_argument("--inside", action="store_true", help="measure here")
    return parser.parse_args()


def _in_a_sandbox(inside: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="hpctools-bench-") as folder:
        # The sandbox's daemons run under accounts of their own.
        Path(folder).chmod(0o755)
        sandbox = [str(PROGRAMS / "hpctools"), "sandbox", "--state", f"{folder}/sandbox"]
        code = attach([*sandbox, "up", "--nodes", "2"])
        try:
            return code or attach([*sandbox, "exec", "--user", USER, "--", *inside])
        finally:
            attach([*sandbox, "down"])


def _measure(repeats: int, *, check: bool) -> int:
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.sh"
        job.write_text(JOB)
        hp_submit = str(PROGRAMS / "hp-submit")
        commands = {
            "sbatch job.sh": ["sbatch", str(job)],
            "hp-submit job.sh": [hp_submit, str(job)],
            "hp-submit --help": [hp_submit, "--help"],
            "hp-submit --dry-run job.sh": [hp_submit, "--dry-run", str(job)],
        }
        try:
            samples = _alternate(commands, repeats)
        finally:
            run(["scancel", "--name=bench-startup", f"--user={os.getuid()}"], timeout=SECONDS, check=False)
    rows = [
        {"command": name, "median s": median(each), "min s": min(each), "max s": max(each), "runs": len(each)}
        for name, each in samples.items()
    ]
    added = median(samples["hp-submit job.sh"]) - median(samples["sbatch job.sh"])
    goals = [
        Goal("hp-submit job.sh beyond sbatch, median", added, "s", "<=", ADDED_SECONDS),
        Goal("hp-submit --help, median", median(samples["hp-submit --help"]), "s", "<=", HELP_SECONDS),
    ]
    return report("startup", rows, goals, check=check)


def _alternate(commands: dict[str, list[str]], repeats: int) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(WARM_UP + repeats):
        for name, argv in commands.items():
            begin = time.perf_counter()
            done = run(argv, timeout=SECONDS)
            seconds = time.perf_counter() - begin
            if name != "hp-submit --help" and not re.search(r"Submitted batch job \d+|sbatch", done.stdout):
                raise SystemExit(f"{shlex.join(argv)} answered: {done.stdout!r}")
            if turn >= WARM_UP:
                samples[name].append(seconds)
    return samples


if __name__ == "__main__":
    sys.exit(main())
