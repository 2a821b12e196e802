"""All checks, and how a snapshot is put before them."""

from __future__ import annotations

from collections.abc import Iterable

from hpctools.doctor import accounts, configuration, daemons, gpus, nodes, records, settings
from hpctools.doctor.check import Check
from hpctools.doctor.installation import Installation, Missing
from hpctools.doctor.model import Finding, NotChecked, Report, Severity

CHECKS: tuple[Check, ...] = (
    *daemons.CHECKS,
    *nodes.CHECKS,
    *configuration.CHECKS,
    *gpus.CHECKS,
    *settings.CHECKS,
    *accounts.CHECKS,
    *records.CHECKS,
)


def diagnose(installation: Installation, checks: Iterable[Check] = CHECKS) -> Report:
    """Run every check that what was seen allows; a check that could not run is named, and has not passed."""
    findings: list[tuple[str, Finding]] = []
    not_checked: list[NotChecked] = []
    passed: list[str] = []
    for check in checks:
        seen = [getattr(installation, need) for need in check.needs]
        missing = next((part for part in seen if isinstance(part, Missing)), None)
        if missing is not None:
            not_checked.append(NotChecked(check.name, missing.reason, missing.unreachable))
            continue
        found = [(check.name, finding) for finding in check.run(*seen)]
        findings += found
        if not found:
            passed.append(check.name)
    findings.sort(key=lambda pair: pair[1].severity is not Severity.ERROR)
    return Report(tuple(findings), tuple(not_checked), tuple(passed))
