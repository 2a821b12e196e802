from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from api.pages.kept_pages import kept_page
from api.services.budgets import Change, set_budget, with_budgets
from hpctools.budget.allowance import Spec
from hpctools.budget.month import day_of


def test_a_page_that_was_begun_before_a_budget_changed_is_shown_to_nobody_after(
    sqlite_service: Any, now: int
) -> None:
    """Site read, budget changed by somebody else, page made of what was read."""
    context = sqlite_service.app.state.context

    def read() -> Any:
        return with_budgets(context.engine, context.site_file.current(), day_of(now))

    def shown(site: Any) -> bytes:
        def made() -> str:
            return str(site.by_name["nlp-lab-a"].budget)

        return kept_page(context, site, "page", made)

    before = read()
    spec, change = Spec(Decimal(1234), "USD"), Change("nlp-head", now, "more")
    first = day_of(now).replace(day=1)
    set_budget(context.engine, before, before.by_name["nlp-lab-a"], spec, first, change)
    assert b"1234" not in shown(before)
    assert b"1234" in shown(read())


def test_a_page_is_made_once_until_the_site_file_is_another(sqlite_service: Any) -> None:
    context, made = sqlite_service.app.state.context, []
    site = context.site_file.current()
    for each in (site, site, replace(site, owners=dict(site.owners))):
        kept_page(context, each, "page", lambda: str(made.append(1)))
    assert len(made) == 2
