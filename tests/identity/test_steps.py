"""26-sssd on a node in a folder; tests/system/test_identity.py has it with the real sssd."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lifecycle.node import Node  # first: it puts the lifecycle scripts on the path

from provision import directory  # isort: skip

ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:reader"
NSSWITCH = """\
passwd:         files systemd
group: compat
shadow: files
initgroups: files [SUCCESS=continue] db
hosts: files dns
"""
PASSWD = """\
root:x:0:0::/root:/bin/bash
ops:x:1001:1001::/:/bin/sh
d:x:3:3::/:/usr/sbin/nologin
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="files of sssd belong to root")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "node")


def step(node: Node, verb: str, name: str = "26-sssd") -> subprocess.CompletedProcess[str]:
    """Run a verb of a step as the runner does."""
    env = {
        **node.environment,
        "PYTHONPATH": str(node.bundle),
        "HPCTOOLS_BUNDLE": str(node.bundle),
        "HPCTOOLS_SETTINGS": str(node.bundle / "site/settings.json"),
        "HPCTOOLS_RESOURCE_CONFIG": str(node.path("/opt/ml/config/resource_config.json")),
        "HPCTOOLS_ROLE": "login",
    }
    argv = [str(node.bundle / "steps" / name), verb]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture
def sssd(node: Node) -> Node:
    """A node with sssd's packages, PAM as pam-auth-update leaves it, and aws with a secret."""
    node.settings["identity"] = {
        "sssd_conf": "[nss]\nfilter_users = root, slurm\nfilter_groups = sudo\n",
        "domain": "uni.example",
        "bind": {"aws_secret": ARN},
        "login_groups": ["hpc"],
        "homes": {"make": "at_login", "skeleton": "/etc/skel"},
    }
    node.write("/etc/nsswitch.conf", NSSWITCH)
    node.write(
        "/etc/passwd",
        "root:x:0:0::/root:/bin/bash\nops:x:1001:1001::/:/bin/sh\nd:x:3:3::/:/usr/sbin/nologin\n",
    )
    node.write("/etc/group", "root:x:0:\nops:x:1001:\n")
    for name in ("common-auth", "common-account", "common-session"):
        node.write(f"/etc/pam.d/{name}", "# pam_sss.so pam_mkhomedir.so\n")
    for name in ("sssd", "getent"):
        node.stand_in(name, "exit 0")
    packages = "\\n".join(f"{name} installed" for name in directory.PACKAGES)
    node.stand_in("dpkg-query", f"printf '{packages}\\n'")
    read = node.path(directory.READ)
    node.stand_in("systemctl", f"[ $1 != restart ] || {{ mkdir -p {read.parent}; touch {read}; }}")
    stacks = f"{node.root}/etc/pam.d/common"
    pam = f"for name in auth account session; do echo optional pam_sss.so >>{stacks}-$name; done"
    node.stand_in("pam-auth-update", f"{pam}; echo optional pam_mkhomedir.so >>{stacks}-session")
    secret = json.dumps({"password": "ge heim"})
    node.stand_in("aws", f"case \"$*\" in *{ARN}*eu-west-1*) echo '{secret}' ;; *) exit 9 ;; esac")
    return node


@needs_root
def test_everything_is_in_its_place_and_a_second_check_says_so(sssd: Node) -> None:
    assert step(sssd, "check").returncode == 1
    done = step(sssd, "do")
    assert (done.returncode, done.stderr) == (0, "")
    assert "ge heim" not in done.stdout
    assert sssd.path(directory.BIND).read_text() == "[domain/uni.example]\nldap_default_authtok = ge heim\n"
    assert sssd.path(directory.LOCAL).read_text() == (
        "[nss]\nfilter_users = ops, root, slurm\nfilter_groups = ops, root, sudo\n"
    )
    for path in (directory.CONF, directory.BIND, directory.LOCAL):
        assert sssd.path(path).stat().st_mode & 0o7777 == 0o600
    assert sssd.path("/etc/nsswitch.conf").read_text() == (
        "passwd: files sss systemd\ngroup: compat sss\nshadow: files sss\n"
        "initgroups: files [SUCCESS=continue] sss db\nhosts: files dns\n"
    )
    assert step(sssd, "check").returncode == 0


@needs_root
@pytest.mark.parametrize(
    "path", [directory.CONF, directory.BIND, directory.LOCAL, directory.PROFILE, "/etc/nsswitch.conf"]
)
def test_whatever_was_changed_since_is_seen_and_put_right(sssd: Node, path: str) -> None:
    step(sssd, "do")
    before = sssd.path(path).read_text()
    sssd.path(path).write_text(
        before.replace("sss", "x").replace("ops, ", "").replace("[", "#") + "# edited\n"
    )
    changed = sssd.path(path).read_text() != before
    assert changed
    assert step(sssd, "check").returncode == 1
    assert step(sssd, "do").returncode == 0
    assert step(sssd, "check").returncode == 0


