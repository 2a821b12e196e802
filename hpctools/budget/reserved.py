"""What reservations kept free of their nodes: node time that nobody else could use, and nobody used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hpctools.budget.tree import SITE_ACCOUNT, BudgetSite
from hpctools.budget.usage import NANO, Hold
from hpctools.slurm.accounting import expand
from hpctools.slurm.reservations import Reservation


@dataclass(frozen=True)
class Span:
    """A time of one node that a reservation kept, Unix seconds, and for whom."""

    start: int
    end: int
    accounts: tuple[str, ...]


Kept = Mapping[str, Sequence[Span]]
"""By node."""

Free = Mapping[str, Mapping[str, int]]
"""What was kept free for each account, by node group, in nano-node-seconds."""


@dataclass(frozen=True)
class Idle:
    """A node group's idle time of a day, in nano-node-seconds.

    Attributes:
        whole: what was paid for and no job held.
        kept: the part of it that a reservation kept for accounts, by account.
    """

    whole: int = 0
    kept: Mapping[str, int] = field(default_factory=dict)

    @property
    def weights(self) -> dict[str, int]:
        """Who bears how much; the empty account is nobody."""
        return {**self.kept, "": max(0, self.whole - sum(self.kept.values()))}


def kept_in(
    reservations: Collection[Reservation], site: BudgetSite, begin: int, end: int
) -> dict[str, list[Span]]:
    """The nodes that reservations kept within some time (Unix seconds), and for whom.

    Reservations that are for nobody whom the site knows, or for all of it, keep nothing for anybody.
    """
    spans: defaultdict[str, list[Span]] = defaultdict(list)
    for each in sorted(reservations):
        accounts = tuple(name for name in each.accounts if name in site.by_name and name != SITE_ACCOUNT)
        start, stop = max(each.start, begin), min(each.end, end)
        if not accounts or each.cluster != site.cluster or stop <= start:
            continue
        for node in expand(each.nodes):
            group = site.group_of_node.get(node)
            if group is not None and group.role == "compute":
                spans[node].append(Span(start, stop, accounts))
    return dict(spans)


def free(kept: Kept, held: Mapping[str, Sequence[Hold[Any]]], site: BudgetSite) -> dict[str, dict[str, int]]:
    """What jobs did not hold of what was kept.

    A node that several accounts may use is kept for them in equal parts.

    Args:
        held: by node, within the time that `kept` is of.
    """
    result: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for node, spans in kept.items():
        group = site.group_of_node[node].name
        for account, amount in _free(spans, held.get(node, ())):
            result[group][account] += amount
    return {group: dict(by_account) for group, by_account in result.items()}


def _free(spans: Sequence[Span], holds: Sequence[Hold[Any]]) -> Iterator[tuple[str, int]]:
    """Of one node, piece by piece between the moments at which its jobs or reservations change."""
    changes: defaultdict[int, int] = defaultdict(int)
    for hold in holds:
        changes[hold.start] += hold.share
        changes[hold.end] -= hold.share
    moments = sorted({*changes, *(span.start for span in spans), *(span.end for span in spans)})
    share = 0
    for begin, end in pairwise(moments):
        share += changes.get(begin, 0)
        within = [span for span in spans if span.start <= begin and end <= span.end]
        accounts = sorted({account for span in within for account in span.accounts})
        for account in accounts if share < NANO else ():
            yield account, (NANO - share) * (end - begin) // len(accounts)
