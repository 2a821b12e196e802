"""What the real daemons of each release print, read into its meaning (tests/recorded)."""

import pytest

from hpctools.conf.plan.shown import NodeStatus, Shown, read_shown
from tests.conf.plan.stage import ROOT

RELEASES = ("22.05.8", "24.11.5", "26.05.5")


def recorded(release: str) -> Shown:
    folder = ROOT / "tests/recorded" / release
    parts = ("config", "node", "partition")
    return read_shown(*((folder / f"scontrol-show-{part}.txt").read_text() for part in parts))


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_is_understood(release: str) -> None:
    shown = recorded(release)
    node = shown.meaning.nodes["shared-1"]
    assert shown.release == release
    assert {
        key: node.shape[key] for key in ("cpus", "sockets", "corespersocket", "threadspercore", "weight")
    } == {
        "cpus": "48",
        "sockets": "1",
        "corespersocket": "24",
        "threadspercore": "2",
        "weight": "1",
    }
    assert (node.shape["features"], node.shape["state"]) == ("shared,on-demand", "")
    assert (node.address, node.hostname) == ("127.0.0.1", "shared-1")
    assert shown.status["reserved-4"].state == "IDLE+DRAIN"
    assert (shown.status["reserved-1"].version, shown.status["reserved-1"].started[:11]) == (
        release,
        "2026-11-21T",
    )
    assert shown.meaning.partitions["nlp"]["defcpupergpu"] == "12"
    assert shown.meaning.partitions["nlp"]["nodes"] == "reserved-[1-4],shared-[1-2]"
    assert shown.meaning.settings["slurmctldhost"].value == "ctl-1(127.0.0.1)"
    assert shown.meaning.settings["killwait"].value == "30 sec"
    assert not {"boot_time", "constraincores", "slurm_version"} & shown.meaning.settings.keys()


def test_words_of_people_are_no_settings() -> None:
    line = (
        "NodeName=n1 Gres=gpu:1 State=CLOUD+IDLE Weight=1 Port=6818 SlurmdStartTime=None "
        "Comment=see State=DOWN Weight=9 Reason=Gres=gpu:9 [root@now]\n"
    )
    shown = read_shown("", line, "")
    assert (shown.meaning.nodes["n1"].shape["gres"], shown.meaning.nodes["n1"].shape["weight"]) == (
        "gpu:1",
        "1",
    )
    assert shown.meaning.nodes["n1"].shape["state"] == "CLOUD"
    assert shown.status["n1"] == NodeStatus("CLOUD+IDLE", "", "None")


def test_nothing_at_all() -> None:
    shown = read_shown("", "No nodes in the system\n", "No partitions in the system\n")
    assert (dict(shown.meaning.nodes), dict(shown.meaning.partitions), dict(shown.meaning.settings)) == (
        {},
        {},
        {},
    )
