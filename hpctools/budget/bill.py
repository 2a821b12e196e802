"""Bill rows: what a provider charged for one day of one thing, of whatever source it comes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal, get_args

Charge = Literal["usage", "credit", "refund", "tax", "fee", "commitment", "adjustment"]
CHARGES: tuple[Charge, ...] = get_args(Charge)
"""`commitment`: of a savings plan or reservation that nothing used; `fee`: support, subscriptions, one-time
payments; `adjustment`: what the provider corrects of an earlier month."""

Capacity = Literal["", "on-demand", "spot", "reserved"]


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
        service: the provider's name of the service; empty where the source does not tell.
        charge: what kind of money it is.
        resource: the provider's id of what was used, for example an instance's.
        capacity: how a node was paid for; empty for what is no node, or where the source does not tell.
        billing_account: who pays, in the provider's words.
        invoice: the invoice that it is on; empty when it is not invoiced yet.
        cluster: the value of the tag that names the cluster; empty when there is none, or nobody tells.
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
    service: str = ""
    charge: Charge = "usage"
    resource: str = ""
    capacity: Capacity = ""
    billing_account: str = ""
    invoice: str = ""
    cluster: str = ""
