"""Months are read before anybody asks for a page of them."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest
from sqlalchemy import Engine

from api.db.ledger import charges
from api.services import charged, warming
from api.services.books import month_period
from api.services.overview import read_overview
from api.services.site_file import SiteFile
from api.services.warming import Warming
from hpctools.budget.allowance import Period
from hpctools.budget.month import Month


def test_a_month_is_read_once_after_each_run_and_the_first_page_reads_nothing_more(
    engine: Engine,
    site_path: Any,
    november: Month,
    reconcile_november: Any,
    now: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Month] = []

    def counted(*given: Any) -> Any:
        read.append(given[1])
        return charges(*given)

    monkeypatch.setattr(charged, "charges", counted)
    site_file = SiteFile(site_path, "NetAmortizedCost")
    ahead = Warming(engine, site_file, lambda: now)
    assert not ahead.tick()
    reconcile_november()
    assert [ahead.tick(), ahead.tick()] == [True, False]
    assert read == [november]
    site = site_file.current()
    read_overview(engine, site, site.by_name["nlp"], month_period(november), now)
    assert read == [november]
    reconcile_november(now + 86400)
    assert ahead.tick()
    assert read == [november, november]


def test_a_served_application_reads_this_month_and_the_one_before_ahead(
    november_service: Any, november: Month, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Period] = []
    both = Event()

    def noted(*given: Any) -> None:
        read.append(given[3])
        if len(read) == 2:
            both.set()

    monkeypatch.setattr(warming, "read_overview", noted)
    with november_service.anonymous():
        assert both.wait(60)
    assert read == [month_period(november), month_period(november.previous)]


def test_what_could_not_be_read_is_tried_again(
    engine: Engine, site_path: Any, reconcile_november: Any, now: int, tmp_path: Any
) -> None:
    reconcile_november()
    moved = tmp_path / "site.yaml"
    ahead = Warming(engine, SiteFile(moved, "NetAmortizedCost"), lambda: now)
    with pytest.raises(Exception, match="cannot read the site file"):
        ahead.tick()
    moved.write_text(site_path.read_text())
    assert ahead.tick()
