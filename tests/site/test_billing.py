"""Where bills come from, and what own nodes cost."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from hpctools.budget.billing_site import prices
from hpctools.budget.rate_card import Price
from hpctools.errors import SiteError
from hpctools.site import Site, loads

SITE = """
cluster: {{name: uni, slurm: "24.11", controllers: [ctl]}}
node_groups:
  - name: own
    count: 2
    hardware: {{sockets: 1, cores_per_socket: 8, memory_mib: 1000}}
    gpus: {{type: a100, count: 4}}
  - {{name: cloud, count: 1, instance_type: ml.p4d.24xlarge, capacity: on-demand}}
  - {{name: login, role: login, count: 1}}
departments:
  - {{name: bio, supervisor: ada, partition: {{node_groups: [own, cloud], max_time: 1-00:00:00}}}}
tiers:
  normal: {{priority: 100, default: true}}
billing: {{{billing}}}
"""
CARD = 'node_groups: [own], currency: EUR, per_node_hour: "1.25", since: 2026-01-01'
CUR = "kind: cur, bucket: bills-of-uni, region: eu-central-1, export: daily"


def site(billing: str) -> Site:
    return loads(SITE.format(billing=billing), "site.yaml")


def names(billing: str) -> list[str]:
    return [source.name for source in site(billing).billing.read_from]


def test_cost_explorer_is_read_when_nothing_is_said_and_nothing_where_nodes_have_a_price() -> None:
    assert names("") == ["aws-ce"]
    assert names(f"rate_cards: [{{{CARD}}}]") == []
    assert names(f"sources: [{{kind: cost-explorer}}], rate_cards: [{{{CARD}}}]") == ["aws-ce"]
    assert names("sources: []") == []


@pytest.mark.parametrize("idle", ["unallocated", "proportional", "partition-owner", "reservation-owner"])
def test_who_bears_idle_cost(idle: str) -> None:
    assert site(f"idle: {idle}").billing.idle == idle


def test_sources_have_names_of_their_own() -> None:
    assert names(f"sources: [{{{CUR}}}]") == ["aws-cur"]
    two = f'sources: [{{{CUR}, billing_account: "1"}}, {{{CUR}, billing_account: "2"}}]'
    assert names(two) == ["aws-cur-1", "aws-cur-2"]


def test_a_rate_card_is_the_price_of_its_groups_always_on_nodes() -> None:
    billing = f'rate_cards: [{{{CARD}, per_gpu_hour: "0.000001", until: 2027-01-01}}]'
    assert prices(site(billing)) == (
        Price(
            node_group="own",
            nodes=2,
            gpus=4,
            currency="EUR",
            per_node_hour=Decimal("1.25"),
            per_gpu_hour=Decimal("0.000001"),
            since=date(2026, 1, 1),
            until=date(2027, 1, 1),
        ),
    )


@pytest.mark.parametrize(
    ("billing", "expected"),
    [
        (f"sources: [{{{CUR}}}, {{kind: cost-explorer}}]", "two would count the same money twice"),
        (f'sources: [{{{CUR}}}, {{{CUR}, billing_account: "1"}}]', "two would count the same money twice"),
        (f'sources: [{{{CUR}, billing_account: "1"}}, {{{CUR}, billing_account: "1"}}]', "money twice"),
        ("sources: [{kind: cur}]", "bucket, region, export as well"),
        ("sources: [{kind: cost-explorer, bucket: bills-of-uni}]", "Cost Explorer has no export"),
        (f"sources: [{{{CUR}, scope: cluster}}]", "an export tells the cluster"),
        (f"sources: [{{{CUR}, prefix: a/../b/}}]", "folders in a bucket"),
        ("sources: [{kind: invoice}]", "cost-explorer"),
        (f"rate_cards: [{{{CARD}}}, {{{CARD}, until: 2026-02-01}}]", "one rate card at a time for own"),
        (f"rate_cards: [{{{CARD}, until: 2026-01-01}}]", "until to be after since"),
        (
            "rate_cards: [{node_groups: [own], currency: EUR, since: 2026-01-01}]",
            "per_node_hour or per_gpu_hour",
        ),
        (f"rate_cards: [{{{CARD.replace('own', 'owm')}}}]", "did you mean 'own'"),
        (f"rate_cards: [{{{CARD.replace('2026-01-01', '2026-02-30')}}}]", "a day of the calendar"),
        (f"rate_cards: [{{{CARD.replace('1.25', '-1')}}}]", "at most six decimals"),
        (
            f"sources: [{{{CUR}}}], rate_cards: [{{{CARD.replace('own', 'cloud')}}}]",
            "in the cloud's bill, and would count twice",
        ),
        ("pools: {own: equally}", "one of: login"),
    ],
)
def test_what_would_count_twice_or_cannot_be_is_a_finding(billing: str, expected: str) -> None:
    with pytest.raises(SiteError) as caught:
        site(billing)
    assert expected in str(caught.value)


def test_one_card_after_the_other() -> None:
    later = CARD.replace("2026-01-01", "2027-01-01").replace("1.25", "2")
    billing = f"rate_cards: [{{{CARD}, until: 2027-01-01}}, {{{later}}}]"
    assert [price.per_node_hour for price in prices(site(billing))] == [Decimal("1.25"), Decimal(2)]
