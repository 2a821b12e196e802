"""`hpctools plan [SITE]`: what separates the cluster from its site, and what it takes."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpctools.cli.output import save
from hpctools.cli.target import STATE_FOLDER, Target, own_target, target_options

if TYPE_CHECKING:
    from hpctools.conf.bundle import Bundle
    from hpctools.conf.plan.model import Plan
    from hpctools.slurm.ask import Ask
    from hpctools.slurm.versions import Release


@click.command()
@target_options
@click.option(
    "--prune", is_flag=True, help="Also remove accounts, people and QoS that the site does not name."
)
@click.option("--check", is_flag=True, help="Exit with 1 when there are changes.")
@click.option("--diff", is_flag=True, help="Show the files' unified diffs instead.")
@click.option("--all", "everything", is_flag=True, help="Show every change; else the many alike are counted.")
@click.option("--out", type=click.Path(path_type=Path), help="Also write the plan here, for apply --plan.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(
    site_file: Path | None,
    folder: Path | None,
    facts_file: Path | None,
    prune: bool,
    check: bool,
    diff: bool,
    everything: bool,
    out: Path | None,
    as_json: bool,
) -> int:
    """Show what separates a cluster from its site.

    Compares the compiled site with the files in Slurm's folder, with what slurmctld really runs and with what
    slurmdbd knows, and tells what each change takes and which jobs it would disturb. Nothing is changed.

    SITE is $HPCTOOLS_SITE when it is left out, or else site.yaml in the folder.

    \b
    Exit code: 0; with --check 1 when there are changes; 3 when a daemon does not answer (it is said which).

    \b
    Example:  hpctools plan /etc/slurm/site.yaml
    """
    from hpctools.slurm.ahead import ask_ahead

    usual = folder or Path("/etc/slurm")
    ahead = ask_ahead(usual)
    target = own_target(site_file, folder, facts_file)
    made = plan_for(target, prune=prune, ask=ahead if target.folder == usual else None)
    if out is not None:
        save(out, made.to_json(), 0o600)  # it holds the whole configuration
    click.echo(_told(made, diff=diff, everything=everything, as_json=as_json), nl=False)
    if made.unknown:
        return 3
    return 1 if check and not made.empty else 0


def plan_for(target: Target, *, prune: bool = False, ask: Ask | None = None) -> Plan:
    """Read what there is and compare the target with it; see `compared`."""
    from dataclasses import replace

    release = target.facts.slurm_version
    made = compared(target.bundle, target.folder, STATE_FOLDER, release, prune=prune, ask=ask)
    return replace(made, warnings=(*target.warnings, *made.warnings))


def compared(
    wanted: Bundle,
    folder: Path,
    state: Path,
    release: Release | None,
    *,
    prune: bool = False,
    jobs_keep: bool = True,
    ask: Ask | None = None,
) -> Plan:
    """Read what there is and compare a configuration with it.

    Args:
        folder: Slurm's configuration folder.
        state: where changes are remembered: what a killed one left is warned of.
        release: the Slurm release when slurmctld does not tell it.
        prune, jobs_keep: see `make_plan`.
        ask: runs Slurm's commands; what the folder says when None.
    """
    from dataclasses import replace

    from hpctools.conf.apply import Generations, History, unfinished_warnings
    from hpctools.conf.plan.read import read_for
    from hpctools.conf.plan.settle import settled_plan

    live = read_for(wanted, folder, ask, wait=False)
    made = settled_plan(wanted, live, folder=folder, release=release, prune=prune, jobs_keep=jobs_keep)
    owed = unfinished_warnings(History(state), Generations(folder))
    return replace(made, warnings=(*made.warnings, *owed))


def _told(made: Plan, *, diff: bool, everything: bool, as_json: bool) -> str:
    from hpctools.cli.plan_text import diff_text, plan_text

    if as_json:
        return made.to_json() + "\n"
    if diff:
        return diff_text(made)
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80
    return plan_text(made, width=min(width, 110), color=color, everything=everything)
