"""Limits of people as a real systemd keeps them: process 1 of a namespace, in branches of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

import hpctools.login
from hpctools.login.agent.moving import call
from hpctools.login.agent.processes import TICKS, Process, read_processes
from hpctools.login.agent.slices import SystemdSlices
from hpctools.sandbox import cgroups
from tests.system.harness import until

ROOT = Path(__file__).parents[2]
UID = 54321
SLICE = f"user-{UID}.slice"
OWN_QUOTA = 60
"""Per cent of a processor that the site itself gives to everybody, in a file as `systemctl edit` makes it."""
# systemd mounts each hierarchy that is missing, with its root as the namespace sees it: it gets all of them.
START = """\
set -e
for folder in /sys/fs/cgroup/*/; do
  folder=${folder%/}
  [ -e "$folder/cgroup.procs" ] || continue
  mkdir "$folder/$1"
  for key in cpuset.cpus cpuset.mems; do
    [ ! -e "$folder/$key" ] || cat "$folder/$key" >"$folder/$1/$key"
  done
  echo $$ >"$folder/$1/cgroup.procs"
done
exec unshare --cgroup --pid --fork --mount --uts --ipc --kill-child sh -c "$2"
"""
INSIDE = """\
set -e
names=$(cd /sys/fs/cgroup && for each in */cgroup.procs; do echo "${each%/*}"; done)
mount -t tmpfs tmpfs /sys/fs/cgroup
for name in $names; do
  mkdir "/sys/fs/cgroup/$name"
  case "$name" in
    unified) mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified ;;
    systemd) mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd ;;
    *) mount -t cgroup -o "$name" cgroup "/sys/fs/cgroup/$name" ;;
  esac
done
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir -p /run/units/user-.slice.d
cp /lib/systemd/system/dbus.socket /lib/systemd/system/dbus.service /run/units
for each in default sysinit basic shutdown; do
  printf '[Unit]\\nDefaultDependencies=no\\n' >"/run/units/$each.target"
done
printf '[Slice]\\nCPUQuota=%s%%\\n' "$OWN_QUOTA" >/run/units/user-.slice.d/override.conf
export container=hpctools SYSTEMD_UNIT_PATH=/run/systemd/system.control:/run/systemd/transient:/run/units
exec /lib/systemd/systemd --system --unit=default.target
"""
SET = """\
import sys
from hpctools.login.agent.slices import find_slices
from hpctools.login.care import Limits
find_slices().limit(int(sys.argv[1]), Limits(*(float(word) for word in sys.argv[2:])), ())
"""
MOVE = """\
from hpctools.login.agent.moving import Mover
from hpctools.login.agent.pausing import Pause
from hpctools.login.agent.processes import read_processes
from hpctools.site.login_care import Care
Mover(Care().services, lambda user: user == "root").look(read_processes(), Pause("systemd", ""))
"""
SSM = "amazon-ssm-agent"
# As Session Manager's agent starts a shell: without PAM, in its own service.
SHELL = "setpriv --reuid {uid} --regid {uid} --clear-groups sh -c '{program}' & exec sleep 1000"
AGENT = Path(hpctools.login.__file__).parent / "systemd/hp-login-agent.service"


class Systemd:
    """A systemd of a test's own.

    Attributes:
        branch: its folder in each hierarchy.
        first: its process 1, as this machine numbers it.
    """

    def __init__(self) -> None:
        self.branch = f"hpctools-systemd-{uuid4().hex[:8]}"
        argv = ["sh", "-c", START, "sh", self.branch, INSIDE]
        environment = {"PATH": os.environ["PATH"], "OWN_QUOTA": str(OWN_QUOTA)}
        self._outer = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL)
        try:
            self.first = until(self._found, 20)
            until(lambda: self.run("systemctl", "is-system-running", check=False) == "running\n" or None, 20)
        except AssertionError:
            self.end()
            raise

    def _found(self) -> int | None:
        return next((each.pid for each in read_processes() if self._is_first(each)), None)

    def _is_first(self, process: Process) -> bool:
        return process.parent == self._outer.pid and process.name == "systemd"

    def run(self, *argv: str, check: bool = True) -> str:
        """What a command beside it says."""
        inside = ["nsenter", "-t", str(self.first), "--mount", "--pid", "--cgroup", "--uts", "--ipc", *argv]
        told = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            inside, capture_output=True, text=True, env=told, timeout=60, check=check
        ).stdout

    def limit(self, *cpus: float) -> None:
        """Have the agent's own code limit the person to so many processors, or to nothing more."""
        self.run(sys.executable, "-c", SET, str(UID), *map(str, cpus))

    def burn(self) -> Process:
        """Begin a program of the person's that takes all it gets."""
        program = f"while :; do :; done # {self.branch}"
        self.run("systemd-run", "--collect", "--unit=burn", f"--slice={SLICE}", "/bin/sh", "-c", program)
        return until(lambda: next((p for p in read_processes() if _is_shell_with(p, program)), None))

    def serve(self) -> tuple[Process, Process, Process]:
        """Begin a stand-in of Session Manager's agent: its process, a person's shell, a child that burns."""
        burn = f"while :; do :; done # {self.branch}"
        program = f'sh -c "{burn}" & wait # {self.branch}'
        self.run("systemctl", "start", "dbus.socket", "dbus.service")
        started = SHELL.format(uid=UID, program=program)
        self.run("systemd-run", "--collect", f"--unit={SSM}", "/bin/sh", "-c", started)
        shell, child = (
            until(lambda end=end: next((p for p in read_processes() if _is_shell_with(p, end)), None))
            for end in (program, burn)
        )
        return next(p for p in read_processes() if p.pid == shell.parent), shell, child

    def is_in(self, unit: str, *processes: Process) -> bool:
        """Whether the kernel has them in there."""
        found = [Path(f"/proc/{each.pid}/cgroup").read_text() for each in processes]
        return all(f":name=systemd:/{self.branch}/{unit}" in text for text in found)

    @property
    def scopes(self) -> str:
        """Those that were made for what was moved."""
        wanted = ["list-units", "--all", "--plain", "--no-legend", "hpctools-login-*.scope"]
        return self.run("systemctl", *wanted)

    def begin_shut_in(self, words: list[str]) -> None:
        """Run a program as the agent's unit lets it run."""
        text = AGENT.read_text().partition("[Service]\n")[2].partition("[Install]")[0]
        own = r"^(Type|Exec\w+|EnvironmentFile|Restart\w*)=.*\n"
        command = " ".join(f'"{word}"' for word in words)
        text = re.sub(own, "", text, flags=re.MULTILINE) + f"Type=oneshot\nExecStart={command}\n"
        write = 'printf "%s" "$1" >/run/units/shut-in.service'
        self.run("sh", "-c", write, "sh", f"[Unit]\nDefaultDependencies=no\n[Service]\n{text}")
        self.run("systemctl", "start", "shut-in")

    @property
    def quota(self) -> int:
        """Microseconds of 100,000 that the kernel gives the person."""
        folder = Path("/sys/fs/cgroup/cpu", self.branch, "user.slice", SLICE)
        return int((folder / "cpu.cfs_quota_us").read_text())

    def end(self) -> None:
        """End all that runs in it, and remove its branches."""
        self._outer.kill()
        self._outer.wait(20)
        until(lambda: self._is_removed() or None, 20)

    def _is_removed(self) -> bool:
        tops = [top for top in Path("/sys/fs/cgroup").glob(f"*/{self.branch}") if top.is_dir()]
        for top in tops:
            for folder, _, _ in os.walk(top, topdown=False):
                with suppress(OSError):  # a process of it is ending
                    Path(folder).rmdir()
        return not any(top.is_dir() for top in tops)


