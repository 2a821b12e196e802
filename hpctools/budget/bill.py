"""Bill rows: what a cloud provider charged for one day of one node group."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal


@dataclass(frozen=True, order=True)
class BillRow:
    """One row of a bill.

    Attributes:
        source: where it came from, for example `aws-ce`.
        day: UTC.
        node_group: the value of the site's tag; empty when the cost carries no tag.
        usage: the provider's usage type, for example `USE1-Cluster:ml.p4d.24xlarge`.
        metric: the cost measure, for example `NetAmortizedCost`.
        currency: ISO 4217.
        amount: in major units; negative for credits and refunds.
        node_hours: how many node-hours it pays for; 0 when it is not for running nodes.
        estimated: the provider may still change it.
    """

    source: str
    day: date
    node_group: str
    usage: str
    metric: str
    currency: str
    amount: Decimal
    node_hours: Decimal = Decimal(0)
    estimated: bool = False
