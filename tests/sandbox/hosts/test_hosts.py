"""Machines of their own on this one: separate, connected, replaceable, and gone afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpctools.errors import SandboxError
from hpctools.sandbox import cgroups
from hpctools.sandbox.hosts import Fleet, Hosts, hosts, network
from hpctools.sandbox.hosts.plan import Group
from hpctools.sandbox.process import Identity, identify
from tests.system.harness import until

SMALL = Fleet(groups=(Group("login", "login", 1), Group("worker", "compute", 2)))
MAKER = """
import sys, time
from pathlib import Path
from hpctools.sandbox.hosts import hosts, Fleet
from hpctools.sandbox.hosts.plan import Group
with hosts(fleet=Fleet(groups=(Group("worker", "compute", 1),))) as made:
    rack = made.rack
    print(rack.ground.pid, made["worker-1"].pid1.pid, rack.folder, rack.branch, flush=True)
    time.sleep(60)
"""
pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def made() -> Iterator[Hosts]:
    with hosts(fleet=SMALL) as cluster:
        yield cluster


def test_each_has_its_own_name_files_and_processes(made: Hosts) -> None:
    one, two = made["worker-1"], made["worker-2"]
    one.write("/etc/only-here", "x")
    one.write("/tmp/only-here", "x")
    assert one.run(["hostname"]).stdout == "ip-10-77-0-31\n"
    assert two.run(["hostname"]).stdout == "ip-10-77-0-32\n"
    assert not two.exists("/etc/only-here")
    assert not two.exists("/tmp/only-here")
    assert not Path("/etc/only-here").exists()
    assert one.run(["cat", "/proc/1/comm"]).stdout == two.run(["cat", "/proc/1/comm"]).stdout
    assert int(one.run(["sh", "-c", "ls -d /proc/[0-9]* | wc -l"]).stdout) < 15


def test_they_reach_each_other_and_nothing_else(made: Hosts) -> None:
    talk = ["timeout", "5", "bash", "-c", 'exec 3<>"/dev/tcp/$1/22" && head -c 4 <&3', "talk"]
    assert made["login-1"].run([*talk, "worker-2"]).stdout == "SSH-"
    own = made["login-1"].run(["ip", "-brief", "-4", "address"]).stdout.split()
    assert [word for word in own if "/" in word] == ["127.0.0.1/8", "10.77.0.11/24"]
    refused = made["login-1"].run(["timeout", "1", *talk[2:], "192.0.2.1"], check=False)
    assert refused.code != 0


def test_people_log_in_through_a_real_sshd(made: Hosts) -> None:
    assert made["worker-1"].ssh("ubuntu", "whoami; hostname").stdout == "ubuntu\nip-10-77-0-31\n"


def test_munge_credentials_of_one_are_good_on_another(made: Hosts) -> None:
    credential = made["worker-1"].run(["munge", "--no-input"]).stdout
    assert "STATUS:          Success (0)" in made["worker-2"].run(["unmunge"], stdin=credential).stdout


def test_a_shared_file_system_is_mounted_by_mounts_own_command(made: Hosts) -> None:
    for name in ("login-1", "worker-1"):
        made[name].run(["sh", "-c", "mkdir -p /fsx && mount -t lustre fs-1@tcp:/abcd /fsx"])
    made["login-1"].write("/fsx/seen", "by all\n")
    assert made["worker-1"].read("/fsx/seen") == "by all\n"
    made["worker-2"].run(["touch", "/refuse-abcd"])
    refused = made["worker-2"].run(
        ["sh", "-c", "mkdir -p /fsx && mount -t lustre fs-1@tcp:/abcd /fsx"], check=False
    )
    assert (refused.code, "Connection refused" in refused.stderr) == (32, True)


def test_services_start_as_their_unit_files_say(made: Hosts) -> None:
    host = made["login-1"]
    unit = "[Service]\nEnvironmentFile=-/etc/default/answer\nExecStart=/usr/bin/sleep $WORDS\n"
    host.write("/etc/systemd/system/answer.service", unit)
    host.write("/etc/default/answer", 'WORDS="500 501"\n')
    assert host.run(["systemctl", "is-active", "answer"], check=False).stdout == "inactive\n"
    host.run(["systemctl", "enable", "--now", "answer.service"])
    assert host.run(["systemctl", "is-active", "answer"]).stdout == "active\n"
    before = host.read("/run/stand-in/answer.pid").split()[0]
    assert host.run(["cat", f"/proc/{before}/cmdline"]).stdout == "/usr/bin/sleep\x00500\x00501\x00"
    host.run(["systemctl", "start", "answer"])
    assert host.read("/run/stand-in/answer.pid").split()[0] == before
    host.write("/etc/systemd/system/answer.service.d/more.conf", "[Service]\nEnvironment=WORDS=7\n")
    host.run(["systemctl", "restart", "answer"])
    after = host.read("/run/stand-in/answer.pid").split()[0]
    assert not host.exists(f"/proc/{before}")
    host.run(["kill", "-9", after])
    until(lambda: host.run(["systemctl", "is-active", "--quiet", "answer"], check=False).code == 3)


def test_a_service_that_ends_at_once_or_does_not_exist_is_a_failure(made: Hosts) -> None:
    host = made["login-1"]
    host.write("/etc/systemd/system/broken.service", "[Service]\nExecStart=/bin/false\n")
    assert host.run(["systemctl", "start", "broken"], check=False).code == 1
    missing = host.run(["systemctl", "start", "nothing"], check=False)
    assert (missing.code, missing.stderr) == (5, "Unit nothing.service not found.\n")
    host.write("/etc/systemd/system/here.service", "[Unit]\nConditionPathExists=/nowhere\n")
    assert host.run(["systemctl", "start", "here"], check=False).code == 0
    assert host.run(["systemctl", "is-active", "here"], check=False).code == 3


def test_a_replaced_machine_is_an_empty_one_of_the_same_name(made: Hosts) -> None:
    made["worker-2"].write("/etc/before", "x")
    made["worker-1"].run(
        ["bash", "-c", "exec 3<>/dev/tcp/worker-2/22"]
    )  # whose ARP cache knows it from now on
    old = made["worker-2"].pid1
    fresh = made.replace("worker-2")
    assert identify(old.pid) != old
    assert not fresh.exists("/etc/before")
    assert fresh.run(["hostname"]).stdout == "ip-10-77-0-32\n"
    assert fresh.ssh("ubuntu", "true", timeout=5).code == 0
    made["worker-1"].run(["bash", "-c", "exec 3<>/dev/tcp/worker-2/22"], timeout=5)


def test_this_machines_own_network_is_never_touched() -> None:
    me = identify(os.getpid())
    assert me is not None
    with pytest.raises(SandboxError, match="own network"):
        network.lay(me)
    with pytest.raises(SandboxError, match="own network"):
        network.connect(me, me, "10.77.0.99")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_machines_whose_maker_was_killed(number: signal.Signals) -> None:
    maker = subprocess.Popen([sys.executable, "-c", MAKER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert maker.stdout is not None
    with maker.stdout:
        ground, pid1, folder, branch = maker.stdout.readline().decode().split()
    members = [identify(int(pid)) for pid in (ground, pid1)]
    assert all(members)
    maker.send_signal(number)
    maker.wait(30)
    until(lambda: not any(map(_lives, members)))
    until(lambda: not Path(folder).exists())
    assert not [path for kind in cgroups.CONTROLLERS for path in (cgroups.ROOT / kind).glob(f"{branch}*")]


def _lives(member: Identity | None) -> bool:
    return member is not None and identify(member.pid) == member
