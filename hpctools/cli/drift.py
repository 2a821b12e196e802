"""`hpctools drift [SITE]`: does the cluster still run as it was applied? For cron and monitoring."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from hpctools.cli.changing import state_option
from hpctools.cli.output import save
from hpctools.cli.plan import compared, plan_for
from hpctools.cli.target import of_then, own_target, refuse_hyperpod, target_options
from hpctools.errors import HpctoolsError
from hpctools.slurm.versions import parse_release

if TYPE_CHECKING:
    from hpctools.conf.apply.history import History
    from hpctools.conf.apply.record import Record
    from hpctools.conf.bundle import Bundle
    from hpctools.conf.plan.model import Change, Plan


class Applied(NamedTuple):
    """A configuration as a change left it: what, where, and on which Slurm release."""

    bundle: Bundle
    folder: Path
    release: str
    kept: Mapping[str, str]


@click.command()
@target_options
@state_option
@click.option(
    "--prometheus", type=click.Path(path_type=Path), help="Write metrics here (textfile collector)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as one JSON object.")
def drift(
    site_file: Path | None,
    folder: Path | None,
    facts_file: Path | None,
    state: Path,
    prometheus: Path | None,
    as_json: bool,
) -> int:
    """Tell where a cluster differs from what was applied last; print nothing when it does not.

    Compares with the files and the accounts that the last apply or rollback left; with SITE where one is
    named or nothing was applied.

    \b
    Exit code: 0 when nothing differs; 1 when something does; 3 when a daemon does not answer.

    \b
    Example:  hpctools drift --prometheus /var/lib/node_exporter/hpctools.prom
    """
    applied = None if site_file else last_applied(state, folder)
    if applied is None:
        made = plan_for(own_target(site_file, folder, facts_file))
    else:
        _refuse_what_is_hyperpods(applied)
        release = parse_release(applied.release)
        known = bool(applied.bundle.accounts.accounts)  # all that slurmdbd held then: what is more came since
        where = folder or applied.folder
        made = compared(applied.bundle, where, state, release, prune=known, jobs_keep=False)
    if prometheus is not None:
        save(prometheus, metrics(made, time.time()))
    if as_json:
        click.echo(made.to_json())
    else:
        for line in (*map(_line, made.changes), *(f"not compared: {each}" for each in made.unknown)):
            click.echo(line)
    return 3 if made.unknown else 0 if made.empty else 1


def last_applied(state: Path, folder: Path | None = None) -> Applied | None:
    """The configuration that is in force; None when nothing was applied, or we may not read it.

    After a rollback it is that of the change whose files and accounts came back. Of a killed change it is
    whichever of its files are in force.
    """
    from hpctools.conf.accounts import AccountTree
    from hpctools.conf.apply.history import History
    from hpctools.conf.apply.recovery import closed_records
    from hpctools.conf.apply.return_to import configuration, trail

    history = History(state)
    try:
        made = trail(closed_records(history, folder))
        if not made:
            return None
        cluster = made[-1].cluster
        # Accounts of which the history tells nothing are nobody's to compare with.
        bundle = configuration(history, made[-1], lambda: AccountTree((cluster,), (), (), {}, ()))
    except (HpctoolsError, OSError):
        return None
    return Applied(bundle, Path(made[-1].folder), made[-1].release, _documents(history, made[-1]))


def _documents(history: History, record: Record) -> Mapping[str, str]:
    from hpctools.conf.apply.return_to import documents

    with suppress(HpctoolsError, OSError):
        return documents(history, record)
    return {}


def _refuse_what_is_hyperpods(applied: Applied) -> None:
    """An earlier release may have applied there; what its agent writes since is no drift."""
    try:
        site, facts = of_then(applied.kept)
    except (HpctoolsError, OSError):  # none is kept, or one of another release
        return
    refuse_hyperpod(site, facts)


def metrics(made: Plan, now: float) -> str:
    """The plan in Prometheus' text format: how many differences there are, by area and by what they take."""
    counts: dict[tuple[str, str], int] = {}
    for change in made.changes:
        place = (change.area, change.needs.value)
        counts[place] = counts.get(place, 0) + 1
    lines = [
        "# HELP hpctools_drift_changes Differences between the cluster and its site.",
        "# TYPE hpctools_drift_changes gauge",
        *(
            f'hpctools_drift_changes{{area="{a}",needs="{n}"}} {count}'
            for (a, n), count in sorted(counts.items())
        ),
        "# HELP hpctools_drift_total All differences together.",
        "# TYPE hpctools_drift_total gauge",
        f"hpctools_drift_total {len(made.changes)}",
        "# HELP hpctools_drift_not_compared Parts that could not be compared.",
        "# TYPE hpctools_drift_not_compared gauge",
        f"hpctools_drift_not_compared {len(made.unknown)}",
        "# HELP hpctools_drift_time_seconds When it was looked.",
        "# TYPE hpctools_drift_time_seconds gauge",
        f"hpctools_drift_time_seconds {now:.0f}",
    ]
    return "\n".join(lines) + "\n"


def _line(change: Change) -> str:
    if not change.key:
        told = f"{'missing' if change.before is None else 'too many'}: {change.after or change.before}"
        return f"{change.area} {change.subject}: {told} ({change.needs.value})"
    before, after = change.before or "(default)", change.after or "(default)"
    return f"{change.area} {change.subject}: {change.key} is {before}, not {after} ({change.needs.value})"
