"""HyperPod's own partitions, which have no limits: closed where the site has its own, and closed again."""

from collections.abc import Callable

import pytest

from tests.lifecycle.node import CONTROLLER, Node
from tests.lifecycle.world import ETC, controller, site_bundle, stood_in

# slurmctld's partitions, in a file: it forgets at a start (which the stand-in of systemctl is not told of).
SCONTROL = """\
#!/bin/bash
cd "$STAND_IN" || exit 1
echo "scontrol $*" >>calls
[ -e silent ] && { echo "slurm_load_partitions: Unable to contact slurm controller" >&2; exit 1; }
case "$1 $2" in
  "show partition") while read -r name groups; do
      echo "PartitionName=$name AllowGroups=$groups AllowAccounts=ALL AllowQos=ALL"; done <partitions ;;
  "update PartitionName="*) sed -i "s/^${2#*=} .*/${2#*=} ${3#*=}/" partitions ;;
esac
"""
OPEN = "dev ALL\ngpu ALL\nnlp ALL\nby-hand ALL\n"
CLOSED = "dev root\ngpu root\nnlp ALL\nby-hand ALL\n"


@pytest.fixture
def node(make_node: Callable[[str], Node]) -> Node:
    made = controller(make_node(CONTROLLER))
    made.only_steps("47-agent-partitions")
    made.stand_in("scontrol", SCONTROL)
    stood_in(made, "partitions").write_text(OPEN)
    return made


def updates(node: Node) -> list[str]:
    return [call for call in node.calls() if call.startswith("scontrol update")]


def test_hyperpods_partitions_are_closed_and_nobody_elses(node: Node) -> None:
    assert node.run().returncode == 0
    assert stood_in(node, "partitions").read_text() == CLOSED


def test_a_second_run_changes_nothing_and_a_forgetful_slurmctld_is_told_again(node: Node) -> None:
    assert node.run().returncode == 0
    assert node.run().returncode == 0
    told = ["scontrol update PartitionName=dev AllowGroups=root"]
    told.append("scontrol update PartitionName=gpu AllowGroups=root")
    assert updates(node) == told
    stood_in(node, "partitions").write_text(OPEN)
    assert node.run("--check").returncode == 1
    assert node.run().returncode == 0
    assert stood_in(node, "partitions").read_text() == CLOSED


def test_nothing_of_the_agents_files_is_written(node: Node) -> None:
    before = node.path(f"{ETC}/slurm.conf").read_text()
    assert node.run().returncode == 0
    assert node.path(f"{ETC}/slurm.conf").read_text() == before


def test_a_slurmctld_that_is_silent_fails_the_step(node: Node) -> None:
    stood_in(node, "silent").touch()
    path = node.bundle / "steps/47-agent-partitions"
    path.write_text(path.read_text().replace("attempts: 3", "attempts: 1"))
    done = node.run()
    assert done.returncode == 1
    assert "slurmctld does not tell its partitions" in done.stdout
    assert updates(node) == []


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text + "hyperpod: {agent_partitions: open}\n",
        lambda text: text.replace("    partition: {node_groups: [gpu, gpu-2]}\n", ""),
    ],
    ids=["open", "no partition of the site's"],
)
def test_they_stay_open_where_the_site_wants_or_needs_them(node: Node, edit: Callable[[str], str]) -> None:
    again = controller(node, edit)
    assert again.settings["slurm"]["closed_partitions"] == []
    again.only_steps("47-agent-partitions")
    again.stand_in("scontrol", SCONTROL)
    assert again.run().returncode == 0
    assert updates(again) == []


def test_the_names_are_those_that_hyperpod_is_asked_for() -> None:
    """A group's partition gives way to one of the site's; both of the group's names would be wrong."""
    made = site_bundle(
        lambda text: text.replace("node_groups: [gpu, gpu-2]", "name: gpu, node_groups: [gpu]")
    )
    assert '"closed_partitions": [\n      "dev",\n      "gpu-nodes",\n      "gpu-2"\n    ]' in (
        made.file("site/settings.json").content.decode()
    )
