"""Own nodes: days that are over stay as they were billed, whatever the site file says later."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select

from api.db.access_models import AuditEntry
from api.db.bill_store import Pulled, append_pulled
from api.db.engine import reading, writing
from api.db.own_nodes_store import history
from api.services import division, site_work
from api.services.reconcile import Outcome
from api.services.site_file import SiteFile
from api.services.site_work import SiteWork
from api.services.sources import names, of_site
from api.services.statements import read_statement
from api.services.verification import Verified, verify
from api.settings import Settings
from hpctools.budget import rate_card
from hpctools.budget.attribution_table import divide_day
from hpctools.budget.bill_table import frame_of
from hpctools.budget.month import Month, day_start
from hpctools.budget.own_nodes import OwnHistory
from hpctools.budget.rate_card import Price
from hpctools.slurm.accounting import JobRecord

METRIC = "NetAmortizedCost"
OCTOBER, NOVEMBER = Month(2026, 10), Month(2026, 11)
TENTH = date(2026, 11, 10)
NOON = day_start(TENTH) + 12 * 3600
SITE = """
cluster: {name: uni, slurm: "24.11", controllers: [ctl]}
node_groups:
  - {name: own, count: 3, hardware: {sockets: 1, cores_per_socket: 8, memory_mib: 1000}}
  - {name: old, count: 1, hardware: {sockets: 1, cores_per_socket: 8, memory_mib: 1000}}
  - {name: login, role: login, count: 1}
departments:
  - name: bio
    supervisor: ada
    budget: {amount: "1000.00", currency: EUR}
    partition: {node_groups: [own, old], max_time: 1-00:00:00}
  - {name: geo, supervisor: bob, partition: {node_groups: [own], max_time: 1-00:00:00}}
tiers:
  normal: {priority: 100, default: true}
billing:
  idle: partition-owner
  pools: {login: equally}
  rate_cards:
    - {node_groups: [own], currency: EUR, per_node_hour: "1.00", since: 2026-01-01}
    - {node_groups: [old], currency: EUR, per_node_hour: "0.25", since: 2026-01-01}
    - {node_groups: [login], currency: EUR, per_node_hour: "0.50", since: 2026-01-01}
"""
OLD = SITE.index("  - {name: old"), SITE.index("  - {name: login, role")
CARDS = SITE.index("  rate_cards:")
WITHOUT_OLD = (SITE[: OLD[0]] + SITE[OLD[1] :]).replace("[own, old]", "[own]")
WITHOUT_OLD = "\n".join(line for line in WITHOUT_OLD.splitlines() if "node_groups: [old]" not in line)
NO_CARDS = SITE[:CARDS] + "  sources: []\n"
CHANGES = {
    "fewer nodes": SITE.replace("count: 3", "count: 2"),
    "more nodes": SITE.replace("count: 3", "count: 5"),
    "some switched off": SITE.replace("count: 3", "count: {min: 1, max: 3}"),
    "dearer": SITE.replace('"1.00"', '"2.00"'),
    "another currency": SITE.replace('EUR, per_node_hour: "1.00"', 'USD, per_node_hour: "1.00"'),
    "larger nodes": SITE.replace("cores_per_socket: 8", "cores_per_socket: 16"),
    "a card of the past": SITE.replace(
        "2026-01-01}\n    - {node_groups: [old]", "2026-11-05}\n    - {node_groups: [old]"
    ),
    "a group gone": WITHOUT_OLD,
    "a group's nodes in another": WITHOUT_OLD.replace("count: 3", 'count: 4, nodes: "own-[1-3],old-1"'),
    "all cards gone": NO_CARDS,
}


def job(number: int, day: date, nodes: str, account: str) -> JobRecord:
    """Half of each node from eight until six."""
    begin = day_start(day) + 8 * 3600
    count = len(nodes.split(","))
    return JobRecord(
        *("uni", number, number, f"{account}-1", account, account, "normal"),
        submitted=begin,
        start=begin,
        end=begin + 10 * 3600,
        suspended_seconds=0,
        state="COMPLETED",
        cpus=4 * count,
        memory_mb=100,
        gpus=0,
        shards=0,
        nodes=nodes,
        reservation="",
    )


class Rig:
    """A site whose file a test may change, reconciled as the service does it."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.path = engine, folder / "site.yaml"
        self.say(SITE)
        self.file = SiteFile(self.path, METRIC)
        self.settings = Settings(site=self.path, database_url="sqlite://")

    def say(self, text: str) -> None:
        self.path.write_text(text)

    def reconcile(self, month: Month, now: int, own_nodes_from: date | None = None) -> Outcome:
        more = {} if own_nodes_from is None else {"own_nodes_from": own_nodes_from}
        return SiteWork(self.settings, self.file, self.engine, **more)(month, now)

    def told(self, month: Month, through: date | None = None) -> dict[str, Any]:
        """What each account and the whole site is told of each day, and of what."""
        site = self.file.current()
        found = {}
        for name, account in site.by_name.items():
            statement = read_statement(self.engine, site, account, month)
            days = [(each.day, each.amount) for each in statement.days if not through or each.day <= through]
            found[name] = (days, statement.uncharged if through is None else None)
        return found

    def verified(self) -> Verified:
        site = self.file.current()
        sources = names(of_site(self.file.declared(), METRIC))
        with reading(self.engine) as session:
            return verify(session, site, sources, None)


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> list[date]:
    """The days that are divided from now on."""
    days: list[date] = []

    def counting(*given: Any) -> Any:
        days.append(given[3])
        return divide_day(*given)

    monkeypatch.setattr(division, "divide_day", counting)
    return days


