"""`hpctools validate SITE`: every finding of a site file at once."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from hpctools.site import Finding, InvalidSiteError, Site, load


@click.command()
@click.argument("site", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def validate(site: Path, as_json: bool) -> int:
    """Check a site file.

    Prints every finding with its line; exits with 0 when there is none, else with 1.
    """
    findings: tuple[Finding, ...] = ()
    read = None
    try:
        read = load(site)
    except InvalidSiteError as error:
        findings = error.findings
    click.echo(_json(site, findings) if as_json else _text(site, read, findings))
    return 1 if findings else 0


def _json(path: Path, findings: tuple[Finding, ...]) -> str:
    rows = [asdict(finding) for finding in findings]
    return json.dumps({"file": str(path), "valid": not findings, "findings": rows}, indent=2)


def _text(path: Path, site: Site | None, findings: tuple[Finding, ...]) -> str:
    if site is None:
        return "\n".join([*map(str, findings), f"{path}: {_count(len(findings), 'finding')}"])
    nodes = sum(group.count.min for group in site.node_groups if group.role == "compute")
    labs = sum(len(department.labs) for department in site.departments)
    parts = [
        _count(len(site.departments), "department"),
        _count(labs, "lab"),
        _count(len(site.users()), "user"),
        _count(nodes, "compute node"),
        _count(len(site.tiers), "tier"),
    ]
    return f"{path}: valid; {site.cluster.name} has {', '.join(parts)}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
