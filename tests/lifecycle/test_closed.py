"""A node is closed before there is anybody on it, and stays so until who gets in is settled."""

from collections.abc import Callable

import pytest

from tests.lifecycle.node import CONTROLLER, LOGIN, SCRIPTS, WORKER, Node

from provision.stepfiles import chosen, read_steps  # isort: skip

OURS = "# hpctools: begin\n"
# As pam/install.py: notes its role, and writes where its rules go; `check` compares.
INSTALL = """\
import os, sys
verb, role = sys.argv[1], sys.argv[sys.argv.index("--role") + 1]
path = os.environ["HPCTOOLS_ROOT"] + "/etc/pam.d/sshd"
text = f"# hpctools: begin\\n{role}\\n"
if verb == "check":
    sys.exit(0 if open(path).read() == text else 1)
open(path, "w").write(text)
"""
ROLES = {CONTROLLER: "closed", LOGIN: "login", WORKER: "compute"}
FAILS = '#!/bin/bash\n# roles: controller login compute\n# attempts: 1\n[ "$1" = check ] && exit 1\nexit 1\n'


def installed(node: Node) -> Node:
    """A node with sshd, and a stand-in for pam/; its steps are 03, 80, and what a test adds."""
    node.only_steps("03-closed", "80-pam")
    node.write("/etc/pam.d/sshd", "account required pam_unix.so\n")
    (node.bundle / "pam").mkdir()
    (node.bundle / "pam/install.py").write_text(INSTALL)
    return node


def stack(node: Node) -> str:
    return node.path("/etc/pam.d/sshd").read_text()


@pytest.mark.parametrize("address", ROLES)
def test_a_node_is_closed_when_a_step_fails_before_who_gets_in_is_settled(
    make_node: Callable[[str], Node], address: str
) -> None:
    node = installed(make_node(address))
    failing = node.bundle / "steps/25-users"
    failing.write_text(FAILS)
    assert node.run().returncode == 1
    assert stack(node) == f"{OURS}closed\n"
    failing.unlink()
    assert node.run().returncode == 0
    assert stack(node) == f"{OURS}{ROLES[address]}\n", (
        "a site that states nothing of access leaves none closed"
    )


@pytest.mark.parametrize("address", ROLES)
def test_a_node_that_has_its_rules_is_not_closed_again(
    make_node: Callable[[str], Node], address: str
) -> None:
    node = installed(make_node(address))
    assert node.run().returncode == 0
    (node.bundle / "steps/25-users").write_text(FAILS)
    assert node.run().returncode == 1
    assert stack(node) == f"{OURS}{ROLES[address]}\n"
    assert [event["step"] for event in node.events("step-done")].count("03-closed") == 1


def test_a_worker_that_cannot_be_closed_gets_nobody(node: Node) -> None:
    (installed(node).bundle / "pam/install.py").write_text("raise SystemExit(1)\n")
    assert node.run().returncode == 1
    assert node.events("run-failed")[0]["step"] == "03-closed"


@pytest.mark.parametrize("role", ["controller", "login", "compute"])
def test_nothing_runs_on_a_node_before_it_is_closed(role: str) -> None:
    assert chosen(read_steps(SCRIPTS / "steps"), role)[0].name == "03-closed"
