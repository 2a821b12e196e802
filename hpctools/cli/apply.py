"""`hpctools apply [SITE]`: make a cluster what its site says, all of it or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpctools.cli.changing import carry_out, changing_options, command_line, node_count
from hpctools.cli.target import Target, own_target, target_options
from hpctools.errors import UsageError

if TYPE_CHECKING:
    from hpctools.conf.apply import Request
    from hpctools.conf.plan.model import Plan


@click.command()
@target_options
@click.option(
    "--prune", is_flag=True, help="Also remove accounts, people and QoS that the site does not name."
)
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path),
    help="Apply just this plan of `hpctools plan --out`; it counts as agreed to, if it still fits.",
)
@changing_options
def apply(
    site_file: Path | None,
    folder: Path | None,
    facts_file: Path | None,
    prune: bool,
    plan_file: Path | None,
    discard_edits: bool,
    yes: bool,
    wait: float,
    state: Path,
    as_json: bool,
) -> int:
    """Make a cluster what its site says.

    Plans, boots the new configuration beside the real one, remembers what there was, tells slurmdbd, switches
    all files at once, does the least that loads them, and verifies. When anything fails it takes everything
    back and says why. Ctrl-C rolls back as well.

    \b
    Exit code: 0; 1 when it was refused or rolled back; 2 when somebody has to agree first (--yes);
    3 when a daemon does not answer; 130 after Ctrl-C.

    \b
    Example:  hpctools apply --yes /etc/slurm/site.yaml
    """
    target = own_target(site_file, folder, facts_file)
    for warning in target.warnings:
        click.echo(f"warning: {warning}", err=True)
    return carry_out(
        _request(target, _plan(plan_file), prune=prune, discard_edits=discard_edits, wait=wait),
        target.facts.daemons or target.site.cluster.daemons,
        target.folder,
        state,
        release=target.facts.slurm_version,
        agreed=yes,
        as_json=as_json,
    )


def _request(
    target: Target, expected: Plan | None, *, prune: bool, discard_edits: bool, wait: float
) -> Request:
    from hpctools.conf.apply import Request
    from hpctools.conf.apply.history import FACTS, SITE
    from hpctools.conf.apply.who import me
    from hpctools.conf.facts_file import dump_facts

    return Request(
        bundle=target.bundle,
        nodes=node_count(target.site),
        slurm_user=target.facts.slurm_user or target.site.cluster.slurm_user,
        who=me(),
        command=command_line(),
        prune=prune,
        discard_edits=discard_edits,
        expected=expected,
        documents={SITE: target.site_file.read_text(encoding="utf-8"), FACTS: dump_facts(target.facts)},
        wait=wait,
        gpus={name: group.gpus for group in target.site.node_groups if group.gpus for name in group.names},
    )


def _plan(path: Path | None) -> Plan | None:
    from hpctools.conf.plan.model import Plan

    if path is None:
        return None
    try:
        return Plan.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot read the plan {path}: {reason}", "make one with `hpctools plan --out FILE`"
        ) from None
