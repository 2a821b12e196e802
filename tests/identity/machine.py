"""A machine of its own (see machine.sh) on which lifecycle steps run for real, and people log in."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1] / "lifecycle-scripts"


@dataclass
class Machine:
    """A machine.

    Attributes:
        pid: its first process, whose mounts and processes are the machine's.
        folder: files of the test's that it sees too.
        port: where its sshd listens once `start_sshd` has started it.
    """

    pid: int
    folder: Path
    port: int = 0

    def run(self, *argv: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Any:
        """Run a command on it."""
        return subprocess.run(
            ["nsenter", "-t", str(self.pid), "--mount", "--pid", *argv],
            input=stdin,
            text=True,
            capture_output=True,
            timeout=60,
            env={**os.environ, "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **(env or {})},
            check=False,
        )

    def ok(self, *argv: str, stdin: str = "") -> str:
        """Run a command that has to succeed."""
        done = self.run(*argv, stdin=stdin)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return str(done.stdout)

    def step(
        self, name: str, verb: str, settings: Mapping[str, Any], prefix: Sequence[str] = (), **env: str
    ) -> Any:
        """Run a verb of a lifecycle step with a section `identity` of the settings."""
        path = self.folder / "settings.json"
        path.write_text(json.dumps({"version": 1, "identity": settings}))
        given = {"HPCTOOLS_SETTINGS": str(path), "HPCTOOLS_ROLE": "login", "HPCTOOLS_ROOT": ""}
        given["HPCTOOLS_RESOURCE_CONFIG"] = str(self.folder / "resource_config.json")
        given |= {"HPCTOOLS_BUNDLE": str(SCRIPTS), "PYTHONPATH": str(SCRIPTS), "PYTHONDONTWRITEBYTECODE": "1"}
        return self.run(*prefix, str(SCRIPTS / "steps" / name), verb, env={**given, **env})

    def start_sshd(self) -> None:
        """Start sshd with PAM on a free port."""
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            self.port = bound.getsockname()[1]
        listen = ("-o", f"Port={self.port}", "-o", "ListenAddress=127.0.0.1")
        self.ok("/usr/sbin/sshd", "-f", "/run/sshd/config", *listen, "-E", "/run/sshd/log")

    def login(self, user: str, password: str, command: str = "id -un", timeout: float = 20) -> Any:
        """Log in through its sshd with a password."""
        asked = self.folder / "askpass"
        asked.write_text('#!/bin/sh\nprintf "%s\\n" "$PASSWORD_OF_TEST"\n')
        asked.chmod(0o700)
        options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "NumberOfPasswordPrompts=1"]
        options += ["PreferredAuthentications=password", "PubkeyAuthentication=no", f"Port={self.port}"]
        argv = ["ssh", "-F", "/dev/null", *(f"-o{each}" for each in options), f"{user}@127.0.0.1", command]
        env = {**os.environ, "SSH_ASKPASS": str(asked), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}
        env["PASSWORD_OF_TEST"] = password
        return subprocess.run(
            argv,
            text=True,
            capture_output=True,
            timeout=timeout,
            env=env,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def until(self, *argv: str, limit: float = 10) -> str:
        """Wait until a command succeeds."""
        end = time.monotonic() + limit
        while (done := self.run(*argv)).returncode != 0:
            assert time.monotonic() < end, f"still failing: {argv}: {done.stderr}"
            time.sleep(0.05)
        return str(done.stdout)


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """Run a machine; all of it ends with the block."""
    (folder / "disk").mkdir(parents=True)
    shutil.copy(HERE / "systemctl", folder / "systemctl")
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", str(HERE / "machine.sh"), str(folder)]
    with (folder / "machine.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said == b"ready\n", (folder / "machine.log").read_text()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield Machine(int(children[0]), folder)
    finally:
        process.kill()  # its end is that of everything on the machine
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()
