"""Statements as CSV (RFC 4180): rows of their own, or as FOCUS has them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from io import StringIO
from itertools import chain, islice

from hpctools.budget.month import moment
from hpctools.budget.statement import Part, Statement
from hpctools.budget.tree import SITE_ACCOUNT

# A spreadsheet takes what begins so for a formula; names come from slurmdbd, and users choose some.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Rows that are in memory at a time.
_AT_ONCE = 1000
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")

COLUMNS = (
    *("account", "month", "currency", "status", "as_of", "section", "name", "level", "day", "amount"),
    *("percent", "cumulative", "expected"),
)
"""`section` says what a row is: figure, part, day, uncharged or other_currency."""

CSV_EXAMPLE = (
    f"{','.join(COLUMNS)}\r\n"
    "nlp,2026-11,USD,estimated,2026-11-21T12:00:00+00:00,figure,spent,,,7134.39,,,\r\n"
)

FOCUS_VERSION = "1.2"
FOCUS_COLUMNS = (
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingAccountType", "BillingCurrency"),
    *("BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription"),
    *("ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost"),
    *("InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName"),
    *("ServiceCategory", "ServiceName", "ServiceSubcategory", "SubAccountId", "SubAccountName"),
    *("SubAccountType", "Tags"),
)


def as_csv(statement: Statement) -> str:
    """A statement's figures, parts and days. Parts, and what is uncharged for the site, add up to `spent`."""
    as_of = moment(statement.as_of).isoformat() if statement.as_of is not None else ""
    head = (statement.account.name, str(statement.month), statement.currency, statement.status, as_of)
    return _written(COLUMNS, ((*map(_word, head), *row) for row in _rows(statement)))


def as_focus(statement: Statement, cluster: str) -> str:
    """A statement as a FOCUS dataset: one row for each part, which add up to what was spent.

    It is what the site charges its own people (showback): list, contracted and effective cost are one.

    Args:
        cluster: the site, which issues it.
    """
    return _written(FOCUS_COLUMNS, _focus_rows(statement, cluster))


def as_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Any table as CSV; what a spreadsheet would take for a formula is none."""
    return "".join(as_lines(columns, rows))


def as_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The same in pieces, for tables of any length."""
    lines = chain([columns], (tuple(map(_cell, row)) for row in rows))
    while piece := list(islice(lines, _AT_ONCE)):
        yield _text_of(piece)


def _rows(statement: Statement) -> Iterator[tuple[str, ...]]:
    figures = (
        ("spent", statement.spent),
        ("jobs", statement.jobs),
        ("idle", statement.idle),
        ("shared", statement.shared),
        ("budget", statement.budget),
        ("carried", statement.carried),
        ("approved", statement.approved),
        ("unbilled", statement.unbilled),
        ("left", statement.left),
        ("projected", statement.projected),
    )
    for name, amount in figures:
        if amount is not None:
            yield ("figure", name, "", "", _text(amount), "", "", "")
    for part in statement.parts:
        yield ("part", _word(part.name), part.level, "", _text(part.amount), _text(part.percent), "", "")
    for point in statement.days:
        day = (point.day.isoformat(), _text(point.amount), "", _text(point.cumulative), _text(point.expected))
        yield ("day", "", "", *day)
    if statement.account.name == SITE_ACCOUNT:
        for name, amount in _uncharged(statement):
            yield ("uncharged", name, "", "", _text(amount), "", "", "")
    for code, amount in statement.other_currencies.items():
        yield ("other_currency", _word(code), "", "", _text(amount), "", "", "")


def _uncharged(statement: Statement) -> tuple[tuple[str, Decimal], ...]:
    left = statement.uncharged
    return (("idle", left.idle), ("shared", left.shared), ("untagged", left.untagged))


def _focus_rows(statement: Statement, cluster: str) -> Iterator[tuple[str, ...]]:
    for part in statement.parts:
        yield _focus_row(statement, cluster, part, statement.currency)
    if statement.account.name == SITE_ACCOUNT:
        for name, amount in _uncharged(statement):
            part = Part(f"nobody ({name})", "other", amount, None)
            yield _focus_row(statement, cluster, part, statement.currency)
    for code, amount in statement.other_currencies.items():
        yield _focus_row(statement, cluster, Part(statement.account.name, "own", amount, None), code)


def _focus_row(statement: Statement, cluster: str, part: Part, currency: str) -> tuple[str, ...]:
    cost, account = _text(part.amount), statement.account
    tags = {"hpctools/level": part.level, "hpctools/name": part.name, "hpctools/status": statement.status}
    sub = (part.name, part.name, part.level)
    row = {
        **dict.fromkeys(("BilledCost", "EffectiveCost", "ContractedCost", "ListCost"), cost),
        "BillingAccountId": account.name,
        "BillingAccountName": account.title or account.name,
        "BillingAccountType": account.level,
        "BillingCurrency": currency,
        **dict.fromkeys(("BillingPeriodStart", "ChargePeriodStart"), _midnight(statement.month.start)),
        **dict.fromkeys(("BillingPeriodEnd", "ChargePeriodEnd"), _midnight(statement.month.end)),
        "ChargeCategory": "Usage",
        "ChargeClass": "Correction" if statement.corrected else "",
        "ChargeDescription": f"Use of the cluster {cluster}: {part.level} {part.name}",
        "ChargeFrequency": "Usage-Based",
        **dict.fromkeys(("InvoiceIssuerName", "ProviderName", "PublisherName"), cluster),
        "PricingQuantity": "1",
        "PricingUnit": "Months",
        "ServiceCategory": "Compute",
        "ServiceName": "Slurm cluster",
        "ServiceSubcategory": "Other (Compute)",
        **dict(zip(("SubAccountId", "SubAccountName", "SubAccountType"), sub, strict=True)),
        "Tags": json.dumps(tags, sort_keys=True),
    }
    amounts = ("BilledCost", "EffectiveCost", "ContractedCost", "ListCost")
    return tuple(row[name] if name in amounts else _word(row[name]) for name in FOCUS_COLUMNS)


def _midnight(day: date) -> str:
    return f"{day.isoformat()}T00:00:00Z"


def _written(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _text_of(chain([columns], rows))


def _text_of(rows: Iterable[Sequence[str]]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def _word(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _cell(text: str) -> str:
    """Numbers stay numbers, negative ones too."""
    return text if _NUMBER.fullmatch(text) else _word(text)


def _text(amount: Decimal | None) -> str:
    return "" if amount is None else f"{amount:f}"
