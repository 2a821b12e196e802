"""`hpctools hyperpod advise SITE|FILES`: which style and strategy fit a cluster, and why."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from hpctools.errors import UsageError
from hpctools.hyperpod.advise import Advice, Situation, of_files, of_site
from hpctools.hyperpod.advise import advise as advice_for
from hpctools.hyperpod.files import locate
from hpctools.site import load


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path, readable=False), metavar="SITE|FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def advise(paths: tuple[Path, ...], as_json: bool) -> int:
    """Say which configuration style and which SlurmConfigStrategy fit.

    Give a site file, or the files of a cluster (cluster-config.json, provisioning_parameters.json). Exits
    with 1 when something was chosen that cannot work.

    \b
    Example:  hpctools hyperpod advise site.yaml
    """
    situation = _situation(paths)
    advice = advice_for(situation)
    click.echo(json.dumps(asdict(advice), indent=2) if as_json else _text(advice))
    return 1 if advice.conflicts else 0


def _situation(paths: tuple[Path, ...]) -> Situation:
    if not paths:
        raise UsageError("no file was named", "hpctools hyperpod advise site.yaml")
    if len(paths) == 1 and paths[0].suffix in (".yaml", ".yml"):
        return of_site(load(paths[0]))
    files, faults = locate(paths)
    if files.style in ("unknown", "eks"):
        said = "\n".join(map(str, faults)) or f"{paths[0]}: no cluster with Slurm"
        raise UsageError(said, "name a site file, or the request of a cluster with Slurm")
    return of_files(files)


def _text(advice: Advice) -> str:
    lines = [
        f"style: {advice.style}",
        f"SlurmConfigStrategy: {advice.strategy or 'none may be stated'}",
        *(f"because: {reason}" for reason in advice.reasons),
        *(f"conflict: {conflict}" for conflict in advice.conflicts),
    ]
    return "\n".join(lines)
