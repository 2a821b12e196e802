"""A plan as people read it: lines that fit the terminal, plain unless they are coloured."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import click

from hpctools.conf.plan.effects import count
from hpctools.conf.plan.model import Change, DisturbedJob, Need, Plan, Step
from hpctools.conf.text import fold

_TITLES = {
    "cluster": "cluster",
    "node": "nodes",
    "partition": "partitions",
    "gres": "GPUs (gres.conf)",
    "cgroup": "containment (cgroup.conf)",
    "topology": "topology",
    "slurmdbd": "accounting (slurmdbd.conf)",
    "file": "other files",
    "qos": "QoS",
    "account": "accounts",
    "association": "people in accounts",
    "user": "default accounts",
    "coordinator": "coordinators",
}
_COLORS = {"+": "green", "-": "red", "~": "yellow"}
_MOST = 20
_LONG_LIST = 40
_DOING = {
    Need.DRAIN: "drain {nodes}, and wait until no job is left there",
    Need.RESTART_SLURMDBD: "restart slurmdbd",
    Need.RESTART_SLURMCTLD: "restart slurmctld",
    Need.RESTART_SLURMDS: "restart slurmd on {nodes}",
    Need.RECONFIGURE: "scontrol reconfigure",
}


def plan_text(plan: Plan, *, width: int = 80, color: bool = False, everything: bool = False) -> str:
    """Tell a plan.

    Args:
        width: columns of the terminal.
        color: mark what comes, goes and changes with colours.
        everything: show every change, where otherwise the many alike are counted.
    """
    writer = _Writer(max(width, 40), color)
    parts = [
        writer.wrapped(_heading(plan), "", "  "),
        *_changes(plan, writer, everything),
        *_to_do(plan, writer),
        *_jobs(plan, writer, everything),
    ]
    parts += [*_listed("warnings", plan.warnings, writer), *_listed("not compared", plan.unknown, writer)]
    return "\n".join(parts) + "\n"


def diff_text(plan: Plan) -> str:
    """The unified diffs of all files."""
    return "".join(file.diff for file in plan.files)


def _heading(plan: Plan) -> str:
    where = f"{plan.cluster} (Slurm {plan.release}, {plan.folder})"
    if not plan.empty:
        number = len(plan.changes)
        return f"{where}: {number} change{'' if number == 1 else 's'}"
    return f"{where}: {'no changes in what could be compared' if plan.unknown else 'no changes'}"


class _Writer:
    def __init__(self, width: int, color: bool) -> None:
        self.width = width
        self.color = color

    def wrapped(self, text: str, first: str = "  ", rest: str = "      ") -> str:
        """A paragraph with its indents; a word longer than a line stays whole, to be copied."""
        return textwrap.fill(
            text,
            self.width,
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def styled(self, text: str, **style: object) -> str:
        return click.style(text, **style) if self.color else text  # type: ignore[arg-type]


def _changes(plan: Plan, writer: _Writer, everything: bool) -> Iterator[str]:
    areas = dict.fromkeys(change.area for change in plan.changes)
    for area in sorted(areas, key=lambda area: [*_TITLES, area].index(area)):
        yield "\n" + writer.styled(_TITLES.get(area, area), bold=True)
        shown: dict[str, int] = {}
        for change in (change for change in plan.changes if change.area == area):
            shown[change.mark] = shown.get(change.mark, 0) + 1
            if everything or shown[change.mark] <= _MOST:
                yield from _change(change, writer)
        hidden = {} if everything else {mark: number - _MOST for mark, number in shown.items()}
        for mark, number in hidden.items():
            if number > 0:
                yield f"  {writer.styled(mark, fg=_COLORS[mark])} and {number} more (--all shows them)"


def _change(change: Change, writer: _Writer) -> Iterator[str]:
    words = f"{change.subject} {change.key}" if change.key else change.subject
    text = f"{change.mark} {words}: {_values(change)} [{change.needs.value}]"
    line = writer.wrapped(text)
    # Colours come after wrapping, which counts characters.
    yield line.replace(change.mark, writer.styled(change.mark, fg=_COLORS[change.mark]), 1)
    if change.effect:
        yield writer.wrapped(change.effect, "      ")


def _values(change: Change) -> str:
    before, after = change.before, change.after
    if not change.key:
        return (after if before is None else before) or ""
    long = before and after and len(before) + len(after) > _LONG_LIST and "," in before + after
    if before and after and long and change.key != "Nodes":
        return _list_values(before.split(","), after.split(","))
    return f"{_said(before)} -> {_said(after)}"


def _list_values(before: Sequence[str], after: Sequence[str]) -> str:
    """Long lists: what comes and what goes."""
    came = [f"+{word}" for word in after if word not in before]
    went = [f"-{word}" for word in before if word not in after]
    return " ".join([*came, *went]) or "another order"


def _said(value: str | None) -> str:
    return "(default)" if value is None or not value.strip() else value


def _to_do(plan: Plan, writer: _Writer) -> Iterator[str]:
    tasks = _tasks(plan)
    if tasks:
        yield "\n" + writer.styled("to do", bold=True)
    for number, task in enumerate(tasks, 1):
        yield writer.wrapped(f"{number}. {task}")


def _tasks(plan: Plan) -> list[str]:
    if plan.empty:
        return []
    drains = [step for step in plan.steps if step.need is Need.DRAIN]
    others = [step for step in plan.steps if step.need is not Need.DRAIN]
    files = [file.path for file in plan.files if file.meaning and file.after is not None]
    going = [file.path for file in plan.files if file.after is None]
    written = [f"{verb} {', '.join(names)}" for verb, names in (("write", files), ("remove", going)) if names]
    told = ["tell slurmdbd"] if any(change.told for change in plan.changes) else []
    return [*map(_task, drains), *told, *written, *map(_task, others)]


def _task(step: Step) -> str:
    return _DOING[step.need].format(nodes=fold(step.nodes) if step.nodes else "")


def _jobs(plan: Plan, writer: _Writer, everything: bool) -> Iterator[str]:
    """Those that end or can never start, all of them; of those that wait longer the first ones."""
    disturbed = [job for job in plan.jobs if not job.waits]
    later = [job for job in plan.jobs if job.waits]
    shown = len(later) if everything else min(len(later), _MOST)
    yield from _named(disturbed, f"{count(len(disturbed), 'job')} disturbed", writer)
    yield from _named(later[:shown], f"{count(len(later), 'pending job')} to wait longer", writer)
    if shown < len(later):
        yield writer.wrapped(f"and {len(later) - shown} more (--all)")


def _named(jobs: Sequence[DisturbedJob], title: str, writer: _Writer) -> Iterator[str]:
    if jobs:
        yield "\n" + writer.styled(title, bold=True)
    for job in jobs:
        where = f" on {job.nodes}" if job.nodes else ""
        yield writer.wrapped(
            f"{job.id} of {job.user} ({job.partition}, {job.state.lower()}{where}): {job.why}"
        )


def _listed(title: str, lines: Sequence[str], writer: _Writer) -> Iterator[str]:
    if lines:
        yield "\n" + writer.styled(title, bold=True)
    for line in lines:
        yield writer.wrapped(line)
