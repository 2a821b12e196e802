"""Runs the steps: check, do under the time limit, again after a pause, check that it is done."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from provision.failures import HOPELESS, Failure, Interrupted
from provision.files import STATE, on_node, write_whole
from provision.journal import Journal
from provision.leftover import end_leftover, forget, remember
from provision.processes import TIMED_OUT, run_group
from provision.roles import Node
from provision.settings import Settings
from provision.stepfiles import Step

CHECK_SECONDS = 30.0
LONGEST_PAUSE = 60.0
OTHER_RUN_SECONDS = 1800.0


class Runner:
    """Runs steps on this node.

    Args:
        journal: where events go.
        environment: of the steps.
        node: who this node is.
        settings: the site's.
        backoff: seconds before the second attempt; twice as long before each further one.
    """

    def __init__(
        self,
        journal: Journal,
        environment: Mapping[str, str],
        node: Node,
        settings: Settings,
        *,
        backoff: float = 2.0,
    ) -> None:
        self._journal = journal
        self._environment = {**environment, "PATH": _path(environment.get("PATH", ""))}
        self._node = node
        self._settings = settings
        self._backoff = backoff

    def check(self, steps: Sequence[Step]) -> int:
        """Ask each step whether it is done; change nothing. Returns 0 when all are, else 1."""
        codes = [self._is_done(step) for step in steps]
        for step, done in zip(steps, codes, strict=True):
            self._journal.event("info", "checked", step=step.name, done=done)
        return 0 if all(codes) else 1

    def run(self, steps: Sequence[Step]) -> int:
        """Run the steps in order, up to the first that fails and is required.

        Returns:
            0 when every required step is done, else 1.
        """
        begin, outcome = time.monotonic(), {}
        node = {"role": self._node.role, "group": self._node.group, "instance": self._node.instance}
        self._journal.event("info", "run-begins", steps=len(steps), **node)
        code = 0
        for step in steps:
            outcome[step.name] = self._run(step)
            if outcome[step.name] == "failed" and self._is_required(step):
                code = 1
                break
        self._remember({"code": code, "steps": outcome, **node})
        seconds = round(time.monotonic() - begin, 3)
        if code:
            name = next(reversed(outcome))
            self._journal.event("error", "run-failed", step=name, seconds=seconds, message=_what_next(name))
        else:
            self._journal.event("info", "run-done", seconds=seconds, did=_count(outcome, "done"))
        return code

    def _is_required(self, step: Step) -> bool:
        """`yes`, `no`, or what a setting such as `containers.required` says."""
        if step.required in ("yes", "no"):
            return step.required == "yes"
        section, _, key = step.required.partition(".")
        return bool(self._settings.section(section).get(key))

    def _run(self, step: Step) -> str:
        """One step: `already`, `done` or `failed`."""
        begin = time.monotonic()
        if self._is_done(step):
            self._journal.event("info", "step-already-done", step=step.name)
            return "already"
        for attempt in range(1, step.attempts + 1):
            self._journal.event("info", "step-begins", step=step.name, attempt=attempt, of=step.attempts)
            why, again = self._attempt(step)
            seconds = round(time.monotonic() - begin, 3)
            if not why:
                self._journal.event("info", "step-done", step=step.name, attempt=attempt, seconds=seconds)
                return "done"
            last = attempt == step.attempts or not again
            level = "error" if last and self._is_required(step) else "warning"
            name = "step-failed" if last else "step-attempt-failed"
            self._journal.event(level, name, step=step.name, attempt=attempt, seconds=seconds, message=why)
            if last:
                break
            time.sleep(min(LONGEST_PAUSE, self._backoff * 2 ** (attempt - 1)))
        return "failed"

    def _attempt(self, step: Step) -> tuple[str, bool]:
        """Try once: why it failed (empty when it did not), and whether trying again is of use."""
        missing = [name for name in step.needs if not shutil.which(name, path=self._environment["PATH"])]
        if missing:
            return f"{', '.join(missing)} is not installed on this node: use an image that has it", False
        code = self._call(step, "do", step.limit)
        if code == TIMED_OUT:
            return f"not done within {step.limit:.0f} s", True
        if code != 0:
            return f"exit code {code}; its output stands above", code != HOPELESS
        if not self._is_done(step):
            return "it ran without an error, but its check says that it is not done", True
        return "", False

    def _is_done(self, step: Step) -> bool:
        code = self._call(step, "check", min(CHECK_SECONDS, step.limit))
        if code not in (0, 1):
            # A check that cannot answer is no reason to skip.
            self._journal.event("warning", "check-failed", step=step.name, code=code)
        return code == 0

    def _call(self, step: Step, verb: str, limit: float) -> int:
        hear = partial(self._hear, step.name, verb)
        started = partial(remember, on_node(STATE), step.name) if verb == "do" else lambda pid: None
        code = run_group([step.path, verb], self._environment, limit, hear, started)
        if verb == "do":
            forget(on_node(STATE))
        return code

    def _hear(self, name: str, verb: str, line: str) -> None:
        if line.strip():
            self._journal.event("info", "output", step=name, verb=verb, message=line)

    def _remember(self, outcome: Mapping[str, object]) -> None:
        """For people; nothing depends on it, since checks look at the node itself."""
        with contextlib.suppress(Failure):
            write_whole(on_node(STATE) / "last-run.json", json.dumps(outcome, indent=2) + "\n", 0o600)


def _path(stated: str) -> str:
    """Commands of the system and of HyperPod's Slurm, after those that the environment names."""
    usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/sbin:/opt/slurm/bin"
    return f"{stated}:{usual}" if stated else usual


def _count(outcome: Mapping[str, str], word: str) -> int:
    return sum(found == word for found in outcome.values())


def _what_next(name: str) -> str:
    return f"mend what {name} says above, then run on_create.sh again: it goes on with this step"


@contextlib.contextmanager
def on_signals() -> Iterator[None]:
    """Within this, a signal that asks to end raises Interrupted, so that the running step is ended too."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.signal(number, end) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def exclusive(folder: Path, journal: Journal, limit: float = OTHER_RUN_SECONDS) -> Iterator[None]:
    """Within this, no other run is on this node; what a killed run left behind is ended first.

    Raises:
        Failure: another run does not end within the limit (seconds), or the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Failure(f"{folder} cannot be used: {error.strerror or error}") from None
    try:
        _wait_for(handle, folder, journal, time.monotonic() + limit)
        end_leftover(folder, journal)
        yield
    finally:
        os.close(handle)


def _wait_for(handle: int, folder: Path, journal: Journal, until: float) -> None:
    told = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise Failure(f"another run holds {folder}/lock and does not end") from None
            if not told:
                journal.event("info", "waiting", message="another run is on this node")
            told = True
            time.sleep(0.1)
