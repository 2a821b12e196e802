"""One machine: booted, entered, logged in to, and ended."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpctools.errors import SandboxError
from hpctools.sandbox.hosts.plan import Machine
from hpctools.sandbox.namespace import begin, last_line
from hpctools.sandbox.process import Identity, identify, wait_gone
from hpctools.slurm import run as door

BOOT_SECONDS = 15.0
COMMAND_SECONDS = 60.0
END_SECONDS = 10.0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--ipc", "--uts", "--net", "--kill-child")


@dataclass(frozen=True)
class Rack:
    """What all machines share.

    Attributes:
        ground: pid 1 of the namespaces that they live in.
        folder: state folder on the machine that we run on.
        branch: begin of the names of their cgroups; empty where there are none.
    """

    ground: Identity
    folder: Path
    branch: str

    @property
    def shared(self) -> Path:
        """What a shared file system would hold, one folder for each."""
        return self.folder / "shared"

    @property
    def key(self) -> Path:
        """The private SSH key that every account of every machine accepts."""
        return self.folder / "key"


@dataclass
class Host:
    """A machine that runs.

    Attributes:
        machine: which one.
        rack: what it shares with the others.
        pid1: its first process.
    """

    machine: Machine
    rack: Rack
    pid1: Identity

    def command(self, argv: Sequence[str], **environment: str) -> list[str]:
        """The command line that runs `argv` on it as root, with a fresh login's environment."""
        fresh = {"HOME": "/root", "USER": "root", "LOGNAME": "root", "PATH": PATH, "LANG": "C.UTF-8"}
        words = [f"{name}={value}" for name, value in {**fresh, **environment}.items()]
        return [*enter(self.pid1), "env", "-i", "--chdir=/", *words, *argv]

    def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = True,
        timeout: float = COMMAND_SECONDS,
        stdin: str | None = None,
        **environment: str,
    ) -> door.Completed:
        """Run a command on it as root, to its end.

        Raises:
            CommandError: it failed, and `check`.
            CommandTimeout: it did not end within `timeout` seconds.
        """
        return door.run(self.command(argv, **environment), timeout=timeout, check=check, stdin=stdin)

    def start(self, argv: Sequence[str], log: Path, **environment: str) -> door.Process:
        """Start a command on it as root; its output goes to a file of ours."""
        with log.open("ab") as file:
            line = self.command(argv, **environment)
            return door.start(line, stdout=file, stderr=file, new_session=True)

    def ssh_command(self, user: str, *words: str) -> list[str]:
        """The command line that logs in to it from the machines' network as anybody, by key."""
        options = [
            *("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
            *("-o", "LogLevel=ERROR", "-o", "ConnectTimeout=10", "-o", "ControlPath=none", "-F", "none"),
        ]
        ssh = ["ssh", "-i", str(self.rack.key), *options, f"{user}@{self.machine.address}"]
        return ["nsenter", f"--target={self.rack.ground.pid}", "--net", "--", *ssh, *words]

    def ssh(
        self,
        user: str,
        *words: str,
        check: bool = True,
        timeout: float = COMMAND_SECONDS,
        stdin: str | None = None,
    ) -> door.Completed:
        """Run a command on it through sshd as anybody."""
        return door.run(self.ssh_command(user, *words), timeout=timeout, check=check, stdin=stdin)

    def read(self, path: str) -> str:
        """A file's text.

        Raises:
            CommandError: it cannot be read.
        """
        return self.run(["cat", path]).stdout

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return self.run(["test", "-e", path], check=False).code == 0

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file as root, making the folders above it."""
        script = 'mkdir -p "$(dirname "$1")" && cat >"$1" && chmod "$2" "$1"'
        self.run(["sh", "-c", script, "write", path, f"{mode:o}"], stdin=text)

    def copy(self, source: Path, path: str) -> None:
        """Copy a folder of ours to a folder of it, which must not be there yet."""
        # The machine that we run on is not mounted there: the files travel through a pipe.
        unpack = 'mkdir -p "$1" && tar -C "$1" --no-overwrite-dir -xpf -'
        script = f'tar -C "$1" -cf - . | "${{@:3}}" sh -c {shlex.quote(unpack)} copy "$2"'
        door.run(
            ["bash", "-c", f"set -o pipefail; {script}", "copy", str(source), path, *self.command([])],
            timeout=COMMAND_SECONDS,
        )

    def end(self) -> None:
        """End it as a power cut would.

        Raises:
            SandboxError: it does not end.
        """
        os.kill(self.pid1.pid, 9)
        if not wait_gone(self.pid1, END_SECONDS):
            raise SandboxError(f"{self.machine.name} does not end", f"see ps -p {self.pid1.pid}")


def enter(member: Identity) -> list[str]:
    """The command line that enters all of a process' namespaces."""
    kinds = ("--mount", "--root", "--pid", "--ipc", "--uts", "--net", "--cgroup")
    return ["nsenter", f"--target={member.pid}", *kinds, "--"]


def boot(machine: Machine, rack: Rack) -> Host:
    """Boot a machine: an empty node, not connected to anything yet.

    Raises:
        SandboxError: it does not come up; the message has its last words.
    """
    order = {"branch": f"{rack.branch}-{machine.name}" if rack.branch else "", "shared": str(rack.shared)}
    log = rack.folder / f"{machine.name}.console"
    inside = [sys.executable, "-m", "hpctools.sandbox.hosts.inside", json.dumps(order)]
    # nsenter's child, in the ground, is `unshare`; and its child is pid 1.
    ground = ["nsenter", f"--target={rack.ground.pid}", "--pid", "--ipc", "--net", "--"]
    argv = [*ground, *UNSHARE, "--propagation=private", *inside]
    process, ready = begin(argv, log, BOOT_SECONDS, _environment())
    pid1 = _only_grandchild(process.pid) if ready else None
    if pid1 is None:
        process.kill()
        process.wait()
        raise SandboxError(f"{machine.name} does not boot: {last_line(log)}", f"see {log}")
    process.returncode = 0  # it ends with pid 1; nobody waits for it
    return Host(machine, rack, pid1)


def _only_grandchild(pid: int) -> Identity | None:
    for _ in range(2):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children:
            return None
        pid = int(children[0])
    return identify(pid)


def _environment() -> dict[str, str]:
    code = Path(__file__).resolve().parents[3]
    return {"PATH": PATH, "LANG": "C.UTF-8", "PYTHONPATH": str(code)}