@pytest.fixture
def rig(engine: Engine, tmp_path: Path, jobs: Any, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Jobs on the third of both months, on nodes that may go, and on the tenth of November."""
    places = (("own-3", "bio"), ("old-1", "bio"), ("own-1,own-2", "geo"))
    days = (date(2026, 10, 3), date(2026, 11, 3))
    jobs.records = [
        job(10 * count + number, day, *place)
        for count, day in enumerate(days)
        for number, place in enumerate(places, 1)
    ]
    monkeypatch.setattr(site_work, "Sacct", lambda *_: jobs)
    return Rig(engine, tmp_path)


@pytest.mark.parametrize("change", CHANGES)
def test_days_that_are_over_stay_as_they_were_billed(rig: Rig, change: str) -> None:
    before = {}
    ninth = date(2026, 11, 9)
    for month in (OCTOBER, NOVEMBER):
        rig.reconcile(month, NOON)
        before[month] = rig.told(month, ninth)
    rig.say(CHANGES[change])
    for month in (OCTOBER, NOVEMBER):
        rig.reconcile(month, NOON + 3600)
        assert rig.told(month, ninth) == before[month]
    found = rig.verified()
    assert (found.findings, found.waiting) == ([], 0)


def test_jobs_of_then_keep_a_node_that_is_in_a_group_without_a_price_now(rig: Rig, jobs: Any) -> None:
    """One of geo's on a node whose idle time bio bears."""
    jobs.records = [*jobs.records, job(99, date(2026, 10, 4), "old-1", "geo")]
    misc = """\
  - {name: misc, nodes: "misc-1,old-1", count: 2,
     hardware: {sockets: 1, cores_per_socket: 8, memory_mib: 1000}}
"""
    rig.reconcile(OCTOBER, NOON)
    before = rig.told(OCTOBER)
    rig.say(WITHOUT_OLD.replace("  - {name: login, role", f"{misc}  - {{name: login, role"))
    rig.reconcile(OCTOBER, NOON + 3600)
    assert rig.told(OCTOBER) == before
    assert rig.verified().findings == []


def amounts(rig: Rig, month: Month, account: str = "root") -> dict[int, Decimal]:
    """By day of the month."""
    return {day.day: amount for day, amount in rig.told(month)[account][0]}


def test_a_change_counts_from_the_day_on_which_it_is_seen(rig: Rig) -> None:
    """Three nodes at 1.00, one at 0.25 and one at 0.50 are 90 a day; with five at 1.00 138."""
    rig.reconcile(NOVEMBER, NOON)
    assert amounts(rig, NOVEMBER) == dict.fromkeys(range(1, 10), Decimal(90)) | {10: Decimal(45)}
    rig.say(CHANGES["more nodes"])
    rig.reconcile(NOVEMBER, NOON)
    assert amounts(rig, NOVEMBER) == dict.fromkeys(range(1, 10), Decimal(90)) | {10: Decimal(69)}
    rig.reconcile(NOVEMBER, NOON + 86400)
    rig.say(SITE)
    done = rig.reconcile(NOVEMBER, NOON + 2 * 86400)
    after = {10: Decimal(138), 11: Decimal(138), 12: Decimal(45)}
    assert amounts(rig, NOVEMBER) == dict.fromkeys(range(1, 10), Decimal(90)) | after
    assert done.kept_days == 2


def test_days_that_nobody_has_billed_are_billed_by_what_the_file_says_then(rig: Rig) -> None:
    """The service was away from the tenth to the thirteenth, when there are five nodes."""
    rig.reconcile(NOVEMBER, NOON)
    rig.say(CHANGES["more nodes"])
    rig.reconcile(NOVEMBER, NOON + 3 * 86400)
    told = amounts(rig, NOVEMBER)
    assert [told[day] for day in (9, 10, 11, 12, 13)] == [90, 90, 138, 138, 69]


def test_a_price_that_is_announced_begins_on_its_day(rig: Rig) -> None:
    card = "{node_groups: [own], currency: EUR, per_node_hour: "
    old = SITE.replace(
        "2026-01-01}\n    - {node_groups: [old]", "2026-01-01, until: 2026-11-12}\n    - {node_groups: [old]"
    )
    rig.reconcile(NOVEMBER, NOON)
    rig.say(old + f'    - {card}"2.00", since: 2026-11-12}}\n')
    assert rig.reconcile(NOVEMBER, NOON + 3 * 86400).kept_days == 0
    told = amounts(rig, NOVEMBER)
    assert [told[day] for day in (9, 11, 12, 13)] == [90, 90, 162, 81]


def test_only_days_from_the_change_on_are_divided_again(rig: Rig, divided: list[date]) -> None:
    for change in ("fewer nodes", "a group gone", "all cards gone"):
        rig.say(SITE)
        rig.reconcile(NOVEMBER, NOON)
        divided.clear()
        rig.say(CHANGES[change])
        rig.reconcile(NOVEMBER, NOON + 60)
        rig.reconcile(OCTOBER, NOON + 60)
        assert {day for day in divided if day.month == 11} == {TENTH}, change
        divided.clear()
        rig.reconcile(OCTOBER, NOON + 120)
        assert divided == [], change


def test_a_month_of_own_nodes_that_are_gone_becomes_final(rig: Rig) -> None:
    rig.reconcile(NOVEMBER, NOON)
    rig.say(CHANGES["all cards gone"])
    rig.reconcile(NOVEMBER, day_start(NOVEMBER.end) + 3600)
    site = rig.file.current()
    told = read_statement(rig.engine, site, site.by_name["root"], NOVEMBER)
    assert (told.status, told.spent) == ("final", Decimal(10 * 90))


def test_a_mistake_is_billed_anew_from_the_day_that_is_named(rig: Rig) -> None:
    """The price was 2.00 from the beginning, and two of the nodes came on the fifth."""
    rig.reconcile(OCTOBER, NOON)
    rig.reconcile(NOVEMBER, NOON)
    rig.say(CHANGES["dearer"])
    assert rig.reconcile(OCTOBER, NOON).kept_days == 31
    assert rig.reconcile(OCTOBER, NOON + 60, OCTOBER.start).kept_days == 0
    assert set(amounts(rig, OCTOBER).values()) == {Decimal(162)}
    rig.say(CHANGES["dearer"].replace("count: 3", "count: 5"))
    rig.reconcile(NOVEMBER, NOON + 120, date(2026, 11, 5))
    told = amounts(rig, NOVEMBER)
    assert [told[day] for day in (1, 4, 5, 9)] == [90, 90, 258, 258]
    assert set(amounts(rig, OCTOBER).values()) == {Decimal(162)}
    site = rig.file.current()
    assert read_statement(rig.engine, site, site.by_name["root"], OCTOBER).corrected
    found = rig.verified()
    assert (found.findings, found.waiting) == ([], 0)
    with reading(rig.engine) as session:
        told_of = session.scalars(select(AuditEntry).order_by(AuditEntry.id)).all()
    assert [(each.action, each.subject) for each in told_of] == [
        ("own-nodes.bill-anew", "2026-10"),
        ("own-nodes.bill-anew", "2026-11"),
    ]


def test_a_department_may_go_together_with_its_nodes(rig: Rig) -> None:
    """What it bore of idle nodes is nobody's then, as when it goes alone; the bill stays."""
    rig.reconcile(NOVEMBER, NOON)
    bio = SITE.index("  - name: bio"), SITE.index("  - {name: geo")
    rig.say(WITHOUT_OLD.replace(SITE[bio[0] : bio[1]].replace("[own, old]", "[own]"), ""))
    assert "bio" not in rig.file.current().by_name
    rig.reconcile(NOVEMBER, NOON + 60)
    assert amounts(rig, NOVEMBER)[9] == 90
    found = rig.verified()
    assert (found.findings, found.waiting) == ([], 0)


def test_sites_without_own_nodes_note_nothing(rig: Rig) -> None:
    rig.say(NO_CARDS)
    rig.reconcile(NOVEMBER, NOON)
    rig.say(NO_CARDS.replace("count: 3", "count: 2"))
    rig.reconcile(NOVEMBER, NOON)
    with reading(rig.engine) as session:
        assert history(session) == OwnHistory()


def test_a_price_that_was_a_mistake_altogether_is_taken_back(rig: Rig) -> None:
    """In the only month in which there was one, so that no day has any price then."""
    rig.say(SITE.replace("2026-01-01", "2026-11-01"))
    rig.reconcile(NOVEMBER, NOON)
    assert amounts(rig, NOVEMBER)[9] == 90
    rig.say(NO_CARDS)
    rig.reconcile(NOVEMBER, NOON + 3600)
    assert amounts(rig, NOVEMBER)[9] == 90
    rig.reconcile(NOVEMBER, NOON + 7200, date(2026, 11, 1))
    assert not any(amounts(rig, NOVEMBER).values())
    assert rig.verified().findings == []


def test_a_price_that_is_taken_out_on_its_first_day_costs_nothing(rig: Rig) -> None:
    rig.say(SITE.replace("2026-01-01", "2026-11-10"))
    rig.reconcile(NOVEMBER, NOON)
    assert amounts(rig, NOVEMBER)[10] > 0
    rig.say(NO_CARDS)
    rig.reconcile(NOVEMBER, NOON + 3600)
    assert not any(amounts(rig, NOVEMBER).values())


def test_what_an_earlier_release_had_left_out_is_not_billed_by_the_update(rig: Rig) -> None:
    """Its rows of own nodes are in the store still, its cards are out of the file, and nothing is noted."""
    price = Price("own", 3, 0, "EUR", Decimal(1), Decimal(0), date(2026, 1, 1))
    left = frame_of(rate_card.rows([price], NOVEMBER, METRIC, NOON))
    with writing(rig.engine) as session:
        append_pulled(session, Pulled(rate_card.SOURCE, METRIC, NOVEMBER, left), NOON - 86400)
    rig.say(NO_CARDS)
    rig.reconcile(NOVEMBER, NOON)
    assert not any(amounts(rig, NOVEMBER).values())