@needs_root
def test_an_administrator_who_is_new_on_the_node_is_hidden_from_the_directory(sssd: Node) -> None:
    step(sssd, "do")
    passwd = sssd.path("/etc/passwd")
    passwd.write_text(passwd.read_text() + "new:x:1002:1002::/:/bin/bash\n")
    assert step(sssd, "check").returncode == 1
    step(sssd, "do")
    assert "filter_users = new, ops, root, slurm\n" in sssd.path(directory.LOCAL).read_text()


@needs_root
def test_packages_that_are_missing_are_installed_with_fresh_lists_where_old_ones_fail(sssd: Node) -> None:
    step(sssd, "do")
    works = (sssd.bin / "dpkg-query").read_text()
    sssd.stand_in("dpkg-query", "echo sssd-ldap installed; echo libnss-sss config-files; exit 1")
    assert step(sssd, "check").returncode == 1
    sssd.stand_in("apt-get", "echo no route to the archive >&2; exit 100")
    done = step(sssd, "do")
    assert (done.returncode, "no route to the archive" in done.stderr) == (1, True)
    said = sssd.root / "apt"
    fresh = f"case $* in *update) touch {said}.fresh ;; *) [ -e {said}.fresh ] ;; esac"
    sssd.stand_in("apt-get", f'echo "$*" >>{said}; {fresh}')
    assert step(sssd, "do").returncode == 0
    assert [line.split()[-1] for line in said.read_text().splitlines()] == [
        "libpam-sss",
        "update",
        "libpam-sss",
    ]
    sssd.stand_in("dpkg-query", works.partition("\n")[2])
    assert step(sssd, "check").returncode == 0


@needs_root
def test_a_run_that_was_killed_before_sssd_read_it_is_made_up_for(sssd: Node) -> None:
    """sssd runs, with what it was told before."""
    step(sssd, "do")
    sssd.settings["identity"]["sssd_conf"] += "# another\n"
    works = (sssd.bin / "systemctl").read_text()
    sssd.stand_in("systemctl", "[ $1 != restart ]")
    assert step(sssd, "do").returncode == 1
    sssd.stand_in("systemctl", works)
    assert step(sssd, "check").returncode == 1
    assert step(sssd, "do").returncode == 0
    assert step(sssd, "check").returncode == 0


@needs_root
def test_without_bind_an_old_password_goes(sssd: Node) -> None:
    step(sssd, "do")
    del sssd.settings["identity"]["bind"]
    assert step(sssd, "check").returncode == 1
    step(sssd, "do")
    assert not sssd.path(directory.BIND).exists()


@needs_root
def test_a_stack_that_somebody_has_edited_is_left_alone_and_told(sssd: Node) -> None:
    sssd.stand_in("pam-auth-update", "exit 0")
    done = step(sssd, "do")
    assert done.returncode == 78
    assert (
        "PAM has no pam_sss.so in common-auth, pam_sss.so in common-account, pam_mkhomedir.so" in done.stderr
    )


@needs_root
@pytest.mark.parametrize(
    ("aws", "code", "words"),
    [
        ("echo 'ThrottlingException: Rate exceeded' >&2; exit 254", 1, "Rate exceeded"),
        ("echo geheim", 1, "no JSON object"),
        ("""echo '{"username": "geheim"}'""", 78, "is empty"),
        ("""echo '{"password": "a\\nb"}'""", 78, "cannot hold"),
    ],
)
def test_a_secret_that_cannot_be_had_is_told_without_it(sssd: Node, aws: str, code: int, words: str) -> None:
    sssd.stand_in("aws", aws)
    done = step(sssd, "do")
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "geheim" not in done.stdout + done.stderr
    assert not sssd.path(directory.BIND).exists()


@needs_root
def test_a_directory_that_does_not_answer_is_a_warning(sssd: Node) -> None:
    sssd.stand_in("getent", "exit 2")
    done = step(sssd, "do")
    assert (done.returncode, "warning: the directory does not answer" in done.stdout) == (0, True)


def test_a_site_without_a_directory_asks_for_nothing(node: Node) -> None:
    for name in ("26-sssd", "27-homes"):
        assert step(node, "check", name).returncode == 0


@given(
    st.lists(st.sampled_from(["files", "compat", "systemd", "sss", "[NOTFOUND=return]", "nis"]), max_size=4),
    st.sampled_from(["passwd", "group", "shadow", "hosts"]),
)
def test_the_switch_asks_sssd_once_and_after_the_node_s_own_files(sources: list[str], database: str) -> None:
    line = f"{database}:  {' '.join(sources)}\n"
    changed = directory._with_sss(line)
    assert directory._with_sss(changed) == changed
    words = changed.split()[1:]
    if database == "hosts" or "sss" in sources:
        assert changed == line
        return
    assert words.count("sss") == 1
    assert [word for word in words if word != "sss"] == (sources or ["files"]) or words[0] == "files"
    assert {"files", "compat"} & set(words[: words.index("sss")])
