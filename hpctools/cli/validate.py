"""`hpctools validate SITE`: every finding of a site file at once."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from hpctools.site import Finding, InvalidSiteError, Site, load, warnings


@click.command()
@click.argument("site", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def validate(site: Path, as_json: bool) -> int:
    """Check a site file.

    Prints every finding with its line; exits with 1 when the site cannot be used, with 0 when it can,
    warnings or not, and with 2 when there is no such file.

    \b
    Example:  hpctools validate /etc/slurm/site.yaml
    """
    read, code = None, 0
    try:
        read = load(site)
        findings = warnings(read)
    except InvalidSiteError as error:
        findings, code = error.findings, error.exit_code
    click.echo(_json(site, read, findings) if as_json else _text(site, read, findings))
    return code


def _json(path: Path, site: Site | None, findings: tuple[Finding, ...]) -> str:
    rows = [asdict(finding) for finding in findings]
    return json.dumps({"file": str(path), "valid": site is not None, "findings": rows}, indent=2)


def _text(path: Path, site: Site | None, findings: tuple[Finding, ...]) -> str:
    if site is None:
        return "\n".join([*map(str, findings), f"{path}: {_count(len(findings), 'finding')}"])
    nodes = sum(group.count.min for group in site.node_groups if group.role == "compute")
    labs = len(site.accounts()) - len(site.departments)
    parts = [
        _count(len(site.departments), "department"),
        _count(labs, "lab"),
        _count(len(site.users()), "user"),
        _count(nodes, "compute node"),
        _count(len(site.tiers), "tier"),
    ]
    warned = f"; {_count(len(findings), 'warning')}" if findings else ""
    summary = f"{path}: valid; {site.cluster.name} has {', '.join(parts)}{warned}"
    return "\n".join([*map(str, findings), summary])


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
