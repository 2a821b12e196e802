"""What reading bills needs of a site file."""

from __future__ import annotations

from hpctools.budget.rate_card import Price
from hpctools.site import Site
from hpctools.site.billing import RateCard
from hpctools.site.nodes import NodeGroup


def prices(site: Site) -> tuple[Price, ...]:
    """What the site's own nodes cost, by its rate cards."""
    groups = {group.name: group for group in site.node_groups}
    return tuple(_price(groups[name], card) for card in site.billing.rate_cards for name in card.node_groups)


def _price(group: NodeGroup, card: RateCard) -> Price:
    return Price(
        node_group=group.name,
        nodes=group.count.min,
        gpus=group.gpus.count if group.gpus else 0,
        currency=card.currency,
        per_node_hour=card.per_node_hour,
        per_gpu_hour=card.per_gpu_hour,
        since=card.since,
        until=card.until,
    )
