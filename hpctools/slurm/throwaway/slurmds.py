"""Inside a preflight: slurmds are asked what they make of gres.conf, while slurmctld starts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpctools.errors import CommandError
from hpctools.slurm import run
from hpctools.slurm.throwaway.places import CONF, KEY_FILE, PRIVATE
from hpctools.slurm.versions import knows_cgroup_disabled, parse_release

_SECONDS = 20.0


class Slurmds:
    """The slurmds of one preflight, one after the other on a thread of its own.

    Args:
        tries: what `node_gres.tries` returned, as plain data.
        release: what `slurmctld -V` said.
        within: where a path of the inside lies.
        argv: a command line of the inside.
    """

    def __init__(
        self,
        tries: Sequence[Mapping[str, Any]],
        release: str,
        within: Callable[[str], Path],
        argv: Callable[..., list[str]],
    ) -> None:
        self._tries, self._within, self._argv = tries, within, argv
        # No release needs cgroups for this, and those that have a word for that ask for them nevertheless.
        self._cgroup = "CgroupPlugin=disabled\n" if knows_cgroup_disabled(parse_release(release)) else ""
        self._said: dict[str, tuple[str, ...]] = {}
        self._thread = threading.Thread(target=self._ask_all, daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def said(self) -> dict[str, tuple[str, ...]]:
        """Wait for all of them; return what each wrote that did not end well, by the names of its nodes."""
        self._thread.join()
        return self._said

    def _ask_all(self) -> None:
        for number, each in enumerate(self._tries):
            folder = f"{PRIVATE}/slurmds/{number}"
            self._write(folder, each)
            try:
                argv = self._argv("slurmd", "-G", "-N", each["node"], "-f", f"{folder}/slurm.conf")
                done = run.run(argv, timeout=_SECONDS, check=False)
            except CommandError as error:
                self._said[each["nodes"]] = (f"fatal: {error.message}",)
                continue
            if done.code:
                self._said[each["nodes"]] = tuple((done.stdout + done.stderr).splitlines())

    def _write(self, folder: str, each: Mapping[str, Any]) -> None:
        place = self._within(folder)
        place.mkdir(parents=True)
        (place / "slurm.conf").write_text(each["conf"])
        (place / "gres.conf").write_text(each["gres"])
        (place / "cgroup.conf").write_text(self._cgroup)
        self._within(f"{PRIVATE}/spool").mkdir(exist_ok=True)
        key = self._within(CONF) / KEY_FILE
        if key.exists():
            (place / KEY_FILE).touch(mode=0o600)
            (place / KEY_FILE).write_bytes(key.read_bytes())
        for path in each["devices"]:
            self._within(path).parent.mkdir(parents=True, exist_ok=True)
            self._within(path).touch()
