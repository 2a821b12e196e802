from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from hpctools.budget.allowance import Calendar, Enforcement, Notify, Spec
from hpctools.budget.from_site import budget_site
from hpctools.budget.tree import Account, Allowance, NodeGroup
from hpctools.conf.facts import Facts
from hpctools.conf.topology import compute_groups
from hpctools.site import load, loads

UNIVERSITY = Path(__file__).parents[2] / "slurm-conf/examples/university/site.yaml"


def test_the_reference_site_as_the_budget_sees_it() -> None:
    site = budget_site(load(UNIVERSITY))
    assert (site.cluster, site.idle, site.tag_key, site.currency) == (
        "uni-gpu",
        "proportional",
        "hpctools:node-group",
        "USD",
    )
    assert site.by_name["nlp"] == Account(
        name="nlp",
        level="department",
        parent="root",
        supervisor="nlp-head",
        budget=Allowance(Decimal(25000), "USD", (50, 75, 90, 100)),
        title="Natural Language Processing",
        spec=Spec(
            amount=Decimal(25000),
            currency="USD",
            carry="surplus",
            carry_at_most=Decimal(5000),
            alert_at=(50, 75, 90, 100),
            alert_on_forecast=(100,),
            enforcement=Enforcement("warn", 100, 3 * 86400),
            notify=Notify(mail=("nlp-head@uni.example",)),
        ),
        fair_share=40,
        lower_tiers=("low", "preemptible"),
    )
    assert site.lineage("nlp-lab-a") == ("nlp-lab-a", "nlp", "root")
    assert site.subtree("nlp") == {"nlp", "nlp-lab-a", "nlp-lab-b"}
    assert site.by_name["root"].budget == Allowance(Decimal(55000), "USD")
    assert site.groups["reserved"] == NodeGroup(
        name="reserved",
        role="compute",
        nodes=("reserved-1", "reserved-2", "reserved-3", "reserved-4"),
        always_on=4,
        cpus=96,
        memory_mb=1120665,  # 95 % of 1152 GiB
        gpus=8,
        instance_type="ml.p4d.24xlarge",
        capacity="reserved",
    )
    assert site.owners["shared"] == ("nlp", "cv", "dl")
    assert (site.groups["shared"].gpus, site.groups["shared"].shards) == (4, 16)
    assert (site.groups["spot"].always_on, len(site.groups["spot"].nodes)) == (0, 16)
    assert site.groups["spot"].memory_mb == 1120665
    assert site.groups["login"].role == "shared"


def test_who_bears_what_is_as_the_site_says() -> None:
    site = budget_site(load(UNIVERSITY.parents[1] / "own-network/site.yaml"))
    assert (site.idle, site.burst, site.pools) == ("partition-owner", True, {"login": "by-use"})
    assert site.owners == {"p5": ("ai",), "cpu": ("ai",), "login": ()}


def test_a_node_is_for_the_budget_what_it_is_for_slurm() -> None:
    """A job that takes all the memory that Slurm has to give holds the whole node."""
    site = load(UNIVERSITY)
    budget = budget_site(site)
    for group in compute_groups(site, Facts()):
        seen = budget.groups[group.name]
        assert (seen.cpus, seen.memory_mb) == (group.hardware.cpus, group.hardware.memory_mib)
        assert seen.nodes[: len(group.nodes)] == group.nodes


def test_a_mig_slice_is_what_slurm_counts_as_a_gpu() -> None:
    text = UNIVERSITY.read_text().replace("ml.g5.12xlarge", "ml.p4d.24xlarge").replace("a10g", "a100")
    text = text.replace("share: {shards_per_gpu: 4}", "share: {mig: {1g.5gb: 5, 2g.10gb: 1}}")
    shared = budget_site(loads(text)).groups["shared"]
    assert (shared.gpus, shared.shards) == (24, 0)


OWN_NODES = """
cluster: {name: uni, slurm: "24.11", controllers: [ctl]}
node_groups:
  - {name: own, count: 2, hardware: {sockets: 1, cores_per_socket: 8, memory_mib: 1000}}
departments:
  - name: bio
    supervisor: ada
    partition: {node_groups: [own], max_time: 1-00:00:00}
    labs: [{name: bio-a, supervisor: eve, members: [tom]BUDGET}]
tiers: {normal: {priority: 100, default: true}}
billing: BILLING
"""
CARD = '{rate_cards: [{node_groups: [own], currency: EUR, per_node_hour: "1.25", since: 2026-01-01}]}'


@pytest.mark.parametrize(
    ("billing", "budget", "currency"),
    [
        ("{}", "", "USD"),
        (CARD, "", "EUR"),
        ("{}", ', budget: {amount: "10.00", currency: CHF}', "CHF"),
        (CARD, ', budget: {amount: "10.00", currency: EUR}', "EUR"),
    ],
)
def test_the_currency_of_a_site_is_that_of_its_budgets_or_prices(
    billing: str, budget: str, currency: str
) -> None:
    """Else nobody could set a first budget there, and figures would be told as those of another currency."""
    text = OWN_NODES.replace("BUDGET", budget).replace("BILLING", billing)
    assert budget_site(loads(text, "site.yaml")).currency == currency


def test_a_budget_for_another_period_is_no_monthly_one() -> None:
    centre = budget_site(load(UNIVERSITY.parents[1] / "centre/site.yaml"))
    physics, tokamak = centre.by_name["physics"], centre.by_name["tokamak"]
    assert (physics.budget, tokamak.budget) == (None, None)
    assert physics.spec is not None
    assert tokamak.spec is not None
    assert physics.spec.calendar == Calendar("yearly", ((10, 1),))
    assert physics.spec.enforcement == Enforcement("lower-tier", 110, 0, "normal")
    assert tokamak.spec.calendar == Calendar("once", (), date(2026, 10, 1), date(2027, 4, 1))
    # The default tier is no lower one; that of physics is, since the file says so.
    assert (physics.lower_tiers, tokamak.lower_tiers) == (("normal",), ())
