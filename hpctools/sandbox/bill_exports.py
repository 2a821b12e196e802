"""The sandbox's cloud bill as AWS exports it: CUR 2.0 or FOCUS files in moto's S3, for sites that read these.

The same money as in `hpctools.sandbox.bill`'s Cost Explorer. Reserved nodes are covered by a reservation, tax
is tax, support a fee, and months that are over are on an invoice.

Sources: AWS Data Exports user guide, table dictionary of CUR 2.0; focus.finops.org, column library of 1.2.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from io import StringIO
from typing import Any

from hpctools.budget.cost_explorer import QUANTITY
from hpctools.budget.manifest import Export
from hpctools.budget.month import Month
from hpctools.errors import SandboxError
from hpctools.site import Site
from hpctools.site.billing import BillingSource

_PAYER = "123456789012"
_SERVICE = "AmazonSageMaker"
_SUPPORT, _TAX = "Dollar", "NoUsageType"
_RESERVATION = f"arn:aws:sagemaker:us-east-1:{_PAYER}:reserved/sandbox"


@dataclass(frozen=True)
class _Charge:
    """A line of the bill.

    Attributes:
        start: a UTC day.
        capacity: how the nodes are paid for; empty for what is no node.
        invoice: empty while the month runs.
    """

    month: Month
    start: str
    node_group: str
    usage: str
    amount: str
    quantity: str
    unit: str
    capacity: str
    invoice: str

    @property
    def kind(self) -> str:
        """`usage`, `fee` or `tax`."""
        return {_SUPPORT: "fee", _TAX: "tax"}.get(self.usage, "usage")


def deliver(
    site: Site, source: BillingSource, endpoint: str, bills: Mapping[Month, Mapping[str, Any]]
) -> None:
    """Put months into an export's bucket; one that was delivered already stays as it is.

    Args:
        source: of the kind `cur` or `focus`.
        endpoint: where moto listens.
        bills: of each month, Cost Explorer's answer (`bill.cost_and_usage`).

    Raises:
        SandboxError: moto does not answer.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    export = Export(source.bucket or "", source.prefix or "", source.export or "")
    client = _client(endpoint, source.region or "us-east-1")
    try:
        _make_bucket(client, export.bucket, source.region or "us-east-1")
        for month, answer in bills.items():
            if "Contents" not in client.list_objects_v2(
                Bucket=export.bucket, Prefix=export.manifests(month)[0]
            ):
                _put(client, export, month, _file(site, source, month, answer))
    except (BotoCoreError, ClientError) as error:
        raise SandboxError(
            f"moto at {endpoint} does not take an export: {error}", "see `hpctools sandbox logs moto`"
        ) from None


def _client(endpoint: str, region: str) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        region_name=region,
        endpoint_url=endpoint,
        config=Config(proxies={}),
        aws_access_key_id="sandbox",
        aws_secret_access_key="sandbox",  # noqa: S106 - moto takes any
    )


def _make_bucket(client: Any, bucket: str, region: str) -> None:
    if any(known["Name"] == bucket for known in client.list_buckets()["Buckets"]):
        return
    # S3 wants its oldest region to be left out.
    where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    client.create_bucket(Bucket=bucket, **where)


def _put(client: Any, export: Export, month: Month, content: bytes) -> None:
    """Data first: the manifest announces it."""
    key = f"{export.folder}data/BILLING_PERIOD={month}/{export.name}-00001.csv.gz"
    client.put_object(Bucket=export.bucket, Key=key, Body=content)
    told = {"executionId": f"sandbox-{month}", "dataFiles": [f"s3://{export.bucket}/{key}"]}
    client.put_object(Bucket=export.bucket, Key=export.manifests(month)[0], Body=json.dumps(told).encode())


def _file(site: Site, source: BillingSource, month: Month, answer: Mapping[str, Any]) -> bytes:
    write: Callable[[_Charge, str, str], dict[str, str]] = _cur if source.kind == "cur" else _focus
    tag, payer = site.billing.node_group_tag, source.billing_account or _PAYER
    return _packed([write(charge, tag, payer) for charge in _charges(site, month, answer)])


