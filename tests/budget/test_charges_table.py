"""What the statement of one account is made of, against the statement out of every charge of the site."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import polars as pl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpctools.budget.attribution_table import amount
from hpctools.budget.charges_table import MonthSums
from hpctools.budget.month import Month
from hpctools.budget.statement import Knowledge, statement
from tests.budget.plain_charges import Charge, stated

MONTH = Month(2026, 11)
PLACES = 3
COLUMNS = {
    "day": pl.Date,
    "kind": pl.String,
    "account": pl.String,
    "user": pl.String,
    "currency": pl.String,
    "units": pl.Int128,
}
ROWS = st.lists(
    st.tuples(
        st.dates(date(2026, 11, 1), date(2026, 11, 3)),
        st.sampled_from(["attributed", "idle", "shared", "untagged"]),
        st.sampled_from(["", "nlp", "nlp-a", "nlp-b", "cv", "stray"]),
        st.sampled_from(["", "nlp1", "nlp2"]),
        st.sampled_from(["USD", "EUR"]),
        st.sampled_from([-5, 5, 1_000, 123_456_789_012_345_678_901]),
    ),
    max_size=30,
)


# What a credit takes back to the last cent is still something that was charged.
TAKEN_BACK = [(date(2026, 11, 1), "attributed", "nlp-a", "nlp1", "EUR", units) for units in (5, -5)]


@settings(deadline=None)
@given(rows=ROWS)
@example(rows=TAKEN_BACK)
def test_it_is_the_same_for_every_account(make_site: Callable[..., Any], rows: list[Any]) -> None:
    site, known = make_site(), Knowledge(1_800_000_000, date(2026, 11, 3), True, {})
    sums = MonthSums(site, pl.DataFrame(rows, schema=COLUMNS, orient="row"), PLACES)
    every = [Charge(day, kind, name, who, code, amount(n, PLACES)) for day, kind, name, who, code, n in rows]
    for account in site.by_name.values():
        mine = statement(site, account, MONTH, sums.of(site, account), known)
        assert mine == stated(site, account, MONTH, every, known), account.name
