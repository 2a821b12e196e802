"""What billing cannot be for: findings about groups that are not there, or that a cloud's bill has.

Asked of a site whose parts are valid, like `places.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpctools.site.findings import Finding, one_of
from hpctools.site.model import Site


def check_billing(site: Site) -> Iterator[Finding]:
    """Apply the checks to a site; findings name the lines of its source."""
    groups = {group.name: group for group in site.node_groups}
    logins = [name for name, group in groups.items() if group.role == "login"]
    for name in site.billing.pools:
        if name not in logins:
            yield site.source.finding(("billing", "pools", name), repr(name), one_of(logins, name))
    for number, card in enumerate(site.billing.rate_cards):
        for place, name in enumerate(card.node_groups):
            where = ("billing", "rate_cards", number, "node_groups", place)
            if name not in groups:
                yield site.source.finding(where, repr(name), one_of(groups, name))
            elif groups[name].capacity is not None and site.billing.read_from:
                yield site.source.finding(
                    where,
                    f"{name!r}, whose capacity is {groups[name].capacity}",
                    "a group of your own nodes: this one is in the cloud's bill, and would count twice",
                )
