"""A plan as data: frozen, and the same after a round trip through JSON."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from enum import Enum
from functools import cached_property
from typing import Any

from hpctools.errors import HpctoolsError
from hpctools.slurm.versions import parse_release, reconfigure_starts_anew

FORMAT = 1
"""Version of the JSON form; a plan of another one is refused."""


class Need(Enum):
    """What a change takes to come into effect, from the lightest to the heaviest.

    Attributes of a value: its word, as JSON and people see it.
    """

    NOTHING = "file only"
    """What runs is right already; only the file is written."""
    LIVE = "live"
    """slurmdbd is told, and it counts at once."""
    RECONFIGURE = "reconfigure"
    """`scontrol reconfigure`."""
    RESTART_SLURMDBD = "restart slurmdbd"
    RESTART_SLURMCTLD = "restart slurmctld"
    RESTART_SLURMDS = "restart slurmds"
    """The slurmds of the change's nodes; jobs survive a restart of slurmd."""
    RESTART_DAEMONS = "restart slurmctld and slurmds"
    """slurmctld, then the slurmds of the change's nodes."""
    DRAIN = "drain first"
    """Nodes must be free of jobs first; then as RESTART_DAEMONS, or as RECONFIGURE where that starts every
    daemon anew."""

    @property
    def rank(self) -> int:
        """Its place in the order."""
        return list(Need).index(self)

    def __lt__(self, other: Need) -> bool:
        return self.rank < other.rank


_TOLD = {"qos", "account", "association", "user", "coordinator"}


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        area: `cluster`, `node`, `partition`, `gres`, `cgroup`, `topology`, `slurmdbd`, `file`, `qos`,
            `account`, `association`, `user`, `coordinator`.
        subject: what changes, for example `nlp` or `reserved-[1-4]`; the cluster's name for its settings.
        key: the setting; "" when the whole subject comes or goes.
        before: what there is; None when there is nothing.
        after: what the site wants; None when it wants nothing, or leaves it to Slurm's default.
        needs: what it takes.
        effect: what it means and for whom, one sentence for a person; may be empty.
        nodes: nodes whose slurmd restarts.
        jobs: ids of jobs that it would disturb.
        drains: nodes that must be free of jobs first.
    """

    area: str
    subject: str
    key: str
    before: str | None
    after: str | None
    needs: Need
    effect: str = ""
    nodes: tuple[str, ...] = ()
    jobs: tuple[int, ...] = ()
    drains: tuple[str, ...] = ()

    @property
    def told(self) -> bool:
        """Whether slurmdbd is told of it; it may take a reconfigure besides."""
        return self.needs is Need.LIVE or self.area in _TOLD

    @property
    def mark(self) -> str:
        """`+` for what comes, `-` for what goes, `~` for what changes."""
        if self.key:
            return "~"
        return "+" if self.before is None else "-"


@dataclass(frozen=True)
class FileChange:
    """A file whose text differs.

    Attributes:
        path: relative to the configuration folder.
        before: the text there is, secrets masked; None when there is no file.
        after: the text to be, secrets masked; None when the file goes.
        meaning: whether its meaning differs, and not only comments, order or folding.
    """

    path: str
    before: str | None
    after: str | None
    meaning: bool = True

    @property
    def diff(self) -> str:
        """The unified diff."""
        old, new = ((text or "").splitlines(keepends=True) for text in (self.before, self.after))
        before = "/dev/null" if self.before is None else f"a/{self.path}"
        after = "/dev/null" if self.after is None else f"b/{self.path}"
        lines = difflib.unified_diff(old, new, before, after)
        return "".join(
            text if text.endswith("\n") else f"{text}\n\\ No newline at end of file\n" for text in lines
        )


@dataclass(frozen=True)
class DisturbedJob:
    """A job that a change would end, move, or keep from starting.

    Attributes:
        state: `RUNNING`, `PENDING`, ...
        nodes: folded host list; "" for a pending job.
        why: one sentence.
        waits: it only has to wait longer; otherwise it ends, or can never start.
    """

    id: int
    user: str
    partition: str
    state: str
    nodes: str
    why: str
    waits: bool = False


@dataclass(frozen=True)
class Step:
    """Something to be done, once.

    Attributes:
        need: what: DRAIN, RESTART_SLURMDBD, RESTART_SLURMCTLD, RESTART_SLURMDS or RECONFIGURE; DRAIN is the
            draining alone, what comes after it is a step of its own.
        nodes: whose slurmds restart, or which nodes drain, in order.
    """

    need: Need
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What separates a cluster from its site.

    Attributes:
        cluster: the cluster's name.
        release: the Slurm release, for example `22.05.8`.
        folder: the configuration folder.
        changes: all differences that mean something, by area.
        files: files to be written, also those that differ in nothing but comments and order.
        jobs: jobs that the changes would disturb.
        warnings: what a person should know.
        unknown: what could not be compared, and why; the plan may lack changes there.
        digest: of the live state that it was made against; see `Live.digest`.
    """

    cluster: str
    release: str
    folder: str
    changes: tuple[Change, ...] = ()
    files: tuple[FileChange, ...] = ()
    jobs: tuple[DisturbedJob, ...] = ()
    warnings: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    digest: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do, as far as could be compared (see `unknown`)."""
        return not self.changes

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """What must be done beside writing files and telling slurmdbd, in this order."""
        return _steps(self.changes, reconfigure_starts_anew(parse_release(self.release)))

    def to_json(self) -> str:
        """One JSON object; `Plan.from_json` reads it back."""
        return json.dumps(
            {"format": FORMAT, **_plain(asdict(self)), "steps": _plain([*map(asdict, self.steps)])}, indent=2
        )

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read what `to_json` wrote.

        Raises:
            HpctoolsError: it is no plan, or one of another version of hpctools.
        """
        try:
            data = json.loads(text)
            known = data.pop("format") == FORMAT
            data.pop("steps")
            plan = _read(data) if known else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else error
            raise HpctoolsError(
                f"this is no plan: {why}", "make one with `hpctools plan --out FILE`"
            ) from None
        if plan is None:
            raise HpctoolsError("this plan was made by another version of hpctools", "make a new one")
        return plan


