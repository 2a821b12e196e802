"""The sandbox's cloud bill: what a site's nodes would have cost, in moto's Cost Explorer or as an export.

moto answers GetCostAndUsage from a queue: each new request takes the first answer and keeps it. So a month's
answer is queued and at once bound to the request that the budget service will make.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

from hpctools.budget.cost_explorer import QUANTITY, request
from hpctools.budget.month import DAY_SECONDS, Month, day_of, day_start
from hpctools.errors import SandboxError
from hpctools.sandbox.bill_exports import deliver
from hpctools.site import Site
from hpctools.site.nodes import NodeGroup

METRIC = "NetAmortizedCost"

# US dollars an hour, in the order of AWS's list prices: a sandbox's bill must be plausible, not current.
_HOURLY = {
    "ml.p4d.24xlarge": Decimal("25.25"),
    "ml.p5.48xlarge": Decimal("63.30"),
    "ml.g5.12xlarge": Decimal("7.09"),
    "ml.g5.48xlarge": Decimal("20.36"),
    "ml.m5.4xlarge": Decimal("0.922"),
}
_OTHER_HOURLY = Decimal("1.15")
_PART_OF_LIST_PRICE = {"reserved": Decimal("0.45"), "spot": Decimal("0.38")}
_VOLUME_DAILY = Decimal("0.2633333333")
_SUPPORT = Decimal("0.03")
_TAX = Decimal("0.005")
_PLACES = Decimal("1e-10")


def seed(site: Site, endpoint: str, now: int, node_counts: Mapping[str, int] | None = None) -> None:
    """Give moto the bills of the present month until now and of the month before, where the site reads them.

    Does nothing for a month that moto has already. The first source of several has all of the bill.

    Args:
        endpoint: where moto listens, for example `http://127.0.0.1:5000`.
        now: Unix seconds.
        node_counts: nodes by group where they differ from the site's.

    Raises:
        SandboxError: moto does not answer.
    """
    present = Month.of(day_of(now))
    source = next((each for each in site.billing.read_from if each.kind != "cost-explorer"), None)
    if source is not None:
        both = (present.previous, present)
        bills = {month: cost_and_usage(site, month, now, node_counts or {}) for month in both}
        deliver(site, source, endpoint, bills)
        return
    for month in (present.previous, present):
        if not _ask(endpoint, site, month)["ResultsByTime"]:
            queue(endpoint, cost_and_usage(site, month, now, node_counts or {}))
            _ask(endpoint, site, month)


def queue(endpoint: str, answer: Mapping[str, Any]) -> None:
    """Make an answer of GetCostAndUsage the next that moto gives to a request it has not seen yet.

    Raises:
        SandboxError: moto does not answer.
    """
    url = f"{endpoint.rstrip('/')}/moto-api/static/ce/cost-and-usage-results"
    body = json.dumps({"results": [answer]}).encode()
    call = Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - our own moto
    try:
        # Straight to our own moto, whatever proxy the environment names.
        build_opener(ProxyHandler({})).open(call, timeout=30).close()
    except OSError as error:
        raise SandboxError(
            f"moto at {endpoint} does not take a bill: {error}", "see `hpctools sandbox logs moto`"
        ) from None


def cost_and_usage(site: Site, month: Month, now: int, node_counts: Mapping[str, int]) -> dict[str, Any]:
    """Cost Explorer's answer for a month: the same for the same arguments.

    Every node group's nodes ran from the month's first second until `now`; there are volumes, support and a
    tax besides. The present month is estimated.
    """
    over = now >= day_start(month.end)
    results = [
        {
            "TimePeriod": {"Start": day.isoformat(), "End": day_of(day_start(day) + DAY_SECONDS).isoformat()},
            "Total": {},
            "Groups": list(_groups(site, day, now, node_counts)),
            "Estimated": not over,
        }
        for day in month.days
        if day_start(day) < now
    ]
    return {"GroupDefinitions": [], "ResultsByTime": results, "DimensionValueAttributes": []}


def _groups(site: Site, day: date, now: int, node_counts: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    tag = site.billing.node_group_tag
    hours = Decimal(min(DAY_SECONDS, now - day_start(day))) / 3600
    cost = Decimal(0)
    for group in site.node_groups:
        node_hours = hours * node_counts.get(group.name, group.count.min)
        if node_hours and group.instance_type:
            amount = node_hours * _rate(group)
            cost += amount
            yield _row(
                f"{tag}${group.name}", f"USE1-Cluster:{group.instance_type}", amount, node_hours, "Hrs"
            )
            volumes = node_hours / 24 * _VOLUME_DAILY
            yield _row(
                f"{tag}${group.name}", "USE1-Cluster:VolumeUsage.gp3", volumes, node_hours / 24, "GB-Mo"
            )
    yield _row(f"{tag}$", "Dollar", cost * _SUPPORT, Decimal(0), "N/A")
    yield _row(f"{tag}$", "NoUsageType", cost * _TAX, Decimal(0), "N/A")


def _rate(group: NodeGroup) -> Decimal:
    hourly = _HOURLY.get(group.instance_type or "", _OTHER_HOURLY)
    return hourly * _PART_OF_LIST_PRICE.get(group.capacity or "", Decimal(1))


def _row(tag: str, usage: str, amount: Decimal, quantity: Decimal, unit: str) -> dict[str, Any]:
    return {
        "Keys": [tag, usage],
        "Metrics": {
            METRIC: {"Amount": f"{amount.quantize(_PLACES):f}", "Unit": "USD"},
            QUANTITY: {"Amount": f"{quantity.quantize(_PLACES):f}", "Unit": unit},
        },
    }


def _ask(endpoint: str, site: Site, month: Month) -> dict[str, Any]:
    """The request that the budget service makes, sent in the same way."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    client = boto3.client(
        "ce",
        region_name="us-east-1",
        endpoint_url=endpoint,
        config=Config(proxies={}),
        aws_access_key_id="sandbox",
        aws_secret_access_key="sandbox",  # noqa: S106 - moto takes any
    )
    try:
        return dict(client.get_cost_and_usage(**request(month, METRIC, site.billing.node_group_tag)))
    except (BotoCoreError, ClientError) as error:
        raise SandboxError(
            f"moto at {endpoint} does not answer: {error}", "see `hpctools sandbox logs moto`"
        ) from None
