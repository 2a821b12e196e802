"""A sandbox, by its state folder: what it remembers, and the way in."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hpctools import site
from hpctools.errors import SandboxError
from hpctools.sandbox import blueprint, namespace, process, record, restart
from hpctools.sandbox.blueprint import Blueprint
from hpctools.sandbox.layout import Layout
from hpctools.sandbox.process import Identity
from hpctools.sandbox.record import Record
from hpctools.slurm import run

COMMAND_SECONDS = 30.0


class Sandbox:
    """One sandbox.

    Args:
        root: the state folder; need not exist yet.
    """

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root.resolve())
        self._writing = threading.Lock()

    def record(self) -> Record | None:
        """The record; None when there is no sandbox."""
        found = record.load(self.layout.record)
        return restart.follow(self.layout, found) if found else None

    def running(self) -> Record:
        """The record of a sandbox whose inside exists.

        Raises:
            SandboxError: there is none, or its holder has ended.
        """
        found = self.record()
        if found is None or found.holder is None or not process.alive(found.holder):
            raise SandboxError(f"no sandbox runs in {self.layout.root}", "start it: hpctools sandbox up")
        return found

    def remember(self, name: str, identity: Identity) -> None:
        """Write down a daemon's process at once, so that a crash of ours forgets none."""
        with self._writing:
            current = self.record()
            if current is not None:
                record.save(self.layout.record, current.with_process(name, identity))

    def applied(self, accounts_sha256: str) -> None:
        """Write down which account tree slurmdbd has."""
        with self._writing:
            current = self.record()
            if current is not None:
                record.save(self.layout.record, replace(current, accounts_sha256=accounts_sha256))

    def blueprint(self) -> Blueprint:
        """The blueprint that the sandbox was made from."""
        return blueprint.draw(site.load(self.layout.site), self.running().nodes)

    def command(self, argv: Sequence[str], *, user: str = "root", host: str = "") -> list[str]:
        """The command line that runs `argv` inside.

        Args:
            argv: program and arguments.
            user: Unix account.
            host: on which host; when empty the controller for root, the first login node for people.

        Raises:
            SandboxError: no sandbox runs, or it has no such host or account.
        """
        return namespace.entering(self._door(user, host), argv, user, self._home(user))

    def attach(self, argv: Sequence[str], *, user: str = "root", host: str = "") -> int:
        """Run a command inside on our own terminal, as a shell would; return its exit status.

        Whatever this process starts afterwards is inside, too.

        Raises:
            SandboxError: as `command`.
            CommandError: it could not be started.
        """
        member = self._door(user, host)
        line = namespace.entering(member, argv, user, self._home(user), is_there=True)
        namespace.have_children_in(member)
        return run.attach(line)

    def _door(self, user: str, host: str) -> Identity:
        """The process into whose namespaces a command goes."""
        found = self.running()
        if os.geteuid() != 0:
            raise SandboxError("only root may enter the sandbox", "run it with sudo")
        return self._member(found, user, host)

    def inside(
        self,
        *argv: str,
        user: str = "root",
        host: str = "",
        timeout: float = COMMAND_SECONDS,
        check: bool = True,
        stdin: str | None = None,
    ) -> run.Completed:
        """Run a command inside to its end.

        Raises:
            CommandError: it failed, and `check`.
        """
        line = self.command(argv, user=user, host=host)
        return run.run(line, timeout=timeout, check=check, stdin=stdin)

    def _home(self, user: str) -> str:
        if user == "root":
            return "/root"
        lines = (self.layout.tree / "etc" / "passwd").read_text().splitlines()
        homes = {fields[0]: fields[5] for fields in (line.split(":") for line in lines)}
        if user not in homes:
            people = ", ".join(name for name, home in homes.items() if home == f"/home/{name}")
            raise SandboxError(f"the sandbox has no Unix account {user!r}", f"its people are: {people}")
        return homes[user]

    def _member(self, found: Record, user: str, host: str) -> Identity:
        """A process that sees `host` as its host name."""
        if not host and user != "root":
            host = next((n.partition("-")[2] for n in sorted(found.processes) if n.startswith("sshd-")), "")
        names = (f"sshd-{host}", f"slurmd-{host}") if host else ("slurmctld",)
        for identity in filter(None, map(found.processes.get, names)):
            if process.alive(identity):
                return identity
        if not host and found.holder:
            return found.holder
        hosts = sorted(n.partition("-")[2] for n in found.processes if n.startswith(("sshd-", "slurmd-")))
        raise SandboxError(f"host {host!r} does not run in this sandbox", f"it has: {', '.join(hosts)}")
