"""Nodes out of scontrol's JSON and text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.errors import ReleaseError
from hpctools.slurm.parse import config
from hpctools.slurm.parse_nodes import gres, nodes_from_json, nodes_from_text
from hpctools.slurm.types import Node

RECORDED = Path(__file__).parents[1] / "recorded"
LINE = (
    "NodeName={} Arch=x86_64 CPUAlloc=0 CPUEfctv=4 CPUTot=4 ActiveFeatures=a,b Gres=gpu:a100:2(S:0-1) "
    "NodeAddr=10.0.0.1 NodeHostName=h Port=6818 Version=22.05.8 OS=Linux 6.1 #1 SMP  RealMemory=1000 "
    "State=IDLE+CLOUD+DRAIN ThreadsPerCore=1 Partitions=all,small  BootTime=None CfgTRES=cpu=4,mem=1000M "
)


RELEASES = ("22.05.8", "24.11.5", "26.05.5")


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_says_the_same_of_the_same_nodes(release: str) -> None:
    found = {node.name: node for node in nodes_from_text(recorded(release, "scontrol-show-node.txt"))}
    assert [*found] == [f"reserved-{n}" for n in range(1, 5)] + ["shared-1", "shared-2"]
    common = {"partitions": ("nlp", "cv", "dl"), "address": "127.0.0.1", "version": release}
    reserved = {"cpus": 96, "memory_mb": 1120665, "gres": {"gpu:a100": 8}, "features": ("reserved",)}
    drained = ("IDLE", ("DRAIN",), 'bad fan, "ticket" 12')
    assert found["reserved-1"] == Node("reserved-1", "MIXED", **reserved, **common)
    assert found["reserved-3"] == Node("reserved-3", "IDLE", **reserved, **common)  # it has a comment
    assert found["reserved-4"] == Node("reserved-4", *drained, **reserved, **common)
    assert found["shared-1"].gres == {"gpu:a10g": 4, "shard:a10g": 16}
    assert found["shared-1"].features == ("shared", "on-demand")


@pytest.mark.parametrize("release", RELEASES[1:])
def test_json_and_text_mean_the_same(release: str) -> None:
    text, parsed = (recorded(release, f"scontrol-show-node.{kind}") for kind in ("txt", "json"))
    assert nodes_from_json(parsed) == nodes_from_text(text)


@pytest.mark.parametrize("release", RELEASES)
def test_the_configuration_of_each_release(release: str) -> None:
    found = config(recorded(release, "scontrol-show-config.txt"))
    assert found["SLURM_VERSION"] == release
    assert found["ClusterName"] == "uni-gpu"
    assert found["AccountingStorageEnforce"] == "associations,limits,qos,safe"
    assert found["MessageTimeout"] == "30 sec"
    assert not any("Configuration" in key or "Slurmctld(" in key for key in found)


def recorded(release: str, name: str) -> str:
    return (RECORDED / release / name).read_text()


@given(st.text(st.characters(min_codepoint=32, exclude_characters="\x7f\x85\u2028\u2029"), max_size=60))
def test_any_reason_on_one_line_comes_through_the_text(reason: str) -> None:
    if (
        not reason.strip()
        or not reason.isprintable()
        or " Comment=" in f" {reason}"
        or " Extra=" in f" {reason}"
    ):
        return
    text = LINE.format("n1") + f"Reason={reason} [root@2026-11-21T14:56:36]\n"
    assert nodes_from_text(text)[0].reason == reason


def test_a_line_with_all_that_text_can_hold() -> None:
    text = LINE.format("n1") + " Reason=of disk [x] [root@2026-11-21T14:56:36] Comment=mine Reason=no\n"
    assert nodes_from_text(text + "\n" + "what a reason with a line break leaves\n") == [
        Node(
            "n1", "IDLE", ("CLOUD", "DRAIN"), "of disk [x] [root@2026-11-21T14:56:36] Reason=no",
            4, 1000, {"gpu:a100": 2}, ("a", "b"), ("all", "small"), "10.0.0.1", "22.05.8",
        )
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "no JSON", "{}", '{"nodes": [{}]}', '{"nodes": [{"state": []}]}'])
def test_what_is_no_json_of_nodes_names_the_release(text: str) -> None:
    with pytest.raises(ReleaseError, match=r"22\.05 and 26\.05"):
        nodes_from_json(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("(null)", {}),
        ("gpu", {"gpu": 1}),
        ("gpu:8", {"gpu": 8}),
        ("gpu:a100:8(S:0,1),shard:16(S:0,1)", {"gpu:a100": 8, "shard": 16}),
        ("gpu:a100_1g.5gb:7,gpu:a100_1g.5gb:7", {"gpu:a100_1g.5gb": 14}),
        ("bandwidth:lustre:no_consume:4G", {"bandwidth:lustre": 4 * 1024**3}),
    ],
)
def test_generic_resources(text: str, wanted: dict[str, int]) -> None:
    assert gres(text) == wanted


@pytest.mark.parametrize("line", ["NodeName=odd CPUTot=8 RealMemory=1", "NodeName=odd State=IDLE CPUTot=x"])
def test_a_node_that_is_not_told_as_a_release_does_is_named(line: str) -> None:
    with pytest.raises(ReleaseError, match="what scontrol printed cannot be read: 'NodeName=odd"):
        nodes_from_text(f"{line}\n")
