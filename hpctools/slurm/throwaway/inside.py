"""Pid 1 of a preflight: starts munged and slurmctld apart from everything, looks, prints, and all of it ends.

Started by `boot.py` in fresh namespaces with an order as JSON on standard input; prints what it saw as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import secrets
import shutil
import socket
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hpctools.errors import CommandError
from hpctools.slurm import run
from hpctools.slurm.throwaway import isolation, resolver, tres_cache
from hpctools.slurm.throwaway.places import CONF, HOPELESS, KEY_FILE, MUNGE_SOCKET, PRIVATE, STATE
from hpctools.slurm.throwaway.seen import Booted, SeenNode, over_since
from hpctools.slurm.throwaway.slurmds import Slurmds

# What slurmctld reads of its past; batch scripts are not copied, they get stand-ins.
_MEMORIES = (
    "assoc_mgr_state",
    "assoc_usage",
    "qos_usage",
    "clustername",
    "last_tres",
    "node_state",
    "job_state",
    "resv_state",
)
_JOB = ("JobState", "EndTime")
_RUNNING_LINE = "Running as primary controller"
_ASK_SECONDS = 30.0
_LAST_SECONDS = 5.0
_PAUSE_SECONDS = 0.02
_LOOK_ANYWAY_SECONDS = 0.25


class Inside:
    """One preflight, carried out."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.order = order
        self.root = Path(order["root"])
        self.private = self._within(PRIVATE)
        self.seconds: dict[str, float] = {}
        self.lines: list[str] = []
        self.heard, self.ended, self.gone = threading.Event(), threading.Event(), threading.Event()
        self._since = time.monotonic()

    def carry_out(self) -> Booted:
        """Everything in order.

        Raises:
            OSError: the kernel does not let us.
            CommandError: a program that we need is missing.
        """
        self._arrange()
        said = self._run("slurmctld", "-V").stdout.strip()
        if self.order["state"]:
            self._remember()
        self._hand_over()
        self._phase("arrange")
        slurmctld = self._start()
        slurmds = Slurmds(self.order["tries"], said, self._within, self._argv)
        slurmds.start()
        up = self._await()
        self._phase("boot")
        booted = Booted(said, (), up, slurmctld.poll(), slurmds=slurmds.said())
        if up:
            booted = self._look(booted)
            self._phase("look")
        return replace(booted, lines=tuple(self.lines), seconds=self.seconds)

    def _within(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _phase(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name], self._since = round(now - self._since, 3), now

    def _argv(self, *words: str) -> list[str]:
        return list(words) if self.root == Path("/") else ["chroot", str(self.root), *words]

    def _run(self, *words: str, check: bool = True) -> run.Completed:
        return run.run(self._argv(*words), timeout=_ASK_SECONDS, check=check)

    def _arrange(self) -> None:
        socket.sethostname(self.order["host"])
        isolation.own_network(self.order["addresses"])
        self._silence()
        isolation.fresh_view(self.root)
        for place in (CONF, STATE, f"{PRIVATE}/munge", str(Path(MUNGE_SOCKET).parent)):
            self._within(place).mkdir(parents=True)
        isolation.own_names(self.root, self.private)
        resolver.serve({self.order["host"], *self.order["addresses"], "localhost"})
        self._write()
        if self.order["key"]:
            self._secret(self._within(CONF) / KEY_FILE)
        else:
            self._munge()

    def _silence(self) -> None:
        """Put a program that does nothing in the place of each that slurmctld might start."""
        for program in self.order["programs"]:
            place = self._within(program)
            if program.startswith("/") and place.is_file():
                isolation.bind(self._within("/bin/true").resolve(), place)

    def _write(self) -> None:
        for path, text in self.order["files"].items():
            place = self._within(CONF) / path
            if place.resolve().is_relative_to(self._within(CONF)):  # an Include may climb out; we do not
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8", errors="surrogateescape")

    def _secret(self, place: Path) -> None:
        place.touch(mode=0o600)
        place.write_bytes(secrets.token_bytes(1024))

    def _munge(self) -> None:
        folder = f"{PRIVATE}/munge"
        self._within(folder).chmod(0o700)
        self._secret(self._within(folder) / "key")
        places = {"key-file": "key", "log-file": "log", "pid-file": "pid", "seed-file": "seed"}
        words = [f"--{option}={folder}/{name}" for option, name in places.items()]
        self._run("munged", "--force", f"--socket={MUNGE_SOCKET}", *words)

    def _remember(self) -> None:
        """Give slurmctld the live one's memories; what else it counts would need slurmdbd, so add that."""
        place = self._within(STATE)
        known = _copied(Path(self.order["state"]), place)
        if known:
            protocol, rows = known
            rows = tres_cache.completed(rows, self.order["tres"])
            (place / "last_tres").write_bytes(tres_cache.pack_tres(rows, protocol, int(time.time())))

    def _hand_over(self) -> None:
        """slurmctld becomes another account before it reads and writes."""
        try:
            owner = _account(self.order["user"], self.root)
        except KeyError:
            return  # slurmctld has its own words for that
        for place in (self.private, *self.private.rglob("*")):
            if f"{PRIVATE}/munge" not in str(place):
                os.chown(place, *owner)

    def _start(self) -> run.Process:
        reader, writer = os.pipe()
        threading.Thread(target=self._listen, args=(reader,), daemon=True).start()
        argv = self._argv("slurmctld", "-D", "-f", f"{CONF}/slurm.conf")
        process = run.start(argv, stdout=writer, stderr=writer)
        os.close(writer)
        threading.Thread(target=self._wait_for, args=(process,), daemon=True).start()
        return process

    def _wait_for(self, process: run.Process) -> None:
        process.wait()
        self.gone.set()

    def _listen(self, reader: int) -> None:
        with os.fdopen(reader, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                self.lines.append(line.rstrip("\n").removeprefix("slurmctld: "))
                if _RUNNING_LINE in line:
                    self.heard.set()
                if HOPELESS in line:
                    break
        self.ended.set()
        self.heard.set()

    def _await(self) -> bool:
        """Wait until it answers; its own word comes first, since asking too early costs seconds."""
        limit = time.monotonic() + float(self.order["limit"])
        self.heard.wait(_LOOK_ANYWAY_SECONDS)
        while time.monotonic() < limit and not self.ended.is_set():
            if self._answers(limit - time.monotonic()):
                return True
            self.ended.wait(_PAUSE_SECONDS)
            self.heard.wait(_LOOK_ANYWAY_SECONDS)
        if self.ended.is_set() and not any(HOPELESS in line for line in self.lines):
            self.gone.wait(_LAST_SECONDS)  # its exit status comes a moment after its last words
        return False

    def _answers(self, limit: float) -> bool:
        """Later releases let a question that comes early wait, and complain of one that is given up."""
        try:
            done = run.run(self._argv("scontrol", "ping"), timeout=max(limit, 1.0), check=False)
        except CommandError:
            return False
        return bool(re.search(r"\(primary\).* is UP", done.stdout))

    def _look(self, booted: Booted) -> Booted:
        kinds = ("node", "partition", *(("job",) if self.order["state"] else ()))
        with ThreadPoolExecutor(len(kinds)) as pool:
            shown = dict(zip(kinds, pool.map(self._show, kinds), strict=True))
        nodes = _fields(shown["node"], "NodeName", ("State", "Gres"))
        partitions = _fields(shown["partition"], "PartitionName", ("Nodes",))
        jobs = _fields(shown.get("job", ""), "JobId", _JOB)
        ends = {job: over_since(*row) for job, row in jobs.items()}
        return replace(
            booted,
            nodes={name: SeenNode(*row) for name, row in nodes.items()},
            partitions={name: row[0] for name, row in partitions.items()},
            ended_jobs=tuple(int(job) for job, end in ends.items() if end >= self.order["now"]),
            past_jobs=tuple(int(job) for job, end in ends.items() if "" < end < self.order["now"]),
        )

    def _show(self, kind: str) -> str:
        return self._run("scontrol", "--all", "--oneliner", "show", kind).stdout


def _fields(text: str, name: str, keys: tuple[str, ...]) -> dict[str, list[str]]:
    """The values of some keys in `scontrol --oneliner show`, by the first."""
    found, patterns = {}, [re.compile(rf"(?:^|\s){key}=(\S*)") for key in (name, *keys)]
    for line in text.splitlines():
        values = [pattern.search(line) for pattern in patterns]
        if values[0]:
            found[values[0][1]] = ["" if not v or v[1] == "(null)" else v[1] for v in values[1:]]
    return found


def _account(name: str, root: Path) -> tuple[int, int]:
    if name.isdecimal():
        return int(name), int(name)
    if root == Path("/"):
        entry = pwd.getpwnam(name)
        return entry.pw_uid, entry.pw_gid
    rows = [line.split(":") for line in (root / "etc/passwd").read_text().splitlines()]
    return {row[0]: (int(row[2]), int(row[3])) for row in rows if len(row) > 3}[name]


def _copied(live: Path, place: Path) -> tuple[int, tuple[tres_cache.Tres, ...]] | None:
    """Copy a live slurmctld's memories; it replaces them by renaming, so each is whole."""
    for name in _MEMORIES:
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(live / name, place / name)
    for job in live.glob("hash.*/job.*"):
        stand_in = place / job.relative_to(live)
        stand_in.mkdir(parents=True, exist_ok=True)
        for name in ("script", "environment"):
            (stand_in / name).write_bytes(b"#!/bin/true\n\0" if name == "script" else b"\0\0\0\0")
    with contextlib.suppress(FileNotFoundError):
        return tres_cache.unpack_tres((live / "last_tres").read_bytes())
    return None


def main() -> int:
    """Entry."""
    order = json.load(sys.stdin)
    try:
        booted = asdict(Inside(order).carry_out())
    except (OSError, CommandError, ValueError) as error:
        booted = {"failed": str(error)}
    print(json.dumps(booted), flush=True)
    return 0


if __name__ == "__main__":
    os._exit(main())  # the rest of the namespace ends with us, slurmctld as it is
