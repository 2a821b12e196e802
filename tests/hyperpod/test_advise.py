"""The advice: every situation, its answer, and why."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.hyperpod import rules_slurmconfig
from hpctools.hyperpod.advise import Situation, advise, of_files, of_site
from hpctools.site import hyperpod_rules, load
from tests.hyperpod.samples import continuous, files, legacy, several_controllers, slurmconfig

EXAMPLES = Path(__file__).parents[2] / "slurm-conf/examples"
SHARED = {"gpu": ("nlp", "cv")}


@pytest.mark.parametrize(
    ("situation", "style", "strategy"),
    [
        (Situation(), "slurmconfig", "Managed"),
        (Situation(strategy="Overwrite"), "slurmconfig", "Overwrite"),
        (Situation(shared=SHARED), "slurmconfig", "Merge"),
        (Situation(own_partitions=("nlp",)), "slurmconfig", "Merge"),
        (Situation(shared=SHARED, strategy="Managed"), "slurmconfig", "Merge"),
        (Situation(continuous=True), "slurmconfig", None),
        (Situation(continuous=True, shared=SHARED), "slurmconfig", None),
        (Situation(controllers=2), "legacy", None),
        (Situation(controllers=3, shared=SHARED), "legacy", None),
        (Situation(style="legacy"), "legacy", None),
        (Situation(style="legacy", continuous=True), "slurmconfig", None),
    ],
)
def test_what_fits(situation: Situation, style: str, strategy: str | None) -> None:
    advice = advise(situation)
    assert (advice.style, advice.strategy) == (style, strategy)


@pytest.mark.parametrize(
    ("situation", "conflict"),
    [
        (Situation(controllers=2, style="slurmconfig"), "SlurmConfig with 2 controllers"),
        (Situation(controllers=2, continuous=True), "continuous provisioning with several controllers"),
        (Situation(style="legacy", continuous=True), "continuous provisioning with the legacy style"),
        (Situation(continuous=True, strategy="Merge"), "Merge with continuous provisioning"),
        (Situation(shared=SHARED, strategy="Managed"), "Managed with partitions beside HyperPod's own"),
        (
            Situation(own_partitions=("a",), strategy="Overwrite"),
            "Overwrite with partitions beside HyperPod's own",
        ),
        (Situation(outside_database=True), "a database outside the cluster"),
    ],
)
def test_what_cannot_work_is_a_conflict(situation: Situation, conflict: str) -> None:
    assert [each[: len(conflict)] for each in advise(situation).conflicts] == [conflict]


SITUATIONS = st.builds(
    Situation,
    controllers=st.integers(1, 3),
    continuous=st.booleans(),
    shared=st.sampled_from([{}, SHARED]),
    own_partitions=st.sampled_from([(), ("nlp", "cv")]),
    outside_database=st.booleans(),
    style=st.sampled_from([None, "slurmconfig", "legacy"]),
    strategy=st.sampled_from([None, "Managed", "Merge", "Overwrite"]),
)


@given(SITUATIONS)
def test_the_three_laws_hold_everywhere(situation: Situation) -> None:
    advice = advise(situation)
    assert advice.reasons
    assert situation.controllers == 1 or advice.style == "legacy"
    assert not (situation.continuous or advice.style == "legacy") or advice.strategy is None
    if situation.shared and advice.strategy is not None:
        assert advice.strategy == "Merge"


@given(SITUATIONS)
def test_who_takes_the_advice_has_no_conflict_left_but_what_no_style_has(situation: Situation) -> None:
    advice = advise(situation)
    taken = replace(situation, style=advice.style, strategy=advice.strategy)
    left = advise(taken).conflicts
    impossible = situation.controllers > 1 and situation.continuous
    alone = situation.outside_database and not situation.continuous and situation.controllers == 1
    assert bool(left) == bool(impossible or alone)


def test_every_shared_node_group_is_a_reason() -> None:
    reasons = advise(of_site(load(EXAMPLES / "university/site.yaml"))).reasons
    assert [reason.split(" are in ")[0] for reason in reasons if "several partitions" in reason] == [
        "the nodes of reserved",
        "the nodes of shared",
        "the nodes of spot",
    ]


def test_sites_and_files_tell_their_situation() -> None:
    own = of_site(load(EXAMPLES / "own-network/site.yaml"))
    assert (own.controllers, own.own_partitions, own.style, own.strategy) == (
        1,
        ("ai",),
        "slurmconfig",
        "Merge",
    )
    assert of_site(load(EXAMPLES / "two-controllers/site.yaml")).controllers == 2
    assert of_files(files(slurmconfig())) == Situation(style="slurmconfig", strategy="Managed")
    assert of_files(files(continuous())) == Situation(style="slurmconfig", continuous=True)
    assert of_files(files(*legacy())) == Situation(style="legacy")
    twin = of_files(files(*several_controllers()))
    assert (twin.controllers, twin.outside_database, advise(twin).conflicts) == (2, True, ())


def test_there_is_one_partition_of_all_nodes() -> None:
    assert rules_slurmconfig.DEV_PARTITION == hyperpod_rules.DEV_PARTITION
