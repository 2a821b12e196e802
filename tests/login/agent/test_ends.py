"""Sessions that end: what the kernel tells, and what the service hears of it."""

from __future__ import annotations

import resource
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from hpctools.errors import BudgetError, UnreachableError
from hpctools.login.agent import ends as ending
from hpctools.login.agent.door import Door
from hpctools.login.agent.ends import FEW, Ends
from hpctools.login.agent.processes import parse
from hpctools.login.agent.reporting import Reporter, Self
from tests.login.agent.made_agent import FakeSampler, FakeService, made_agent
from tests.login.node_processes import process, sample

FINE = {"taken": True, "lease_seconds": 30, "draining": False, "why": "", "end": []}
GRANTED = {"granted": True, "message": "", "sessions": []}
LIMIT = 20


class Sessions:
    """Processes that serve sessions, by a watch that tells of their ends."""

    def __init__(self, most: int | None = None) -> None:
        self.told: Queue[Sequence[str]] = Queue()
        self.ends = Ends(self.told.put, most)
        self.began: list[subprocess.Popen[bytes]] = []

    def begin(self) -> tuple[str, int, int]:
        """Its key, pid and start."""
        self.began.append(subprocess.Popen(["sleep", "600"]))
        pid = self.began[-1].pid
        started = parse(Path(f"/proc/{pid}/stat").read_text(), 0, "").started
        return f"{pid}-{started}", pid, started

    def watched(self) -> str:
        """The key of one that is watched."""
        one = self.begin()
        self.ends.watch(*one)
        return one[0]

    def next(self) -> Sequence[str]:
        return self.told.get(timeout=LIMIT)


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    with made() as found:
        yield found


@contextmanager
def made(most: int | None = None) -> Iterator[Sessions]:
    found = Sessions(most)
    found.ends.start()
    try:
        yield found
    finally:
        found.ends.stop()
        for each in found.began:
            each.kill()
            each.wait(LIMIT)


def test_an_end_is_told_at_once_and_once(sessions: Sessions) -> None:
    """Killed, and not yet asked for by its parent."""
    first, second = sessions.watched(), sessions.watched()
    sessions.began[0].kill()
    assert sessions.next() == [first]
    sessions.began[1].kill()
    assert sessions.next() == [second]
    assert sessions.told.empty()


def test_what_was_over_before_it_was_watched_is_told(sessions: Sessions) -> None:
    """Also where another process has its number now."""
    key, pid, started = sessions.begin()
    sessions.ends.watch("another's", pid, started - 1)
    assert sessions.next() == ["another's"]
    sessions.began[0].kill()
    sessions.began[0].wait(LIMIT)
    sessions.ends.watch(key, pid, started)
    assert sessions.next() == [key]


def test_a_session_whose_number_is_a_threads_by_now_is_over(sessions: Sessions) -> None:
    """pidfd_open(2) has an error of its own for it."""
    with ThreadPoolExecutor(1) as pool:
        sessions.ends.watch("a thread's", pool.submit(threading.get_native_id).result(), 1)
        assert sessions.next() == ["a thread's"]


def test_what_ends_soon_after_is_told_together(sessions: Sessions) -> None:
    """A whole class that leaves is two words, and the second comes after a pause."""
    keys = {sessions.watched() for _ in range(20)}
    begun = time.monotonic()
    for each in sessions.began:
        each.kill()
    told = [sessions.next()]
    while len({key for each in told for key in each}) < len(keys):
        told.append(sessions.next())
    assert {key for each in told for key in each} == keys
    assert sum(map(len, told)) == len(keys)
    assert len(told) - 1 <= (time.monotonic() - begun) / 0.2


def test_one_that_is_watched_twice_is_told_once(sessions: Sessions) -> None:
    one = sessions.begin()
    for _ in range(3):
        sessions.ends.watch(*one)
    sessions.began[0].kill()
    assert sessions.next() == [one[0]]
    other = sessions.watched()
    sessions.began[1].kill()
    assert sessions.next() == [other]


def test_no_more_are_watched_than_files_may_be_open() -> None:
    """The others are seen by the agent's looks; who ends makes room."""
    with made(most=1) as sessions:
        first, unseen = sessions.watched(), sessions.watched()
        sessions.began[1].kill()
        sessions.began[0].kill()
        assert sessions.next() == [first]
        third = sessions.watched()
        sessions.began[2].kill()
        assert sessions.next() == [third] != [unseen]


def test_an_error_of_the_telling_ends_no_watch() -> None:
    told: Queue[Sequence[str]] = Queue()

    def tell(keys: Sequence[str]) -> None:
        told.put(keys)
        raise TypeError("what nobody thought of")

    with made() as sessions:
        ends = Ends(tell)
        ends.start()
        try:
            for expected in ("first", "second"):
                _, pid, started = sessions.begin()
                ends.watch(expected, pid, started - 1)
                assert told.get(timeout=LIMIT) == [expected]
        finally:
            ends.stop()


