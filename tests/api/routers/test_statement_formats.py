from __future__ import annotations

import csv
import json
from dataclasses import replace
from datetime import date
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest

from api.formats.negotiate import chosen
from api.formats.pdf import as_pdf
from api.formats.tables import COLUMNS, FOCUS_COLUMNS, as_csv, as_focus
from api.problems import ProblemError
from api.services.statements import read_statement
from hpctools.budget.money import total
from hpctools.budget.statement import Part

URL = "/v1/accounts/{}/statement/2026-11"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text, newline="")))


@pytest.mark.parametrize("account", ["root", "nlp", "nlp-lab-a"])
def test_every_format_has_the_same_money(november_service: Any, account: str) -> None:
    client = november_service.client(None)
    spent = Decimal(client.get(URL.format(account)).json()["spent"])
    answer = client.get(URL.format(account), headers={"Accept": "text/csv"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    assert answer.headers["content-disposition"] == f'attachment; filename="{account}-2026-11.csv"'
    found = rows(answer.text)
    assert tuple(found[0]) == COLUMNS
    charged = ("part", "uncharged")
    assert total(Decimal(row["amount"]) for row in found if row["section"] in charged) == spent
    assert total(Decimal(row["amount"]) for row in found if row["section"] == "day") == spent
    focus = rows(client.get(URL.format(account), params={"format": "focus"}).text)
    assert tuple(focus[0]) == FOCUS_COLUMNS
    for column in ("BilledCost", "EffectiveCost"):
        assert total(Decimal(row[column]) for row in focus) == spent


def test_a_row_of_focus(november_service: Any) -> None:
    answer = november_service.client("nlp").get(URL.format("nlp"), params={"format": "focus"})
    row = rows(answer.text)[0]
    amount = row.pop("BilledCost")
    assert {row.pop(name) for name in ("EffectiveCost", "ContractedCost", "ListCost")} == {amount}
    tags = json.loads(row.pop("Tags"))
    assert tags == {"hpctools/level": "lab", "hpctools/name": "nlp-lab-a", "hpctools/status": "estimated"}
    assert row == {
        "BillingAccountId": "nlp",
        "BillingAccountName": "Natural Language Processing",
        "BillingAccountType": "department",
        "BillingCurrency": "USD",
        "BillingPeriodEnd": "2026-12-01T00:00:00Z",
        "BillingPeriodStart": "2026-11-01T00:00:00Z",
        "ChargeCategory": "Usage",
        "ChargeClass": "",
        "ChargeDescription": "Use of the cluster uni-gpu: lab nlp-lab-a",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": "2026-12-01T00:00:00Z",
        "ChargePeriodStart": "2026-11-01T00:00:00Z",
        "InvoiceIssuerName": "uni-gpu",
        "PricingQuantity": "1",
        "PricingUnit": "Months",
        "ProviderName": "uni-gpu",
        "PublisherName": "uni-gpu",
        "ServiceCategory": "Compute",
        "ServiceName": "Slurm cluster",
        "ServiceSubcategory": "Other (Compute)",
        "SubAccountId": "nlp-lab-a",
        "SubAccountName": "nlp-lab-a",
        "SubAccountType": "lab",
    }


def test_on_paper(november_service: Any) -> None:
    answer = november_service.client("nlp").get(URL.format("nlp"), params={"format": "pdf"})
    assert answer.headers["content-type"] == "application/pdf"
    assert answer.content.startswith(b"%PDF-")
    assert answer.content.rstrip().endswith(b"%%EOF")
    again = november_service.client("nlp").get(URL.format("nlp"), headers={"Accept": "application/pdf"})
    assert again.content == answer.content


@pytest.mark.parametrize(
    ("stated", "accept", "form"),
    [
        (None, None, "json"),
        (None, "*/*", "json"),
        (None, "", "json"),
        (None, "text/csv", "csv"),
        (None, "text/*", "csv"),
        (None, "application/*", "json"),
        (None, "application/pdf;q=0.9, application/json;q=0.5", "pdf"),
        (None, "application/json;q=0, */*", "csv"),
        ("focus", "application/pdf", "focus"),
        ("json", "text/plain", "json"),
    ],
)
def test_what_is_chosen(stated: Any, accept: str | None, form: str) -> None:
    assert chosen(stated, accept) == form


@pytest.mark.parametrize("accept", ["text/plain", "image/*", "*/*;q=0", "text/csv;q=x", "nonsense"])
def test_what_cannot_be_had(november_service: Any, accept: str) -> None:
    with pytest.raises(ProblemError, match="A statement is"):
        chosen(None, accept)
    answer = november_service.client("nlp").get(URL.format("nlp"), headers={"Accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (406, "application/problem+json")
    unknown = november_service.client("nlp").get(URL.format("nlp"), params={"format": "xml"})
    assert unknown.status_code == 422


def test_names_cannot_be_formulas_or_break_rows(november_service: Any, site: Any, november: Any) -> None:
    known = read_statement(november_service.engine, site, site.by_name["nlp-lab-a"], november)
    wild = ('=HYPERLINK("http://x")', "+1", "-1", "@x", "\tx", 'a,"b"', "line\nbreak", "名前 🚀")
    parts = tuple(Part(name, "user", Decimal("-1.50"), None) for name in wild)
    statement = replace(known, parts=parts)
    found = [row for row in rows(as_csv(statement)) if row["section"] == "part"]
    assert [row["amount"] for row in found] == ["-1.50"] * len(wild)
    assert [row["name"] for row in found] == [
        *(f"'{name}" for name in wild[:5]),
        *wild[5:],
    ]
    focus = rows(as_focus(statement, "=c"))
    assert {row["ProviderName"] for row in focus} == {"'=c"}
    assert [row["SubAccountName"] for row in focus] == [row["name"] for row in found]
    assert as_pdf(statement).startswith(b"%PDF-")


def test_a_month_without_figures(november_service: Any, site: Any, november: Any) -> None:
    for account in ("root", "cv"):
        empty = read_statement(november_service.engine, site, site.by_name[account], type(november)(2025, 1))
        assert rows(as_csv(empty))[0]["status"] == "none"
        assert as_pdf(empty).startswith(b"%PDF-")
        assert date(2025, 1, 1).isoformat() in as_focus(empty, "c")
