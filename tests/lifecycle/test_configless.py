"""A worker's slurmd runs with the plugins of the site's configuration, or its check says that it does not."""

import json
import socket
from collections.abc import Iterator

import pytest

from tests.lifecycle.node import RESOURCE_CONFIG, WORKER, Node

AGENTS = "ClusterName=uni-gpu\nSlurmctldHost=ip-10-1-1-1\n"
OURS = f"{AGENTS}Include hpctools.conf\n"
# As the real slurmd: fetches what the controller ships when it starts, and is another process then.
SYSTEMCTL = """\
echo "systemctl $*" >>"$STAND_IN/calls"
[ "$2" != --quiet ] || shift
case "$1 $2" in
  "restart slurmd")
    rm -rf "$HPCTOOLS_ROOT"/proc/[0-9]*
    pid=$(wc -l <"$STAND_IN/calls")
    mkdir -p "$HPCTOOLS_ROOT/proc/$pid" "$HPCTOOLS_ROOT/run/slurm/conf"
    printf '%s\\0' /opt/slurm/sbin/slurmd -D >"$HPCTOOLS_ROOT/proc/$pid/cmdline"
    echo "$pid (slurmd) S $(seq -s ' ' 50)" >"$HPCTOOLS_ROOT/proc/$pid/stat"
    cp "$STAND_IN/shipped" "$HPCTOOLS_ROOT/run/slurm/conf/slurm.conf"
    touch "$STAND_IN/active" ;;
  "is-active munge") ;;
  "is-active slurmd") [ -e "$STAND_IN/active" ] ;;
esac
"""
FETCHED = "/run/slurm/conf/slurm.conf"


@pytest.fixture
def worker(node: Node) -> Iterator[Node]:
    """A worker with a controller that answers, and a site that has a part of slurm.conf of its own."""
    node.only_steps("45-slurm-daemons")
    node.stand_in("systemctl", SYSTEMCTL)
    node.write("/stand-in/calls", "")
    node.write("/stand-in/shipped", OURS)
    part = node.bundle / "site/slurm/hpctools.conf"
    part.parent.mkdir(parents=True)
    part.write_text("SelectType=select/cons_tres\n")
    module = node.bundle / "provision/configless.py"
    module.write_text(module.read_text().replace("INCLUDE_SECONDS = 60.0", "INCLUDE_SECONDS = 0.0"))
    with socket.create_server(("127.0.0.1", 0)) as controller:
        _controller_at_loopback(node, controller.getsockname()[1])
        yield node


def _controller_at_loopback(node: Node, port: int) -> None:
    config = json.loads(json.dumps(RESOURCE_CONFIG).replace('"10.1.1.1"', '"127.0.0.1"'))
    node.write("/opt/ml/config/resource_config.json", json.dumps(config))
    node.write("/proc/net/fib_trie", f"Local:\n        |-- {WORKER}\n           /32 host LOCAL\n")
    node.settings["slurm"] = {"slurmctld_port": port}


def restarts(node: Node) -> int:
    return node.calls().count("systemctl restart slurmd")


def test_a_slurmd_that_was_started_with_ours_is_left_alone(worker: Node) -> None:
    assert worker.run().returncode == 0
    assert worker.run().returncode == 0
    assert (restarts(worker), worker.run("--check").returncode) == (1, 0)


def test_a_slurmd_that_had_the_agents_alone_is_started_anew_once_ours_is_there(worker: Node) -> None:
    """A reconfigure brings the Include to the file that slurmd has fetched, and loads no plugins."""
    worker.write("/stand-in/shipped", AGENTS)
    assert worker.run().returncode == 0, "the controller's own step has failed, and says why"
    assert "slurmd runs without hpctools.conf" in worker.events("output")[-1]["message"]
    assert worker.run("--check").returncode == 0
    for path in ("/stand-in/shipped", FETCHED):
        worker.write(path, OURS)
    assert worker.run("--check").returncode == 1
    assert worker.run().returncode == 0
    assert (restarts(worker), worker.run("--check").returncode) == (2, 0)


def test_a_slurmd_of_which_nobody_knows_with_what_it_started_is_started_anew_once(worker: Node) -> None:
    """HyperPod's agent starts it when the node comes, whatever the controller ships by then."""
    worker.write("/stand-in/active", "")
    worker.write("/proc/7/cmdline", "slurmd\0--conf-server\x00127.0.0.1:6817\0")
    worker.write("/proc/7/stat", f"7 (slurmd) S {' '.join(map(str, range(50)))}\n")
    worker.write(FETCHED, OURS)
    assert worker.run("--check").returncode == 1
    assert worker.run().returncode == 0
    assert (restarts(worker), worker.run("--check").returncode) == (1, 0)


def test_a_node_that_the_agent_brings_back_with_the_agents_alone_for_a_moment_stays(worker: Node) -> None:
    assert worker.run().returncode == 0
    worker.write(FETCHED, AGENTS)
    assert worker.run("--check").returncode == 0
