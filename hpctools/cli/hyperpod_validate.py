"""`hpctools hyperpod validate FILES`: everything that is wrong with a cluster's files, at once."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import click

from hpctools.errors import UnreachableError, UsageError
from hpctools.hyperpod import check as checks
from hpctools.hyperpod.files import Files, locate
from hpctools.hyperpod.findings import Finding

_SPOKEN = {
    "slurmconfig": "Slurm in the request (SlurmConfig)",
    "legacy": "legacy style (provisioning_parameters.json)",
    "eks": "Kubernetes; Slurm has no part in it",
    "mixed": "both styles at once",
    "unknown": "no request that could be read",
}


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path, readable=False), metavar="FILE|FOLDER...")
@click.option("--update", is_flag=True, help="The request is for UpdateCluster, not CreateCluster.")
@click.option("--aws", is_flag=True, help="Ask AWS too: network, file systems, quotas, plans, roles.")
@click.option("--region", help="The region to ask in; that of the environment or profile when left out.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def validate(paths: tuple[Path, ...], update: bool, aws: bool, region: str | None, as_json: bool) -> int:
    """Check the files of a HyperPod cluster, whoever wrote them.

    Give the request (cluster-config.json) and, in the legacy style, provisioning_parameters.json: in any
    order and under any names, or the folder that holds them. Exits with 0 without errors, warnings or not;
    with 1 when there are errors, 2 for wrong usage, 3 when AWS cannot be reached.

    \b
    Example:  hpctools hyperpod validate cluster
    """
    files, report = _report(paths, update)
    if aws:
        report = report.and_also(_live(files, region))
    elif region:
        raise UsageError("--region says where to ask", "give --aws too")
    click.echo(_json(files, report) if as_json else _text(files, report))
    if report.errors:
        return 1
    return 3 if any(finding.rule == "no-answer" for finding in report.findings) else 0


def _live(files: Files, region: str | None) -> tuple[Finding, ...]:
    """What AWS says; that it says nothing leaves what was found without it."""
    from hpctools.hyperpod import live

    try:
        return live.check(files, region=region)
    except UnreachableError as error:
        return (files.request.warning("no-answer", error.remedy, error.message),)


def _report(paths: tuple[Path, ...], update: bool) -> tuple[Files, checks.Report]:
    if not paths:
        raise UsageError("no file was named", "hpctools hyperpod validate cluster-config.json")
    if len(paths) > 2:
        raise UsageError(f"{len(paths)} files were named", "name those of one cluster: at most two")
    files, faults = locate(paths)
    files = replace(files, updates=update)
    return files, checks.check(files, faults)


def _names(files: Files) -> list[str]:
    return [document.file for document in (files.cluster, files.provisioning) if document is not None]


def _json(files: Files, report: checks.Report) -> str:
    return json.dumps(
        {
            "files": _names(files),
            "style": report.style,
            "valid": not report.errors,
            "findings": [asdict(finding) for finding in report.findings],
        },
        indent=2,
    )


def _text(files: Files, report: checks.Report) -> str:
    errors, warnings = len(report.errors), len(report.findings) - len(report.errors)
    verdict = f"{_count(errors, 'error')}" if errors else "valid"
    warned = f", {_count(warnings, 'warning')}" if warnings else ""
    summary = f"{', '.join(_names(files))}: {verdict}{warned}; {_SPOKEN[report.style]}"
    return "\n".join([*map(str, report.findings), summary])


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
