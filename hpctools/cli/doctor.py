"""`hpctools doctor`: what is wrong with this installation, why it matters and what to do."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpctools.errors import UsageError

if TYPE_CHECKING:
    from hpctools.doctor.model import Report


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Slurm's configuration folder on this host (default: SLURM_CONF's, else /etc/slurm).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(folder: Path | None, as_json: bool) -> int:
    """Look at a live installation for what is known to go wrong; nothing is changed.

    Run it as root on the controller: elsewhere, and as another user, it says what it could not look at.
    Exits with 0 when all is well, 1 with findings, 3 when a daemon did not answer.

    \b
    Example:  hpctools doctor && echo healthy
    """
    from hpctools.doctor.read import read
    from hpctools.doctor.registry import diagnose

    report = diagnose(read(_place(folder)))
    click.echo(_json(report) if as_json else _text(report))
    return report.exit_code


def _place(named: Path | None) -> Path:
    """The folder to look at; Slurm's commands are pointed at a named one, to speak of the same cluster."""
    if named is None:
        return Path(os.environ.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent
    if not named.is_dir():
        raise UsageError(f"{named} is no folder", "name the folder that holds slurm.conf")
    if (named / "slurm.conf").exists():
        os.environ["SLURM_CONF"] = str(named / "slurm.conf")
    return named


def _json(report: Report) -> str:
    found = [
        {"check": check, **asdict(finding), "severity": finding.severity.value}
        for check, finding in report.findings
    ]
    missed = [asdict(each) for each in report.not_checked]
    return json.dumps({"findings": found, "not_checked": missed, "passed": report.passed}, indent=2)


def _text(report: Report) -> str:
    parts = [
        f"{finding.severity.value}: {finding.subject}: {finding.seen}\n"
        f"  why:  {finding.why}\n  do:   {finding.remedy}\n  check: {check}\n"
        for check, finding in report.findings
    ]
    parts += _missed(report)
    looked = len(report.passed) + len({check for check, _ in report.findings})
    parts.append(f"{_count(len(report.findings), 'finding')}, {_count(looked, 'check')} made{_left(report)}")
    return "\n".join(parts)


def _missed(report: Report) -> list[str]:
    """What could not be looked at, once for each reason."""
    by_reason: dict[str, list[str]] = {}
    for each in report.not_checked:
        by_reason.setdefault(each.reason, []).append(each.check)
    return [
        f"not checked: {', '.join(names)}\n  because: {reason}\n"
        for reason, names in sorted(by_reason.items())
    ]


def _left(report: Report) -> str:
    return f", {len(report.not_checked)} not possible" if report.not_checked else ""


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