def _charges(site: Site, month: Month, answer: Mapping[str, Any]) -> Iterator[_Charge]:
    capacities = {group.name: group.capacity or "" for group in site.node_groups}
    for day in answer["ResultsByTime"]:
        invoice = "" if day["Estimated"] else f"SANDBOX-{month}"
        for found in day["Groups"]:
            (tag, usage), metrics = found["Keys"], dict(found["Metrics"])
            quantity = metrics.pop(QUANTITY)
            (cost,) = metrics.values()
            group = tag.partition("$")[2]
            yield _Charge(
                month=month,
                start=day["TimePeriod"]["Start"],
                node_group=group,
                usage=usage,
                amount=cost["Amount"],
                quantity=quantity["Amount"],
                unit=quantity["Unit"],
                capacity=capacities[group] if quantity["Unit"] == "Hrs" else "",
                invoice=invoice,
            )


def _cur(charge: _Charge, tag: str, payer: str) -> dict[str, str]:
    is_covered = charge.capacity == "reserved"
    kind = {"usage": "DiscountedUsage" if is_covered else "Usage", "fee": "Fee", "tax": "Tax"}[charge.kind]
    # The export spells a tag's key in its own way.
    key = f"user_{''.join(letter if letter.isalnum() else '_' for letter in tag.lower())}"
    return {
        "bill_billing_period_start_date": _midnight(charge.month.start.isoformat()),
        "bill_bill_type": "Anniversary",
        "bill_invoice_id": charge.invoice,
        "bill_payer_account_id": payer,
        "line_item_line_item_type": kind,
        "line_item_usage_start_date": _midnight(charge.start),
        "line_item_usage_type": charge.usage if charge.kind == "usage" else "",
        "line_item_product_code": _SERVICE if charge.kind == "usage" else "",
        "line_item_resource_id": "",
        "line_item_usage_amount": charge.quantity,
        "line_item_currency_code": "USD",
        "line_item_unblended_cost": "0" if is_covered else charge.amount,
        "line_item_blended_cost": charge.amount,
        "pricing_unit": charge.unit,
        "reservation_reservation_a_r_n": _RESERVATION if is_covered else "",
        "reservation_effective_cost": charge.amount if is_covered else "0",
        "resource_tags": json.dumps({key: charge.node_group} if charge.node_group else {}),
    }


def _focus(charge: _Charge, tag: str, payer: str) -> dict[str, str]:
    pricing = {"reserved": "Committed", "spot": "Dynamic", "": ""}.get(charge.capacity, "Standard")
    return {
        "BilledCost": "0" if charge.capacity == "reserved" else charge.amount,
        "EffectiveCost": charge.amount,
        "BillingAccountId": payer,
        "BillingCurrency": "USD",
        "BillingPeriodStart": _midnight(charge.month.start.isoformat()),
        "BillingPeriodEnd": _midnight(charge.month.end.isoformat()),
        "ChargeCategory": {"usage": "Usage", "fee": "Purchase", "tax": "Tax"}[charge.kind],
        "ChargeClass": "",
        "ChargePeriodStart": _midnight(charge.start),
        "CommitmentDiscountId": _RESERVATION if charge.capacity == "reserved" else "",
        "CommitmentDiscountStatus": "Used" if charge.capacity == "reserved" else "",
        "ConsumedQuantity": charge.quantity if Decimal(charge.quantity) else "",
        "ConsumedUnit": "Hours" if charge.unit == "Hrs" else charge.unit,
        "InvoiceId": charge.invoice,
        "PricingCategory": pricing,
        "ResourceId": "",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": "Amazon SageMaker",
        "SkuId": "",
        "x_UsageType": charge.usage if charge.kind == "usage" else "",
        "Tags": json.dumps({tag: charge.node_group} if charge.node_group else {}),
    }


def _midnight(day: str) -> str:
    return f"{day}T00:00:00Z"


def _packed(lines: Sequence[Mapping[str, str]]) -> bytes:
    text = StringIO()
    names: Iterable[str] = lines[0] if lines else ()
    writer = csv.DictWriter(text, list(names))
    writer.writeheader()
    writer.writerows(lines)
    # Without the time of day the same bill is the same file.
    return gzip.compress(text.getvalue().encode(), mtime=0)
