from __future__ import annotations

from decimal import Decimal
from pathlib import Path

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
    )
    assert (site.groups["shared"].gpus, site.groups["shared"].shards) == (4, 16)
    assert (site.groups["spot"].always_on, len(site.groups["spot"].nodes)) == (0, 16)
    assert site.groups["spot"].memory_mb == 1120665
    assert site.groups["login"].role == "shared"


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
