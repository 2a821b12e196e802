"""A submission as text for people and as JSON for programs: the object that execution carries out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hpctools.submit.batch import quote
from hpctools.submit.plain import PlainSubmission
from hpctools.submit.plan import ElasticSubmission


def command_line(words: tuple[str, ...]) -> str:
    """A command as it could be typed."""
    return " ".join(quote(word) for word in words)


def baseline_command(submission: ElasticSubmission) -> tuple[str, ...]:
    """The command that submits the baseline job."""
    return ("sbatch", "--parsable", *submission.options, str(submission.script))


def replica_command(submission: ElasticSubmission) -> tuple[str, ...]:
    """The command with which the run's coordinator submits a replica job."""
    return ("sbatch", "--parsable", *submission.spec.replica_options, submission.spec.replica_script)


def plain_text(submission: PlainSubmission) -> str:
    """What a plain submission does."""
    text = f"# submit\n{command_line(submission.argv)}\n"
    if submission.script is None:
        return text
    return f"{text}# with this batch script on standard input\n{submission.script}"


def elastic_text(submission: ElasticSubmission) -> str:
    """What an elastic submission does: each file whole, then each command."""
    spec = submission.spec
    parts = [f"# {submission.folder / file.name}\n{file.text}" for file in submission.files]
    parts.append(f"# submit the baseline job\n{command_line(baseline_command(submission))}\n")
    if spec.max_replicas:
        parts.append(
            f"# by the run's coordinator, for each of up to {spec.max_replicas} replica jobs\n"
            f"{command_line(replica_command(submission))}\n"
        )
    return "\n".join(parts)


def plain_json(submission: PlainSubmission) -> dict[str, Any]:
    """A plain submission as JSON values."""
    return {"elastic": False, "command": list(submission.argv), "script": submission.script}


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
            "replica": list(replica_command(submission)),
        },
    }
