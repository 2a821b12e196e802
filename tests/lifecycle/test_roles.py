"""Who a node is: HyperPod's resource_config.json, read exactly.

The field's scripts look for addresses and names by substring, and take an empty list of login nodes for one
that every node is in; each of that is a test here.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.lifecycle.node import CONTROLLER, GROUPS, LOGIN, RESOURCE_CONFIG, WORKER, Node

from provision.failures import Failure  # isort: skip
from provision.roles import node_among  # isort: skip


def config(**groups: list[str] | None) -> dict[str, Any]:
    listed = [
        {
            "Name": name.replace("_", "-"),
            "Instances": None
            if addresses is None
            else [
                {"InstanceName": f"{name}-{place}", "CustomerIpAddress": address}
                for place, address in enumerate(addresses, 1)
            ],
        }
        for name, addresses in groups.items()
    ]
    return {"SlurmConfig": {"PrimaryControllerIp": CONTROLLER}, "InstanceGroups": listed}


@pytest.mark.parametrize(
    ("address", "role", "group"),
    [(CONTROLLER, "controller", "controller"), (WORKER, "compute", "gpu"), (LOGIN, "login", "login")],
)
def test_addresses_that_begin_alike_are_different_nodes(address: str, role: str, group: str) -> None:
    """10.1.1.1 is not 10.1.1.17, and that is not 10.1.1.171."""
    found = node_among(RESOURCE_CONFIG, frozenset({address}), GROUPS)
    assert (found.role, found.group, found.address) == (role, group, address)


@pytest.mark.parametrize("login", [None, []])
def test_an_empty_list_of_login_nodes_makes_nobody_a_login_node(login: list[str] | None) -> None:
    """`grep -c ""` matches every line: such a script never installed PAM anywhere."""
    found = node_among(config(gpu=[WORKER], login=login), frozenset({WORKER}), GROUPS)
    assert found.role == "compute"


def test_groups_whose_names_begin_alike_are_different_groups() -> None:
    roles = {"gpu": "compute", "gpu-2": "login"}
    both = config(gpu=["10.1.1.5"], gpu_2=["10.1.1.6"])
    assert node_among(both, frozenset({"10.1.1.5"}), roles).role == "compute"
    assert node_among(both, frozenset({"10.1.1.6"}), roles).role == "login"


def test_a_group_that_the_site_does_not_know_is_a_failure_and_no_worker() -> None:
    with pytest.raises(Failure, match=r"no group 'gpu-3' \(it has: controller, gpu, gpu-2, login\)"):
        node_among(config(gpu_3=[WORKER]), frozenset({WORKER}), GROUPS)


def test_an_old_copy_that_lacks_this_node_says_so() -> None:
    with pytest.raises(Failure, match=r"no instance has an address of this node \(10\.1\.1\.99\)"):
        node_among(RESOURCE_CONFIG, frozenset({"10.1.1.99"}), GROUPS)


def test_an_old_copy_that_lacks_other_nodes_does() -> None:
    found = node_among(config(gpu=[WORKER], controller=None), frozenset({WORKER}), GROUPS)
    assert (found.role, found.controllers) == ("compute", (CONTROLLER,))


def test_the_backup_controllers_are_controllers_whatever_their_group() -> None:
    both = config(heads=[CONTROLLER, "10.1.1.2"])
    both["SlurmConfig"]["SecondaryControllerIps"] = ["10.1.1.2"]
    found = node_among(both, frozenset({"10.1.1.2"}), GROUPS)
    assert (found.role, found.controllers) == ("controller", (CONTROLLER, "10.1.1.2"))


@pytest.mark.parametrize(
    "broken", [[], {}, {"InstanceGroups": None}, {"InstanceGroups": ["gpu"]}, "gpu", None]
)
def test_what_is_no_such_file_is_a_failure(broken: object) -> None:
    with pytest.raises(Failure):
        node_among(broken, frozenset({WORKER}), GROUPS)


@pytest.mark.parametrize("text", ["", "{", "null", '{"InstanceGroups": [{"Instances": 3', "\0\0"])
def test_a_corrupt_file_ends_the_run_with_3_and_runs_only_what_protects(node: Node, text: str) -> None:
    """Fail closed: a step that guards the node runs, no other does, and HyperPod hears of the failure."""
    node.steps(
        s10_work='# roles: compute\ntouch "$HPCTOOLS_ROOT/work-$1"; [ "$1" = do ]',
        s80_guard='# roles: compute unknown\n[ "$1" = do ] && echo "$HPCTOOLS_ROLE" >"$HPCTOOLS_ROOT/guard"\n'
        '[ -e "$HPCTOOLS_ROOT/guard" ]',
    )
    node.write("/opt/ml/config/resource_config.json", text)
    done = node.run()
    assert done.returncode == 3
    assert "resource_config.json" in node.events("role-unknown")[0]["message"]
    assert node.path("/guard").read_text() == "unknown\n"
    assert not node.path("/work-check").exists()


def test_the_environment_of_a_step_says_who_it_is(make_node: Callable[[str], Node]) -> None:
    node = make_node(LOGIN)
    node.steps(
        s10_say='# roles: login\n[ "$1" = do ] && env >"$HPCTOOLS_ROOT/env"\n[ -e "$HPCTOOLS_ROOT/env" ]'
    )
    assert node.run().returncode == 0
    said = dict(line.split("=", 1) for line in node.path("/env").read_text().splitlines() if "=" in line)
    wanted = {
        "HPCTOOLS_ROLE": "login",
        "HPCTOOLS_GROUP": "login",
        "HPCTOOLS_INSTANCE": "login-1",
        "HPCTOOLS_INSTANCE_ID": "i-3",
        "HPCTOOLS_ADDRESS": LOGIN,
        "HPCTOOLS_CONTROLLERS": CONTROLLER,
        "HPCTOOLS_CLUSTER": "uni-gpu",
        "HPCTOOLS_BUNDLE": str(node.bundle),
    }
    assert {key: said.get(key) for key in wanted} == wanted


def test_settings_of_another_version_are_refused(node: Node) -> None:
    node.settings["version"] = 2
    done = node.run()
    assert done.returncode == 3
    assert "of version 2, and these scripts read 1" in done.stdout


def test_the_legacy_file_is_not_needed(node: Node) -> None:
    """AWS's base scripts read provisioning_parameters.json also where the request says everything (#1028)."""
    node.steps(s10_nothing="# roles: compute\nexit 0")
    assert json.loads(json.dumps(RESOURCE_CONFIG))
    assert not (node.bundle / "provisioning_parameters.json").exists()
    assert node.run().returncode == 0
