"""Which node group a cluster's node-hours are of, where the bill tells the cluster and the type only. Pure.

HyperPod's tags stand on the cluster: its bill says `USE1-Cluster:ml.p4d.24xlarge`, and not which instance
group. Where one group has that type (and is of spot nodes, where the bill says spot), the row is the group's.
Where several have it, the row is divided by the hours that each group's nodes were there: always-on nodes for
the whole day first, what is left among the groups that grow, by how far they may. Rows that already have a
group stay as they are, and what fits no group stays without one. Nothing is added or lost.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal

import polars as pl

from hpctools.budget.bill import BillRow
from hpctools.budget.bill_table import SCHEMA, frame_of, rows_of
from hpctools.budget.money import apportion, total
from hpctools.budget.tree import BudgetSite, NodeGroup

_TYPE = re.compile(r"(?:^|-)Cluster:(ml\.[a-z0-9-]+\.[a-z0-9-]+)$")
_HOURS_OF_DAY = 24
_MILLI = 1000


def place(rows: Iterable[BillRow], site: BudgetSite) -> list[BillRow]:
    """The rows with a node group wherever the site's groups tell it."""
    given = list(rows)
    by_type = _groups_by_type(site)
    chosen = [_candidates(row, site, by_type) for row in given]
    hours = _hours(zip(given, chosen, strict=True))
    placed: list[BillRow] = []
    for row, groups in zip(given, chosen, strict=True):
        placed += _divided(row, groups, hours[row.day, _names(groups)]) if groups else [row]
    return placed


def place_table(table: pl.DataFrame, site: BudgetSite) -> pl.DataFrame:
    """The same for columns (`bill_table.SCHEMA`)."""
    open_ = (pl.col("node_group") == "") & (pl.col("cluster") == site.cluster)
    nodes = table.filter(open_ & pl.col("usage").str.contains(_TYPE.pattern))
    if nodes.is_empty():
        return table
    rest = table.filter(~(open_ & pl.col("usage").str.contains(_TYPE.pattern)))
    return pl.concat([rest.select(list(SCHEMA)), frame_of(place(rows_of(nodes), site))])


def _groups_by_type(site: BudgetSite) -> dict[str, list[NodeGroup]]:
    by_type: defaultdict[str, list[NodeGroup]] = defaultdict(list)
    for group in site.node_groups:
        if group.instance_type:
            by_type[group.instance_type].append(group)
    return by_type


def _type_of(row: BillRow) -> str:
    found = _TYPE.search(row.usage)
    return found[1] if found else ""


def _candidates(row: BillRow, site: BudgetSite, by_type: dict[str, list[NodeGroup]]) -> Sequence[NodeGroup]:
    if row.node_group or row.cluster != site.cluster:
        return ()
    groups = by_type.get(_type_of(row), ())
    same = [group for group in groups if row.capacity == "spot" and group.capacity == "spot"]
    return same or groups


_Hours = dict[tuple[date, tuple[str, ...]], Decimal]


def _hours(rows: Iterable[tuple[BillRow, Sequence[NodeGroup]]]) -> _Hours:
    """Node-hours of each day that are divided among the same groups: what is called spot is apart."""
    hours: defaultdict[tuple[date, tuple[str, ...]], list[Decimal]] = defaultdict(list)
    for row, groups in rows:
        if groups:
            hours[row.day, _names(groups)].append(row.node_hours)
    return {key: total(parts) for key, parts in hours.items()}


def _names(groups: Sequence[NodeGroup]) -> tuple[str, ...]:
    return tuple(group.name for group in groups)


def _divided(row: BillRow, groups: Sequence[NodeGroup], hours: Decimal) -> list[BillRow]:
    if len(groups) == 1:
        return [replace(row, node_group=groups[0].name)]
    weights = _weights(groups, hours)
    amounts, parts = apportion(row.amount, weights), apportion(row.node_hours, weights)
    return [
        replace(row, node_group=group.name, amount=amount, node_hours=part)
        for group, amount, part in zip(groups, amounts, parts, strict=True)
        if amount or part
    ]


def _weights(groups: Sequence[NodeGroup], hours: Decimal) -> list[int]:
    """Each group's hours of a day, in thousandths."""
    steady = [group.always_on * _HOURS_OF_DAY * _MILLI for group in groups]
    growth = [len(group.nodes) - group.always_on for group in groups]
    rest = int(hours * _MILLI) - sum(steady)
    if rest > 0 and sum(growth) > 0:
        return [mine + rest * more // sum(growth) for mine, more in zip(steady, growth, strict=True)]
    return steady if any(steady) else [max(more, 1) for more in growth]