# What has to be there before what: nodes are free before anything changes; slurmdbd serves slurmctld; slurmds
# register with a slurmctld that knows their new shape; reconfigure then tells those that were not restarted.
STEP_ORDER = (
    Need.DRAIN,
    Need.RESTART_SLURMDBD,
    Need.RESTART_SLURMCTLD,
    Need.RESTART_SLURMDS,
    Need.RECONFIGURE,
)
# Daemons that were not restarted hear of the new file by a reconfigure.
_PARTS = {
    Need.RESTART_SLURMCTLD: (Need.RESTART_SLURMCTLD, Need.RECONFIGURE),
    Need.RESTART_DAEMONS: (Need.RESTART_SLURMCTLD, Need.RESTART_SLURMDS, Need.RECONFIGURE),
}
_BY_NODE = {Need.DRAIN, Need.RESTART_SLURMDS}


def _steps(changes: Iterable[Change], anew: bool) -> tuple[Step, ...]:
    after_draining = Need.RECONFIGURE if anew else Need.RESTART_DAEMONS
    nodes: dict[Need, dict[str, None]] = {}
    for change in changes:
        needs = (Need.DRAIN, after_draining) if change.needs is Need.DRAIN else (change.needs,)
        for need in (part for each in needs for part in _PARTS.get(each, (each,))):
            named = change.drains if need is Need.DRAIN else change.nodes
            nodes.setdefault(need, {}).update(dict.fromkeys(named))
    due = (need for need in STEP_ORDER if need in nodes and (nodes[need] or need not in _BY_NODE))
    return tuple(Step(need, tuple(nodes[need]) if need in _BY_NODE else ()) for need in due)


def _plain(value: Any) -> Any:
    if isinstance(value, Need):
        return value.value
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _read(data: dict[str, Any]) -> Plan:
    changes = [Change(**_tuples({**row, "needs": Need(row["needs"])})) for row in data.pop("changes")]
    files = [FileChange(**row) for row in data.pop("files")]
    jobs = [DisturbedJob(**row) for row in data.pop("jobs")]
    rest = _tuples(data)
    unknown = rest.keys() - {field.name for field in fields(Plan)}
    if unknown:
        raise ValueError(f"it says {', '.join(sorted(unknown))}")
    return Plan(changes=tuple(changes), files=tuple(files), jobs=tuple(jobs), **rest)


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
