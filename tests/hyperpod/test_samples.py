"""Files of both styles are recognised as what they are, and good ones are told to be good."""

import pytest

from tests.hyperpod.samples import (
    checked,
    continuous,
    kubernetes,
    legacy,
    several_controllers,
    slurmconfig,
    told,
)


@pytest.mark.parametrize(
    ("given", "style"),
    [
        ((slurmconfig(),), "slurmconfig"),
        ((continuous(),), "slurmconfig"),
        (legacy(), "legacy"),
        (several_controllers(), "legacy"),
        ((kubernetes(),), "eks"),
        ((None, legacy()[1]), "legacy"),
    ],
    ids=["slurmconfig", "continuous", "legacy", "several-controllers", "kubernetes", "provisioning-alone"],
)
def test_a_good_cluster_has_no_errors_and_is_recognised(given: tuple[object, ...], style: str) -> None:
    report = checked(*given)
    assert report.style == style
    assert report.errors == ()


def test_good_files_have_no_warnings_either() -> None:
    assert told(checked(slurmconfig())) == []
    assert told(checked(continuous())) == []
    assert told(checked(*legacy())) == []
    assert told(checked(*several_controllers())) == []


def test_an_update_may_leave_the_network_and_the_controller_out() -> None:
    request = slurmconfig()
    del request["VpcConfig"], request["Tags"], request["InstanceGroups"][:2]
    assert told(checked(request, updates=True)) == []
    assert told(checked(request)) == [
        ("/InstanceGroups", "one-controller"),
        ("/InstanceGroups/0/InstanceStorageConfigs/1/FsxLustreConfig", "fsx-needs-vpc"),
    ]


def test_an_update_that_leaves_slurm_out_keeps_what_there_is() -> None:
    request = legacy()[0]
    del request["VpcConfig"]
    assert told(checked(request, updates=True)) == []
