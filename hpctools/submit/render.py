"""An elastic submission as text for people and as JSON for programs: what execution carries out."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from hpctools.elastic.replica_jobs import sbatch_options
from hpctools.elastic.spec import MODES, RunSpec
from hpctools.submit.dependencies import waiting_for
from hpctools.submit.plan import ElasticSubmission
from hpctools.submit.render_plain import command_line


def baseline_command(submission: ElasticSubmission) -> tuple[str, ...]:
    """The command that submits the baseline job."""
    options = submission.options
    if submission.follows:
        options = waiting_for(options, f"JOB-OF-{submission.follows}")
    return ("sbatch", "--parsable", *options, str(submission.script))


def replica_commands(spec: RunSpec) -> dict[tuple[str, ...], int]:
    """The commands with which the run's coordinator submits replica jobs, and how many with each.

    It adds what is left of the run's time limit, and nodes to stay away from.
    """
    counts: dict[tuple[str, ...], int] = {}
    for replica in range(spec.max_replicas):
        command = ("sbatch", "--parsable", *sbatch_options(spec, replica), spec.replica_script)
        counts[command] = counts.get(command, 0) + 1
    return counts


def elastic_text(submission: ElasticSubmission) -> str:
    """What an elastic submission does: each file whole, then each command."""
    spec = submission.spec
    parts = [f"# {submission.folder / file.name}\n{file.text}" for file in submission.files]
    parts.append(f"# submit the baseline job\n{command_line(baseline_command(submission))}\n")
    for command, count in replica_commands(spec).items():
        each = f"each of up to {count} replica jobs" if count > 1 else "a replica job"
        parts.append(f"# by the run's coordinator, for {each}\n{command_line(command)}\n")
    settings = _settings(spec)
    if settings:
        parts.append(f"# what run.json says besides\n{json.dumps(settings, indent=1, sort_keys=True)}\n")
    return "\n".join(parts)


def _settings(spec: RunSpec) -> dict[str, Any]:
    """What the policy file and our own options have set, without what is as it always is."""
    policy = {name: value for name, value in spec.policy.items() if value and name != "sizes"}
    found = {"sizes": spec.sizes, "policy": policy, "recovery": spec.recovery, "checkpoint": spec.checkpoint}
    stated = {name: value for name, value in found.items() if value}
    if spec.preload is not None:
        stated["preload"] = spec.preload
    return stated if spec.mode == MODES[0] else {**stated, "mode": spec.mode}


def elastic_json(submission: ElasticSubmission) -> dict[str, Any]:
    """An elastic submission as JSON values."""
    return {
        "elastic": True,
        "run": submission.spec.id,
        "folder": str(submission.folder),
        "spec": asdict(submission.spec),
        "files": {file.name: file.text for file in submission.files},
        "commands": {
            "baseline": list(baseline_command(submission)),
            "replicas": [
                {"count": n, "command": list(each)} for each, n in replica_commands(submission.spec).items()
            ],
        },
    }
