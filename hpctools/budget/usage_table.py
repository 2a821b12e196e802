"""What jobs used of their nodes on one day, in columns: the same figures as `usage.measure`, for many jobs.

Needs the `api` extra. Whole nano-node-seconds throughout, so that neither the order of jobs nor the way of
summing matters.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from types import SimpleNamespace
from typing import Any, cast

import polars as pl

from hpctools.budget.tree import BudgetSite, NodeGroup
from hpctools.budget.usage import NANO, Hold, shares, sweep
from hpctools.slurm.accounting import JobRecord, expand

_TRES = ("cpus", "memory_mb", "gpus", "shards")
# Beyond, a size times NANO may not fit in 64 bits: such jobs are worked out one by one.
_LARGEST = 9 * 10**9
_SECONDS = pl.col("finish") - pl.col("begin")


class Layout:
    """Which node is of which group, with every host list unfolded once.

    Args:
        site: its node groups and hardware; not changed while this lives.
    """

    def __init__(self, site: BudgetSite) -> None:
        self.site = site
        self._unfolded: dict[str, tuple[str, ...]] = {}

    def groups(self, nodes: str) -> list[NodeGroup | None]:
        """The group of each node of a folded list; None for a node that the site does not have."""
        return [self.site.group_of_node.get(node) for node in self.names(nodes)]

    def names(self, nodes: str) -> tuple[str, ...]:
        """The nodes of a folded list, sorted."""
        if nodes not in self._unfolded:
            plain = "[" not in nodes and "," not in nodes and nodes
            self._unfolded[nodes] = (nodes,) if plain else expand(nodes)
        return self._unfolded[nodes]


def use(jobs: pl.DataFrame, layout: Layout, begin: int, end: int) -> pl.DataFrame:
    """What each job used of each compute node group in a part of one day.

    Args:
        jobs: columns of `JobRecord`; each job once.
        begin, end: Unix seconds within one UTC day.

    Returns:
        `job` (the row's number in `jobs`), `node_group`, `used` (nano-node-seconds, above zero), by job.
    """
    held = _clipped(jobs, begin, end)
    parts = _parts(held, layout)
    nodes = _nodes(parts, layout)
    crowded = _crowded(nodes)
    if crowded.is_empty():
        used = parts.select("job", "node_group", used=pl.col("share") * pl.col("count") * _SECONDS)
        return used.sort("job", "node_group")
    calm = nodes.filter(~pl.col("node").is_in(crowded.implode()))
    pieces = [calm.select("job", "node_group", used=pl.col("share") * _SECONDS)]
    pieces.append(_swept(nodes.filter(pl.col("node").is_in(crowded.implode()))))
    summed = pl.concat(pieces).group_by("job", "node_group").agg(pl.col("used").sum())
    return summed.filter(pl.col("used") > 0).sort("job", "node_group")


def holds_on(
    jobs: pl.DataFrame, layout: Layout, begin: int, end: int, nodes: Collection[str]
) -> dict[str, list[Hold[int]]]:
    """What jobs held of some nodes in a part of one day; a job is the row's number in `jobs`."""
    wanted = pl.Series("node", sorted(nodes), dtype=pl.String)
    held = _nodes(_parts(_clipped(jobs, begin, end), layout), layout)
    result: defaultdict[str, list[Hold[int]]] = defaultdict(list)
    columns = held.filter(pl.col("node").is_in(wanted.implode())).select(
        "node", "begin", "finish", "share", "job"
    )
    for node, *hold in columns.iter_rows():
        result[node].append(Hold(*hold))
    return dict(result)


def _clipped(jobs: pl.DataFrame, begin: int, end: int) -> pl.DataFrame:
    wanted = jobs.select(*_TRES, "nodes", "start", "end").with_row_index("job")
    return wanted.with_columns(
        begin=pl.max_horizontal("start", pl.lit(begin)),
        finish=pl.min_horizontal(pl.col("end").fill_null(end), pl.lit(end)),
    ).filter(pl.col("start").is_not_null() & (pl.col("finish") > pl.col("begin")) & (pl.col("nodes") != ""))


def _parts(held: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """Each job's share of each node of a group: `job, nodes, begin, finish, node_group, count, share`."""
    kept = ("job", "nodes", "begin", "finish", "node_group", "count", "share")
    even = held.join(_even(held["nodes"].unique(), layout), on="nodes")
    weights = layout.site.weights
    shared = [
        pl.when(pl.col(f"all_{name}") > 0)
        .then(pl.min_horizontal(name, f"all_{name}") * NANO // pl.col(f"all_{name}") * weight // 100)
        .otherwise(0)
        for name, weight in zip(_TRES, (weights.cpu, weights.memory, weights.gpu, weights.gpu), strict=True)
    ]
    plain = even.filter(pl.col("node_group").is_not_null()).with_columns(share=pl.max_horizontal(shared))
    odd = even.filter(pl.col("node_group").is_null()).select(held.columns)
    mixed = odd.join(_mixed(odd.select("nodes", *_TRES).unique(), layout), on=["nodes", *_TRES])
    return pl.concat([plain.select(kept), mixed.select(kept)]).filter(pl.col("share") > 0)


def _even(lists: Iterable[str], layout: Layout) -> pl.DataFrame:
    """Host lists with the sizes of all their nodes together; no group where they are not all of one."""
    rows = [_even_row(nodes, layout.groups(nodes)) for nodes in lists]
    sizes = {f"all_{name}": pl.Int64 for name in _TRES}
    columns = {"nodes": pl.String, "node_group": pl.String, "count": pl.Int64} | sizes
    return pl.DataFrame(rows, schema=columns, orient="row")


def _even_row(nodes: str, groups: list[NodeGroup | None]) -> tuple[Any, ...]:
    first, count = groups[0], len(groups)
    if first is not None and first.role == "compute" and groups.count(first) == count:
        sizes = [getattr(first, name) * count for name in _TRES]
        if max(sizes) <= _LARGEST:
            return (nodes, first.name, count, *sizes)
    return (nodes, None, count, 0, 0, 0, 0)


def _mixed(kinds: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """Shares where nodes of several groups are held, or such that the site does not know."""
    rows: list[tuple[Any, ...]] = []
    for kind in kinds.select("nodes", *_TRES).iter_rows():
        groups = layout.groups(kind[0])
        job = cast(JobRecord, SimpleNamespace(**dict(zip(_TRES, kind[1:], strict=True))))
        ofs = list(zip(groups, shares(job, groups, layout.site.weights), strict=True))
        counts = Counter((group.name, share) for group, share in ofs if group and group.role == "compute")
        rows += [(*kind, name, count, share) for (name, share), count in counts.items()]
    tres = dict.fromkeys(_TRES, pl.Int64)
    columns = {"nodes": pl.String} | tres | {"node_group": pl.String, "count": pl.Int64, "share": pl.Int64}
    return pl.DataFrame(rows, schema=columns, orient="row")


def _nodes(parts: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """The same by node: `job, node, node_group, begin, finish, share`."""
    rows = []
    for nodes in parts["nodes"].unique():
        named = zip(layout.names(nodes), layout.groups(nodes), strict=True)
        rows += [(nodes, group.name, node) for node, group in named if group and group.role == "compute"]
    columns = dict.fromkeys(("nodes", "node_group", "node"), pl.String)
    members = pl.DataFrame(rows, schema=columns, orient="row")
    return parts.join(members, on=["nodes", "node_group"]).drop("nodes", "count")


def _crowded(nodes: pl.DataFrame) -> pl.Series:
    """Nodes of which more than all is held at some moment.

    Shares are summed over all events of all nodes in one go: those of a node sum to zero.
    """
    names = nodes.with_columns(place=pl.col("node").rank("dense"))
    begins = names.select("place", "node", at="begin", change="share")
    ends = names.select("place", "node", at="finish", change=-pl.col("share"))
    events = pl.concat([begins, ends]).sort("place", "at", "change")
    return events.filter(pl.col("change").cum_sum() > NANO)["node"].unique()


def _swept(nodes: pl.DataFrame) -> pl.DataFrame:
    """Use of crowded nodes, piece by piece between the moments at which their jobs change."""
    used: defaultdict[tuple[int, str], int] = defaultdict(int)
    for (_, group), held in nodes.group_by("node", "node_group"):
        holds = [Hold(*row) for row in held.select("begin", "finish", "share", "job").iter_rows()]
        for _, job, amount in sweep(holds):
            used[job, str(group)] += amount
    rows = [(job, group, amount) for (job, group), amount in used.items()]
    columns = {"job": pl.UInt32, "node_group": pl.String, "used": pl.Int64}
    return pl.DataFrame(rows, schema=columns, orient="row")
