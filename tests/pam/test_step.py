"""The lifecycle step that calls the installer, in a folder that stands for the node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.pam.stacks import DEBIAN

ROOT = Path(__file__).parents[2]


class Node:
    """A node's files below a folder, with a bundle as HyperPod brings it."""

    def __init__(self, folder: Path) -> None:
        self.root, self.bundle, self.settings = folder / "root", folder / "bundle", folder / "settings.json"
        shutil.copytree("/etc/pam.d", self.root / "etc/pam.d")
        for name in ("sudo", "sudo-i"):
            (self.root / "etc/pam.d" / name).write_text(DEBIAN[name])
        module = self.root / "lib/security/pam_slurm_adopt.so"
        module.parent.mkdir(parents=True)
        module.touch()
        self.bundle.mkdir()
        shutil.copytree(ROOT / "pam", self.bundle / "pam", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "lifecycle-scripts/prelude.sh", self.bundle)
        self.settings.write_text(json.dumps({"version": 1, "access": {"administrators": {"users": ["ada"]}}}))

    def step(
        self, verb: str, role: str, python: str = "/usr/bin/python3", **more: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HPCTOOLS_ROLE": role,
            "HPCTOOLS_BUNDLE": str(self.bundle),
            "HPCTOOLS_SETTINGS": str(self.settings),
            "HPCTOOLS_ROOT": str(self.root),
            "HPCTOOLS_PYTHON": python,
            **more,
        }
        argv = [str(ROOT / "lifecycle-scripts/steps/80-pam"), verb]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=30, check=False)

    def break_su(self) -> None:
        """A package's new version of the file."""
        shutil.copy("/etc/pam.d/su", self.root / "etc/pam.d/su")

    def stack(self) -> str:
        return (self.root / "etc/pam.d/sshd").read_text()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node that nothing was done to."""
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("role", "rule"),
    [
        ("compute", "pam_slurm_adopt.so"),
        ("login", "session-limit"),
        ("controller", "pam_deny.so"),
        ("unknown", "pam_deny.so"),
    ],
)
def test_check_do_check(node: Node, role: str, rule: str) -> None:
    assert node.step("check", role).returncode == 1
    done = node.step("do", role)
    assert done.returncode == 0, done.stderr
    assert rule in node.stack().partition("# hpctools: end")[0]
    assert "user = ada" in node.stack()
    assert node.step("check", role).returncode == 0
    for name in ("su", "su-l", "sudo", "sudo-i"):
        assert ("# hpctools: begin" in (node.root / "etc/pam.d" / name).read_text()) is (role == "compute")
    before = node.stack()
    assert (node.step("do", role).returncode, node.stack()) == (0, before)


def test_a_node_that_no_longer_knows_its_role_keeps_its_stack(node: Node) -> None:
    """A damaged resource_config.json locks nobody out of a login node that was set up."""
    node.step("do", "login")
    assert node.step("check", "unknown").returncode == 0
    assert node.step("check", "compute").returncode == 1
    assert node.step("do", "compute").returncode == 0  # a replaced node with another role


def test_a_controller_gets_the_administrators_of_the_site_as_it_is_now(node: Node) -> None:
    """Those of a node without a role stay; on a controller whoever is none any more must be out."""
    node.step("do", "unknown")
    access = {"administrators": {"users": ["cleo"]}}
    node.settings.write_text(json.dumps({"version": 1, "access": access}))
    assert node.step("check", "unknown").returncode == 0
    assert node.step("check", "controller").returncode == 1
    assert node.step("do", "controller").returncode == 0
    assert ("user = cleo" in node.stack(), "user = ada" in node.stack()) == (True, False)


@pytest.mark.parametrize("role", ["compute", "controller"])
def test_who_runs_the_steps_by_sudo_need_be_no_administrator(node: Node, role: str) -> None:
    """As ssm-user is root by a line of /etc/sudoers.d: the node was left without its rules."""
    done = node.step("do", role, SUDO_USER="daemon")
    assert (done.returncode, "who runs this by sudo" in done.stdout + done.stderr) == (0, False)
    assert node.step("check", role).returncode == 0


@pytest.mark.parametrize("text", ["{", None])
def test_a_fresh_node_whose_settings_cannot_be_read_is_closed_to_users(node: Node, text: str | None) -> None:
    node.settings.unlink() if text is None else node.settings.write_text(text)
    assert node.step("check", "unknown").returncode == 1
    assert node.step("do", "unknown").returncode == 0
    assert "Only administrators may log in" in node.stack()
    for role in ("compute", "controller"):
        failed = node.step("do", role)
        assert (failed.returncode, "settings.json" in failed.stderr) == (1, True)


def test_each_service_is_checked(node: Node) -> None:
    node.step("do", "compute")
    node.break_su()
    assert node.step("check", "compute").returncode == 1
    assert node.step("do", "compute").returncode == 0
    assert node.step("check", "compute").returncode == 0


def test_a_node_without_sudo(node: Node) -> None:
    for name in ("sudo", "sudo-i"):
        (node.root / "etc/pam.d" / name).unlink()
    assert node.step("do", "compute").returncode == 0
    assert node.step("check", "compute").returncode == 0
    assert not (node.root / "etc/pam.d/sudo").exists()


def test_what_a_failure_leaves_is_said(node: Node) -> None:
    """With sshd's settings alone wrong the stacks are in place; with an error they are as they were."""
    driver = (
        "import sys\n"
        f"sys.path.insert(0, {str(node.bundle)!r})\n"
        "from pam import install, transaction\n"
        "wrong = (['sshd does not ask PAM: set UsePAM yes in sshd_config'], [])\n"
        "transaction.check = lambda order: wrong\n"
        "sys.exit(install.main(sys.argv[2:]))\n"
    )
    python = node.root / "python"
    python.write_text(f"#!/usr/bin/python3\n{driver}")
    python.chmod(0o755)
    done = node.step("do", "compute", python=str(python))
    assert done.returncode == 1
    assert "problem: sshd does not ask PAM" in done.stderr
    assert "stacks are in place, but they do not count yet" in done.stderr
    assert "as it was" not in done.stderr
    assert "pam_slurm_adopt.so" in node.stack()
    (node.root / "lib/security/pam_slurm_adopt.so").unlink()
    done = node.step("do", "compute")
    assert (done.returncode, "error: pam_slurm_adopt.so is nowhere" in done.stderr) == (1, True)
    assert "is as it was in PAM" in done.stderr


def test_nonsense(node: Node) -> None:
    assert node.step("undo", "compute").returncode == 78
