"""Months are read before anybody asks for a page of them."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from api.db.ledger import charges
from api.services import charged
from api.services.books import month_period
from api.services.overview import read_overview
from api.services.site_file import SiteFile
from api.services.warming import Warming
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
    warming = Warming(engine, site_file, lambda: now)
    assert not warming.tick()
    reconcile_november()
    assert [warming.tick(), warming.tick()] == [True, False]
    assert read == [november]
    site = site_file.current()
    read_overview(engine, site, site.by_name["nlp"], month_period(november), now)
    assert read == [november]
    reconcile_november(now + 86400)
    assert warming.tick()
    assert read == [november, november]


def test_what_could_not_be_read_is_tried_again(
    engine: Engine, site_path: Any, reconcile_november: Any, now: int, tmp_path: Any
) -> None:
    reconcile_november()
    moved = tmp_path / "site.yaml"
    warming = Warming(engine, SiteFile(moved, "NetAmortizedCost"), lambda: now)
    with pytest.raises(Exception, match="cannot read the site file"):
        warming.tick()
    moved.write_text(site_path.read_text())
    assert warming.tick()