@pytest.fixture
def systemd() -> Iterator[Systemd]:
    """A running one."""
    if cgroups.version() != "v1" or not Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").parent.is_dir():
        pytest.skip("this machine gives no cgroups of v1, and a branch of v2 has no controllers of its own")
    made = Systemd()
    try:
        yield made
    finally:
        made.end()


def _is_shell_with(process: Process, program: str) -> bool:
    return process.name == "sh" and process.title.endswith(program)


def used_by(process: Process, seconds: float = 1.0) -> float:
    """Processors that a process uses on average, looked at for so long."""

    def ticks() -> int:
        return next(each.cpu_ticks for each in read_processes() if each.pid == process.pid)

    before, begin = ticks(), time.monotonic()
    time.sleep(seconds)
    return (ticks() - before) / TICKS / (time.monotonic() - begin)


def test_a_limit_counts_until_it_is_lifted_whatever_systemd_reads_anew(systemd: Systemd) -> None:
    """Also for who leaves and comes back; then the site's own counts again."""
    systemd.burn()
    assert systemd.quota == OWN_QUOTA * 1000
    systemd.limit(0.1)
    assert systemd.quota == 10_000
    systemd.run("systemctl", "daemon-reload")
    assert systemd.quota == 10_000
    systemd.run("systemctl", "stop", "burn")
    back = systemd.burn()
    assert systemd.quota == 10_000
    assert used_by(back) < 0.3
    first = next(each for each in read_processes() if each.pid == systemd.first)
    assert SystemdSlices().outside(UID, [back, first]) == (first,)
    systemd.limit()
    assert systemd.quota == OWN_QUOTA * 1000


def test_a_shell_of_session_managers_is_moved_to_where_limits_hold(systemd: Systemd) -> None:
    """It outlives the service then; root's process stays there, and the scope goes with the shell."""
    own, *theirs = systemd.serve()
    service, scope = f"system.slice/{SSM}.service", f"user.slice/{SLICE}/hpctools-login-{UID}-"
    assert systemd.is_in(service, own, *theirs)
    assert SystemdSlices().outside(UID, theirs) == tuple(theirs)
    systemd.run(sys.executable, "-c", MOVE)
    until(lambda: systemd.is_in(scope, *theirs) or None)
    assert systemd.is_in(service, own)
    assert SystemdSlices().outside(UID, theirs) == ()
    assert systemd.quota == OWN_QUOTA * 1000
    systemd.limit(0.1)
    assert used_by(theirs[1]) < 0.3
    assert systemd.scopes.count(".scope") == 1
    systemd.run("systemctl", "stop", SSM)
    here = {each.key for each in read_processes()}
    assert [each.key in here for each in (own, *theirs)] == [False, True, True]
    for each in theirs:
        os.kill(each.pid, signal.SIGKILL)
    until(lambda: not systemd.scopes or None)


def test_the_agents_unit_may_ask_systemd_for_it(systemd: Systemd) -> None:
    """With what its unit leaves of root's rights."""
    _, shell, _ = systemd.serve()
    status = Path(f"/proc/{shell.pid}/status").read_text()
    inside = int(status.partition("NSpid:")[2].partition("\n")[0].split()[-1])
    systemd.begin_shut_in(call(UID, [replace(shell, pid=inside)]))
    until(lambda: systemd.is_in(f"user.slice/{SLICE}/hpctools-login-{UID}-", shell) or None)
