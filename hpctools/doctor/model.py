"""What the doctor says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How bad a finding is."""

    ERROR = "error"
    """Something does not work, or loses or shows what it must not."""
    WARNING = "warning"
    """It works, and will surprise."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        subject: where: nodes as a folded host list, a file, a partition, a daemon, a setting.
        seen: what was seen there, one sentence.
        why: why it matters, one sentence.
        remedy: what to do, one sentence.
        severity: how bad it is.
    """

    subject: str
    seen: str
    why: str
    remedy: str
    severity: Severity = Severity.ERROR


@dataclass(frozen=True)
class NotChecked:
    """A check that could not run; it has neither passed nor failed.

    Attributes:
        check: its name.
        reason: why not.
        unreachable: whether a daemon that it asks did not answer.
    """

    check: str
    reason: str
    unreachable: bool = False


@dataclass(frozen=True)
class Report:
    """The whole answer.

    Attributes:
        findings: by the name of the check, the worst first.
        not_checked: what could not be looked at.
        passed: names of the checks that found nothing.
    """

    findings: tuple[tuple[str, Finding], ...]
    not_checked: tuple[NotChecked, ...]
    passed: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """3 when a daemon did not answer, else 1 with findings, else 0."""
        if any(each.unreachable for each in self.not_checked):
            return 3
        return 1 if self.findings else 0
