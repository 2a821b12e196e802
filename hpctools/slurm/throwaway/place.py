"""A place apart from everything, for throwaway daemons: made early, used once, gone with whoever made it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpctools.slurm import run
from hpctools.slurm.throwaway.places import CONF

# Whatever becomes of us, and however: what we started ends with us, and with it all in its namespaces.
_DIE_WITH_US = ("setpriv", "--pdeathsig=KILL", "--")
_APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc", "--cgroup")
_PLACES_OF_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_PLACES_OF_SLURM = ("/opt/slurm/sbin", "/opt/slurm/bin")


class Place:
    """A place apart from everything, which is made while its caller still works out what to boot in it.

    Its Python starts in namespaces of its own and waits for its order; it ends with whoever made it.
    """

    def __init__(self) -> None:
        """Begin; that the machine lets us make none is told when it is to be used.

        Raises:
            CommandError: a program that it takes is missing.
        """
        inside = (sys.executable, "-m", "hpctools.slurm.throwaway.inside")
        self._argv = (*_DIE_WITH_US, *apart(os.geteuid()), *inside)
        pipe = run.PIPE
        environment = _environment()
        self._process = run.start(
            self._argv, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=Path("/")
        )

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        """End it; nothing remains of it, used or not."""
        with self._process:
            if self._process.poll() is None:
                self._process.kill()

    def carry_out(self, order: Mapping[str, Any], limit: float) -> Mapping[str, Any]:
        """Hand over the order, once, and return what was seen.

        Args:
            limit: seconds.

        Raises:
            CommandError: the machine lets us make no namespaces.
            CommandTimeout: it did not end in time.
        """
        done = run.finish(self._process, self._argv, timeout=limit, stdin=json.dumps(order))
        seen: Mapping[str, Any] = json.loads(done.stdout)
        return seen


def apart(uid: int) -> tuple[str, ...]:
    """The command that makes the namespaces; others than root need a user namespace around them."""
    mapped = () if uid == 0 else ("--user", "--map-current-user", "--keep-caps")
    return (*_APART, "--propagation=private", *mapped, "--")


def search_path() -> str:
    """PATH, and where Slurm is where PATH does not tell."""
    return ":".join((os.environ.get("PATH", ""), *_PLACES_OF_PROGRAMS, *_PLACES_OF_SLURM))


def _environment() -> dict[str, str]:
    code = str(Path(__file__).resolve().parents[3])
    return {"PATH": search_path(), "LANG": "C.UTF-8", "PYTHONPATH": code, "SLURM_CONF": f"{CONF}/slurm.conf"}
