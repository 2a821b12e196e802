"""Own nodes as the site file had them, by day: what a day was billed and divided by stays so. Pure.

A cloud's bill tells what nodes there were and what they cost. Of own nodes only the site file does, and it
says what is so now: each thing that it said is noted with the days that it counts for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Any

from hpctools.budget.month import Month, day_of
from hpctools.budget.rate_card import Price, rows
from hpctools.budget.tree import BudgetSite, NodeGroup, PoolRule

BEGINNING, NEVER = date.min, date.max


@dataclass(frozen=True)
class OwnNodes:
    """What a site file says of own nodes.

    Attributes:
        order: the names of all node groups, a cloud's as well.
        groups: those with a price.
        owners, pools: of these groups; see `BudgetSite`.
    """

    order: tuple[str, ...] = ()
    groups: tuple[NodeGroup, ...] = ()
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pools: Mapping[str, PoolRule] = field(default_factory=dict)
    prices: tuple[Price, ...] = ()


@dataclass(frozen=True)
class Noted:
    """What was said of own nodes for some days; `end` is exclusive."""

    first: date
    end: date
    own: OwnNodes


def own_nodes(site: BudgetSite) -> OwnNodes:
    """What a site says of its own nodes now."""
    priced = {price.node_group for price in site.prices}
    return OwnNodes(
        order=tuple(group.name for group in site.node_groups),
        groups=tuple(group for group in site.node_groups if group.name in priced),
        owners={name: owners for name, owners in site.owners.items() if name in priced},
        pools={name: rule for name, rule in site.pools.items() if name in priced},
        prices=site.prices,
    )


def to_text(own: OwnNodes) -> str:
    """As JSON, the same for the same."""
    return json.dumps(asdict(own), sort_keys=True, default=str)


def of_text(text: str) -> OwnNodes:
    """What `to_text` wrote."""
    told: dict[str, Any] = json.loads(text)
    return OwnNodes(
        order=tuple(told["order"]),
        groups=tuple(NodeGroup(**{**each, "nodes": tuple(each["nodes"])}) for each in told["groups"]),
        owners={name: tuple(owners) for name, owners in told["owners"].items()},
        pools=told["pools"],
        prices=tuple(_price(each) for each in told["prices"]),
    )


def _price(told: dict[str, Any]) -> Price:
    return Price(
        **{
            **told,
            "per_node_hour": Decimal(told["per_node_hour"]),
            "per_gpu_hour": Decimal(told["per_gpu_hour"]),
            "since": date.fromisoformat(told["since"]),
            "until": date.fromisoformat(told["until"]) if told["until"] else None,
        }
    )


@dataclass(frozen=True)
class OwnHistory:
    """All that was noted, the oldest first; of what counts for a day the newest does."""

    notes: tuple[Noted, ...] = ()

    def on(self, day: date) -> OwnNodes | None:
        """What counts for a day; None when nothing was noted."""
        counting = (note.own for note in reversed(self.notes) if note.first <= day < note.end)
        return next(counting, None)

    def prices(self) -> tuple[Price, ...]:
        """What own nodes cost on which days."""
        ends = sorted({day for note in self.notes for day in (note.first, note.end)})
        return tuple(
            _within(price, first, end)
            for first, end in pairwise(ends)
            for price in (self.on(first) or OwnNodes()).prices
            if price.since < end and first < (price.until or NEVER)
        )

    def sites(self, site: BudgetSite, days: Iterable[date]) -> dict[date, BudgetSite]:
        """A site with the own nodes that it had on each of some days; one object for the same."""
        present, made = own_nodes(site), dict[int, BudgetSite]()
        found = {}
        for day in days:
            own = self.on(day) or present
            if id(own) not in made:
                made[id(own)] = site if own == present else _with(site, own)
            found[day] = made[id(own)]
        return found


def _within(price: Price, first: date, end: date) -> Price:
    until = min(end, price.until or NEVER)
    return replace(price, since=max(first, price.since), until=None if until == NEVER else until)


def _with(site: BudgetSite, own: OwnNodes) -> BudgetSite:
    """A site with the own nodes of another time; of all else it is what it is now.

    Groups are in the order that they had: the same rules have the same digest. A node that was in one of them
    is in no other one, where it may be now.
    """
    then = {group.name: group for group in own.groups}
    taken = {node for group in own.groups for node in group.nodes}
    now = {group.name: _without(group, taken) for group in site.node_groups if group.name not in then}
    priced = {price.node_group for price in site.prices}
    later = [name for name in now if name not in own.order and name not in priced]
    both = now | then
    groups = tuple(both[name] for name in (*own.order, *later) if name in both)
    gone = then.keys() - site.groups.keys()
    owners = {name: _known(own.owners[name], site) for name in gone if name in own.owners}
    pools = {name: own.pools[name] for name in gone if name in own.pools}
    return replace(
        site,
        node_groups=groups,
        owners=_rules({**site.owners, **owners}, groups),
        pools=_rules({**site.pools, **pools}, groups),
        prices=own.prices,
    )


def _without(group: NodeGroup, taken: Set[str]) -> NodeGroup:
    left = tuple(node for node in group.nodes if node not in taken)
    return group if left == group.nodes else replace(group, nodes=left)


def _known(owners: Iterable[str], site: BudgetSite) -> tuple[str, ...]:
    """Those that the site still has: a department may go together with its nodes."""
    return tuple(name for name in owners if name in site.by_name)


def _rules(rules: Mapping[str, Any], groups: Iterable[NodeGroup]) -> dict[str, Any]:
    return {group.name: rules[group.name] for group in groups if group.name in rules}


def otherwise(history: OwnHistory, site: BudgetSite, month: Month, now: int) -> tuple[date, ...]:
    """The days of a month that are over and would have another bill by what the site says now."""
    billed = rows(history.prices(), month, site.metric, now)
    anew = rows(site.prices, month, site.metric, now)
    return tuple(sorted({row.day for row in {*billed} ^ {*anew} if row.day < day_of(now)}))
