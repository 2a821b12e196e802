"""Nodes that come after the controller was configured: the service that follows HyperPod's agent."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.lifecycle.node import CONTROLLER, Node
from tests.lifecycle.world import AGENT, ETC, changes, controller, resource_config, stood_in

PLACE = "/opt/hpctools/lifecycle"


@pytest.fixture
def node(make_node: Callable[[str], Node]) -> Node:
    made = controller(make_node(CONTROLLER))
    assert made.run().returncode == 0
    return made


@contextmanager
def service(node: Node) -> Iterator[subprocess.Popen[str]]:
    """The service as its unit file says it, in this world."""
    command = node.path("/etc/systemd/system/hpctools-follow.service").read_text().split("ExecStart=")[1]
    words = command.splitlines()[0].split()
    assert words == ["/usr/bin/python3", f"{PLACE}/follow_nodes.py"]
    process = subprocess.Popen(
        [words[0], str(node.path(words[1]))],
        env={**node.environment, "HPCTOOLS_FOLLOW_SECONDS": "0.1"},
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.05)


def include(node: Node) -> str:
    return node.path(f"{ETC}/hpctools.conf").read_text()


def test_a_node_that_comes_joins_its_partitions_and_slurmctld_is_told(node: Node) -> None:
    calls = len(changes(node))
    with service(node):
        config = resource_config(node)
        config["InstanceGroups"][2]["Instances"] = [
            {"InstanceName": "gpu-2-1", "InstanceId": "i-9", "CustomerIpAddress": "10.1.1.9"}
        ]
        node.write("/opt/ml/config/resource_config.json", json.dumps(config))
        more = "NodeName=ip-10-1-1-9 NodeAddr=10.1.1.9 CPUs=48 State=UNKNOWN\nPartitionName"
        node.write(f"{ETC}/slurm.conf", AGENT.replace("PartitionName", more, 1))
        until(lambda: "Nodes=ip-10-1-1-17,ip-10-1-1-9 " in include(node))
        until(lambda: "scontrol reconfigure" in changes(node)[calls:])
        # Noted before it is done.
        until(lambda: "ip-10-1-1-9" in stood_in(node, "running").read_text())
    told = changes(node)[calls:]
    # Releases to 23.02 end at a reconfigure with other nodes.
    assert told.count("systemctl restart slurmctld") == 1


def change(node: Node) -> bool:
    """Write the agent's file anew, not more often than it is looked at."""
    path = node.path("/opt/ml/config/resource_config.json")
    if time.time() - path.stat().st_mtime > 1:
        path.write_text(json.dumps(resource_config(node)))
    return True


def test_what_slurmctld_refuses_is_tried_no_more_than_a_few_times(node: Node) -> None:
    path = node.path(f"{PLACE}/follow_nodes.py")
    path.write_text(path.read_text().replace("PAUSE = 3, 60.0", "PAUSE = 2, 0.1"))
    for step in ("35-slurm-include", "45-slurm-daemons"):
        each = node.path(f"{PLACE}/steps/{step}")
        each.write_text(each.read_text().replace("attempts: 2", "attempts: 1"))
    stood_in(node, "refused").write_text(".\n")
    with service(node):
        node.write(f"{ETC}/slurm.conf", AGENT)
        until(lambda: len(node.events("run-failed")) == 2, 60)
        stood_in(node, "refused").unlink()
        until(lambda: change(node) and "Include" in node.path(f"{ETC}/slurm.conf").read_text())
        assert len(node.events("run-failed")) == 2, "nothing was tried before something changed"
    assert stood_in(node, "active-slurmctld").exists()


def test_it_runs_the_scripts_of_the_last_bundle(node: Node) -> None:
    assert node.run("--check").returncode == 0
    (node.bundle / "prelude.sh").write_text("# newer\n")
    assert node.run("--check").returncode == 1
    calls = len(changes(node))
    assert node.run().returncode == 0
    assert node.path(f"{PLACE}/prelude.sh").read_text() == "# newer\n"
    assert changes(node)[calls:] == ["systemctl enable hpctools-follow", "systemctl restart hpctools-follow"]


def test_a_copy_that_was_interrupted_is_made_again(node: Node) -> None:
    node.path(f"{PLACE}/run_steps.py").unlink()
    assert node.run("--check").returncode == 1
    assert node.run().returncode == 0
    assert node.path(f"{PLACE}/run_steps.py").exists()
