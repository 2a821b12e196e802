"""A plain submission as text for people and as JSON for programs: the object that execution carries out."""

from __future__ import annotations

from typing import Any

from hpctools.submit.batch import quote
from hpctools.submit.plain import PlainSubmission


def command_line(words: tuple[str, ...]) -> str:
    """A command as it could be typed."""
    return " ".join(quote(word) for word in words)


def plain_text(submission: PlainSubmission) -> str:
    """What a plain submission does."""
    text = f"# submit\n{command_line(submission.argv)}\n"
    if submission.script is None:
        return text
    return f"{text}# with this batch script on standard input\n{submission.script}"


def plain_json(submission: PlainSubmission) -> dict[str, Any]:
    """A plain submission as JSON values."""
    return {"elastic": False, "command": list(submission.argv), "script": submission.script}
