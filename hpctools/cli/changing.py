"""What apply and rollback share: their options, the question, and the telling."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpctools.cli.target import STATE_FOLDER
from hpctools.errors import ApplyError, UsageError

if TYPE_CHECKING:
    from hpctools.conf.apply import Outcome, Prospect, Request
    from hpctools.conf.plan.model import Plan
    from hpctools.site.daemons import DaemonCommands
    from hpctools.site.model import Site
    from hpctools.slurm.versions import Release


def state_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option --state."""
    path = click.Path(path_type=Path, readable=False)  # that it is not is told by the history, with a remedy
    text = f"Where changes are remembered (default: {STATE_FOLDER})."
    return click.option("--state", type=path, default=STATE_FOLDER, help=text)(command)


def changing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of everything that changes a cluster."""
    options = (
        click.option("--discard-edits", is_flag=True, help="Overwrite files that were edited by hand."),
        click.option("--yes", "-y", is_flag=True, help="Agree to restarts and to disturbed jobs beforehand."),
        click.option(
            "--wait", type=click.FloatRange(min=0), default=0.0, help="Seconds to wait for another change."
        ),
        state_option,
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def carry_out(
    request: Request,
    commands: DaemonCommands,
    folder: Path,
    state: Path,
    *,
    release: Release | None,
    agreed: bool,
    as_json: bool,
) -> int:
    """Make a change of the real cluster and tell what came of it.

    Args:
        commands: how the daemons are restarted.
        agreed: whether the person agreed beforehand to whatever it takes; to the plan that she has seen she
            agreed in any case (`request.expected`).
    """
    from hpctools.conf.apply import Generations, History, change
    from hpctools.conf.apply.cluster import Cluster
    from hpctools.conf.apply.live_planner import LivePlanner
    from hpctools.conf.apply.slurm_daemons import SlurmDaemons
    from hpctools.conf.slurmdbd import Slurmdbd

    cluster = Cluster(
        LivePlanner(folder, release),
        Slurmdbd(request.bundle.accounts.clusters[0], doing=lambda line: click.echo(f"    {line}", err=True)),
        SlurmDaemons(commands, request.nodes),
    )
    outcome = change(
        request,
        Generations(folder),
        History(state),
        cluster,
        agree=lambda prospect: _agree(prospect, agreed=agreed, seen=request.expected, quiet=as_json),
        tell=lambda line: click.echo(f"  {line}", err=True),
    )
    click.echo(_json(outcome) if as_json else _told(outcome, commands))
    return 0


def command_line() -> str:
    """The command as it was typed."""
    return shlex.join(["hpctools", *sys.argv[1:]])


def node_count(site: Site) -> int:
    """How many nodes a site has at most."""
    return sum(len(site.node_names(group.name)) for group in site.node_groups if group.role == "compute")


def _agree(prospect: Prospect, *, agreed: bool, seen: Plan | None, quiet: bool) -> None:
    """Raises unless the person agreed, or does now; a plan that she has seen counts for what it names."""
    if not quiet:
        _show(prospect)
    if agreed or not prospect.concerns:
        return
    if seen is not None:
        _refuse_unforeseen(prospect)
        return
    reasons = "".join(f"\n  {reason}" for reason in prospect.concerns)
    if not sys.stdin.isatty():
        raise UsageError(
            f"somebody has to agree to this change first; nothing has changed:{reasons}", "add --yes"
        )
    click.echo(f"Before you agree:{reasons}", err=True)
    if not click.confirm("Make this change?", err=True):
        raise ApplyError("not agreed; nothing has changed")


def _refuse_unforeseen(prospect: Prospect) -> None:
    if prospect.unforeseen:
        jobs = ",".join(map(str, prospect.unforeseen))
        raise ApplyError(
            f"slurmctld would lose jobs that the plan does not name, found by booting the new files: {jobs}; "
            "nothing has changed",
            f"look at them (squeue --jobs={jobs}) and let them end, or agree to it with --yes",
        )


def _show(prospect: Prospect) -> None:
    from hpctools.cli.plan_text import plan_text

    terminal = sys.stdout.isatty()
    color = terminal and not os.environ.get("NO_COLOR")
    width = min(shutil.get_terminal_size((80, 24)).columns, 110) if terminal else 80
    click.echo(plan_text(prospect.plan, width=width, color=color))


def _told(outcome: Outcome, commands: DaemonCommands) -> str:
    record = outcome.record
    if record is None:
        return f"{outcome.plan.cluster}: nothing to do"
    seconds = (record.ended or record.began) - record.began
    lines = [f"change {record.number} applied in {seconds:.1f} s"]
    if outcome.later:
        from hpctools.conf.text import fold
        from hpctools.site.daemons import NODES

        nodes = fold(outcome.later)
        command = [word.replace(NODES, nodes) for word in commands.restart_slurmds]
        lines.append(f"next: start slurmd on {nodes}: {shlex.join(command)}")
    return "\n".join(lines)


def _json(outcome: Outcome) -> str:
    import json

    record = outcome.record.plain() if outcome.record else None
    return json.dumps(
        {
            "changed": record is not None,
            "record": record,
            "start_slurmd_on": list(outcome.later),
            "plan": json.loads(outcome.plan.to_json()),
        },
        indent=2,
    )