def told_over(service: FakeService) -> list[str]:
    lease = "/v1/login/leases/login-1/"
    return [path.removeprefix(lease) for method, path, _ in service.asked if method == "DELETE"]


def test_the_service_hears_of_an_end_at_once(tmp_path: Path) -> None:
    """Of one that it never knew, too: it says so, and the next one is told all the same."""
    service = FakeService(FINE, BudgetError("api refuses (404): no session"), {})
    agent = made_agent(tmp_path, service=service)
    agent.leave(["uni-0a1b2c3d", "7-7"])
    assert told_over(service) == ["uni-0a1b2c3d", "7-7"]
    assert not agent.wake.is_set()


def test_many_ends_are_one_report(tmp_path: Path) -> None:
    service = FakeService(FINE)
    agent = made_agent(tmp_path, service=service)
    agent.leave([f"{n}-{n}" for n in range(FEW + 1)])
    assert told_over(service) == []
    assert agent.wake.is_set(), "the next look is now"


def test_while_the_service_is_away_nobody_waits_for_it(tmp_path: Path) -> None:
    """Each question to one that hangs takes seconds; the next report tells who is there."""
    service = FakeService(FINE, UnreachableError("gone"))
    agent = made_agent(tmp_path, service=service)
    agent.leave(["7-7", "8-8"])
    assert told_over(service) == ["7-7"]
    agent.look()
    agent.leave(["9-9"])
    assert told_over(service) == ["7-7"]


def test_a_service_that_is_slow_keeps_no_report_waiting(tmp_path: Path) -> None:
    """Eight answers of almost two seconds each would be a quarter of a minute without a look."""
    now = [3.0]

    class Slow(FakeService):
        def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
            now[0] += 1.9
            return super().ask(method, path, body)

    service = Slow(FINE, {})
    agent = made_agent(tmp_path)
    agent.reporter = Reporter(Self("login-1"), service, lambda: now[0])
    keys = [f"{n}-{n}" for n in range(FEW)]
    agent.leave(keys[:2])
    assert (told_over(service), agent.wake.is_set()) == (keys[:2], False)
    service.asked.clear()
    agent.leave(keys)
    assert (told_over(service), agent.wake.is_set()) == (keys[:2], True)


def test_half_of_the_files_are_for_sessions(tmp_path: Path) -> None:
    """The kernel's own table, which no filter of system calls hides; as any process sees its limits."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert ending._half_of_files() == max(256, soft // 2)
    table = tmp_path / "limits"
    for line, most in {"Max open files            4096                 524288               files": 2048,
                       "Max open files            unlimited            unlimited            files": 256,
                       "": 256}.items():  # fmt: skip
        table.write_text(f"Limit                     Soft Limit\n{line}\n")
        assert ending._half_of_files(table) == most
    assert ending._half_of_files(tmp_path / "none") == 256


def test_from_the_door_to_the_service(tmp_path: Path, sessions: Sessions) -> None:
    """Who was let in, and who a look has seen: by Session Manager, say."""
    service = FakeService(FINE, GRANTED, FINE, {})
    agent = made_agent(tmp_path, service=service)
    done: Queue[Sequence[str]] = Queue()

    def leave(keys: Sequence[str]) -> None:
        agent.leave(keys)
        done.put(keys)

    agent.ends = ends = Ends(leave)
    ends.start()
    try:
        key, _, _ = sessions.begin()
        Door(agent, service).answer({"ask": "lease", "user": "daemon", "claim": key}, 0)
        _, pid, started = sessions.begin()
        worker = process(pid, 1, 0, "ssm-session-worker uni-0a1b2c3d", name="ssm-sess", started=started)
        agent.sampler = FakeSampler(sample(worker, process(2**23, pid, 1, "sh")))  # type: ignore[assignment]
        agent.look()
        for number, name in enumerate([key, "uni-0a1b2c3d"]):
            sessions.began[number].kill()
            assert done.get(timeout=LIMIT) == [name]
        assert told_over(service) == [key, "uni-0a1b2c3d"]
        assert agent.claims.gone() == [key], "though its parent has not asked for it yet"
    finally:
        ends.stop()


def test_nobody_who_was_refused_is_told(tmp_path: Path, sessions: Sessions) -> None:
    service = FakeService(FINE, {**GRANTED, "granted": False, "message": "no"})
    agent = made_agent(tmp_path, service=service)
    agent.ends = sessions.ends
    key, _, _ = sessions.begin()
    Door(agent, service).answer({"ask": "lease", "user": "daemon", "claim": key}, 0)
    other = sessions.watched()
    for each in sessions.began:
        each.kill()
    assert sessions.next() == [other]
