"""The month's bill from AWS Cost Explorer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hpctools.budget import cost_explorer
from hpctools.budget.bill import BillRow, Charge
from hpctools.budget.cost_explorer import ClusterTag
from hpctools.budget.month import Month
from hpctools.errors import BudgetError, UnreachableError

# Cost Explorer answers in one region only, for the whole account.
_REGION = "us-east-1"
_MOST_PAGES = 1000
_ATTEMPTS = 8
_READINGS = 3

_REMEDIES = {
    "AccessDeniedException": "allow ce:GetCostAndUsage to the service's role, and activate Cost Explorer",
    "UnrecognizedClientException": "check the AWS credentials of the service",
    "ExpiredTokenException": "renew the AWS credentials of the service",
    "BillExpirationException": "ask for a month within the last 14",
    "DataUnavailableException": "AWS has no cost data yet; try again tomorrow",
    "RequestChangedException": "AWS changed the bill while it was read; try again",
    "LimitExceededException": "AWS limits the rate of requests; try again in some minutes",
    "ThrottlingException": "AWS limits the rate of requests; try again in some minutes",
}


class _ChangedError(BudgetError):
    """AWS changed the bill while its pages were read."""


@dataclass(frozen=True)
class CostExplorer:
    """AWS Cost Explorer as a source of bills.

    Attributes:
        metric: the cost measure.
        tag_key: the cost allocation tag that names node groups.
        cluster: read only what carries this tag and value; the whole account when None.
        by_charge: tell credits, refunds, tax, fees and commitments apart, by a request each.
    """

    metric: str
    tag_key: str
    cluster: ClusterTag | None = None
    by_charge: bool = False
    name: str = cost_explorer.SOURCE

    def rows(self, month: Month) -> tuple[BillRow, ...]:
        """The bill of a month as it is now.

        When AWS changes the bill between two pages, all pages are read again.

        Raises:
            UnreachableError: AWS does not answer.
            BudgetError: AWS refuses, or answers something else than a bill.
        """
        for _ in range(_READINGS - 1):
            try:
                return self._read(month)
            except _ChangedError:
                continue
        return self._read(month)

    def _read(self, month: Month) -> tuple[BillRow, ...]:
        charges = cost_explorer.REQUESTED if self.by_charge else (None,)
        whose = self.cluster.value if self.cluster else ""
        parts = (
            cost_explorer.parse(
                self._pages(month, charge), self.metric, self.tag_key, charge or "usage", whose
            )
            for charge in charges
        )
        return tuple(sorted(row for part in parts for row in part))

    def _pages(self, month: Month, charge: Charge | None) -> Iterator[dict[str, Any]]:
        client = _client()
        page: str | None = None
        for _ in range(_MOST_PAGES):
            arguments = cost_explorer.request(month, self.metric, self.tag_key, self.cluster, page, charge)
            answer = _ask(client, arguments)
            yield answer
            page = answer.get("NextPageToken")
            if not page:
                return
        raise BudgetError(f"Cost Explorer's answer for {month} has no end", "report this")


def _client() -> Any:
    from boto3.session import Session
    from botocore.config import Config

    retries = Config(
        retries={"mode": "adaptive", "max_attempts": _ATTEMPTS}, connect_timeout=10, read_timeout=60
    )
    return Session().client("ce", region_name=_REGION, config=retries)


def _ask(client: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError

    try:
        answer: dict[str, Any] = client.get_cost_and_usage(**arguments)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        remedy = _REMEDIES.get(code, "see the AWS Cost Explorer API reference for this error")
        kind = _ChangedError if code == "RequestChangedException" else BudgetError
        raise kind(f"AWS Cost Explorer refuses: {error}", remedy) from None
    except NoCredentialsError:
        raise BudgetError(
            "there are no AWS credentials", "give the service a role or a profile (AWS_PROFILE)"
        ) from None
    except (HTTPClientError, BotoCoreError) as error:
        raise UnreachableError(
            f"AWS Cost Explorer does not answer: {error}", "check the network and AWS_ENDPOINT_URL"
        ) from None
    return answer
