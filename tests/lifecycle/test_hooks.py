"""Programs of the site's own, log rotation, and the login node's registration."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lifecycle.node import LOGIN, WORKER, Node

from provision.log_rotation import text  # isort: skip

TARGETS = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/login/0123456789abcdef"


def hook(node: Node, command: str, **more: object) -> dict[str, object]:
    node.stand_in("install", command)
    node.stand_in("installed", '[ -e "$HPCTOOLS_ROOT/installed" ]')
    usual = {"roles": ["compute"], "limit": 60, "required": True}
    return {"command": ["install", "with blanks"], "check": ["installed"], **usual, **more}


def test_a_hook_runs_once_with_its_arguments(node: Node) -> None:
    node.only_steps("75-containers")
    work = 'echo "$#:$1" >>"$HPCTOOLS_ROOT/ran"; touch "$HPCTOOLS_ROOT/installed"'
    node.settings["containers"] = hook(node, work)
    assert node.run().returncode == 0
    assert node.run().returncode == 0
    assert node.path("/ran").read_text() == "1:with blanks\n"


@pytest.mark.parametrize(("required", "code"), [(True, 1), (False, 0)])
def test_a_hook_that_fails_ends_the_run_where_it_is_required(node: Node, required: bool, code: int) -> None:
    node.only_steps("70-observability")
    node.settings["observability"] = hook(node, "echo no network; exit 7", required=required)
    assert node.run().returncode == code
    said = [event["message"] for event in node.events("output")]
    assert said[:2] == ["no network", "error: install ended with exit code 7"]


def test_a_hook_of_another_role_is_done(make_node: Callable[[str], Node]) -> None:
    node = make_node(LOGIN)
    node.only_steps("75-containers")
    node.settings["containers"] = hook(node, "exit 1")
    assert node.run().returncode == 0


def test_a_hook_that_hangs_is_ended(node: Node) -> None:
    node.only_steps("70-observability")
    node.settings["observability"] = hook(node, "sleep 60", limit=1, required=False)
    path = node.bundle / "steps/70-observability"
    path.write_text(path.read_text().replace("attempts: 2", "attempts: 1"))
    assert node.run(limit=20).returncode == 0
    assert "install did not end within 1 s" in str(node.events("output"))


def test_logs_are_rotated_as_logrotate_itself_understands_it(node: Node, tmp_path: Path) -> None:
    node.only_steps("15-log-rotation")
    node.settings["log_rotation"] = {"keep": 7, "max_size_mib": 50}
    node.settings["slurm"] = {"user": "slurm"}
    assert node.run().returncode == 0
    rules = node.path("/etc/logrotate.d/hpctools")
    assert rules.read_text() == text(7, 50, "slurm")
    assert rules.read_text().count("{") == rules.read_text().count("}") == 2
    for line in ("rotate 7", "maxsize 50M", 'pkill -x -USR2 "$daemon"'):
        assert line in rules.read_text()
    script = rules.read_text().split("postrotate\n")[1].split("endscript")[0]
    assert subprocess.run(["sh", "-n", "-c", script], check=False).returncode == 0


def registering(node: Node) -> Node:
    node.only_steps("85-login-balance")
    node.settings["login_balance"] = {"target_group": TARGETS, "port": 22}
    node.write("/stand-in/calls", "")
    node.stand_in(
        "aws",
        'echo "aws $*" >>"$STAND_IN/calls"\n'
        '[ "$(grep -c ^aws "$STAND_IN/calls")" -gt "${THROTTLED:-0}" ] || { echo Throttling >&2; exit 254; }',
    )
    return node


def test_a_login_node_registers_itself_once(make_node: Callable[[str], Node]) -> None:
    """Once for an instance: a node that somebody has drained does not come back by itself."""
    node = registering(make_node(LOGIN))
    assert node.run().returncode == 0
    assert node.run().returncode == 0
    assert node.calls() == [
        f"aws elbv2 register-targets --target-group-arn {TARGETS} --targets Id={LOGIN},Port=22 "
        "--region eu-west-1"
    ]


def test_a_replaced_login_node_of_the_same_name_registers_itself(make_node: Callable[[str], Node]) -> None:
    node = registering(make_node(LOGIN))
    assert node.run().returncode == 0
    path = node.path("/opt/ml/config/resource_config.json")
    config = json.loads(path.read_text())
    config["InstanceGroups"][3]["Instances"][0]["InstanceId"] = "i-fresh"
    path.write_text(json.dumps(config))
    assert node.run().returncode == 0
    assert len(node.calls()) == 2


def test_throttled_it_asks_again(make_node: Callable[[str], Node]) -> None:
    node = registering(make_node(LOGIN))
    assert node.run(THROTTLED="2").returncode == 0
    assert len(node.calls()) == 3


def test_workers_do_not_register(make_node: Callable[[str], Node]) -> None:
    node = registering(make_node(WORKER))
    assert node.run().returncode == 0
    assert node.calls() == []
