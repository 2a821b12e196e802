"""Session Manager's sessions that begin on a drained node are told why and ended, where ssh is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.errors import UnreachableError
from hpctools.login.agent.agent import Agent
from hpctools.login.agent.door import Door
from hpctools.login.agent.drained import DrainFile
from hpctools.login.agent.processes import TICKS, Process
from hpctools.login.names import EVERYBODYS
from tests.login.agent.made_agent import FakeHands, FakeSampler, FakeService, made_agent
from tests.login.node_processes import BOOT, connection, process, sample

NOW = 2_000_000.0
FINE = {"taken": True, "draining": False, "why": "", "end": [], "tell": {}}
DRAIN = {**FINE, "draining": True, "why": "new kernel"}
AWAY = UnreachableError("the service does not answer", "see whether it runs")
DAEMON, BIN = 1, 2
"""Two accounts that every machine has."""
WORDS = (
    "login-1 takes no new sessions: new kernel. Please log in on another login node: hp-login finds one "
    "(hp-login --not login-1 where it comes back to this one). This session will be ended in some seconds."
)


def started(at: float) -> int:
    """Ticks of a process that began so many seconds after the agent's first look."""
    return round((NOW + at - BOOT) * TICKS)


def managed(pid: int, at: float, uid: int = DAEMON) -> tuple[Process, ...]:
    """A session of Session Manager's, at pts/PID."""
    title = f"ssm-session-worker uni-{pid}a"
    return (
        process(pid, 20, 0, title, name="ssm-session-wor", started=started(at)),
        process(pid + 1, pid, uid, "sh", name="sh", terminal=f"pts/{pid}", started=started(at)),
    )


class Course:
    """An agent that looks each ten seconds from 0 on, and is told of the drain when it looks at 10."""

    def __init__(self, folder: Path, *, notice: float = 0.0, lifted: bool = False) -> None:
        self.service = FakeService(FINE)
        self.hands = FakeHands(lifted)
        self.agent: Agent = made_agent(folder, service=self.service, lifted=lifted)
        self.agent.hands, self.agent.drain_notice = self.hands, notice
        self.clock = 0.0
        self.agent.drain_file = DrainFile(folder / "drain.json", lambda: self.clock)

    def look(self, at: float, *processes: Process, says: object = DRAIN) -> None:
        """Look at the node; the service answers a second later."""
        seen = sample(*processes, at=at, now=NOW + at)
        self.agent.sampler = FakeSampler(seen)  # type: ignore[assignment]
        self.service.answers = [says]
        self.clock = at + 1.0
        self.agent.look()

    def told_at(self, terminal: str) -> list[str]:
        return [words for where, words in self.hands.told if where == (terminal,)]


@pytest.fixture
def course(tmp_path: Path) -> Course:
    made = Course(tmp_path)
    made.look(0.0, says=FINE)
    made.look(10.0)
    return made


def test_who_begins_on_a_drained_node_is_told_and_ended_at_the_next_look(course: Course) -> None:
    late = managed(300, 15.0)
    course.look(20.0, *late)
    assert (course.hands.told, course.hands.ended) == ([(("pts/300",), WORDS)], [])
    course.look(30.0, *late)
    assert (course.hands.ended, course.agent.ended) == (["uni-300a"], 1)
    assert len(course.hands.told) == 1


def test_who_began_before_the_drain_stays_also_where_no_look_had_seen_them(course: Course) -> None:
    """The service's word is heard a second after the look at 10."""
    before = (*managed(100, 5.0), *managed(200, 9.0, BIN))
    for at in (20.0, 30.0, 40.0):
        course.look(at, *before)
    assert course.hands.ended == []
    assert [words.startswith("login-1 takes no new") for _, words in course.hands.told] == [True] * 2
    assert not any("will be ended" in words for _, words in course.hands.told)


def test_as_long_as_ssh_gets_in_they_do(tmp_path: Path) -> None:
    """Whom a balancer sent, say: the first ninety seconds."""
    course = Course(tmp_path, notice=90.0)
    course.look(0.0, says=FINE)
    course.look(10.0)
    early, late = managed(300, 98.0), managed(400, 103.0, BIN)
    for at in (105.0, 115.0, 125.0):
        course.look(at, *early, *late)
    assert (course.hands.ended, course.told_at("pts/400")) == (["uni-400a"] * 2, [WORDS])


@pytest.mark.parametrize("who", ["a session", "a tmux", "an administrator", "everybody's", "lifted"])
def test_who_may_come_all_the_same(tmp_path: Path, who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Course(tmp_path, lifted=who == "lifted")
    if who == "everybody's":
        monkeypatch.setattr("hpctools.login.agent.sessions.user_name", lambda uid: EVERYBODYS)
    if who == "an administrator":
        course.agent.exempt = lambda user: user == "daemon"
    there: tuple[Process, ...] = ()
    if who == "a session":
        there = connection(100, "daemon", DAEMON, "pts/1")
    elif who == "a tmux":
        there = (process(100, 1, DAEMON, "tmux new", name="tmux: server"),)
    course.look(0.0, *there, says=FINE)
    course.look(10.0, *there)
    for at in (20.0, 30.0):
        course.look(at, *there, *managed(300, 15.0))
    course.look(40.0, *managed(300, 15.0))
    assert course.hands.ended == [], "nor when what they came back to is over"


def test_neither_a_second_one_nor_a_tmux_in_it_is_something_to_come_back_to(course: Course) -> None:
    late = (*managed(300, 15.0), *managed(400, 16.0))
    tmux = process(500, 1, DAEMON, "tmux new", name="tmux: server", started=started(17.0))
    course.look(20.0, *late, tmux)
    course.look(30.0, *late, tmux)
    assert course.hands.ended == ["uni-300a", "uni-400a"]


def test_a_session_that_is_to_end_opens_the_door_to_nobody(course: Course) -> None:
    course.look(20.0, *managed(300, 15.0))
    answer = Door(course.agent, None).answer({"ask": "lease", "user": "daemon", "claim": "9-9"}, 0)
    assert answer["granted"] is False


def test_who_was_told_stays_when_the_node_is_given_back_meanwhile(course: Course) -> None:
    late = managed(300, 15.0)
    course.look(20.0, *late)
    course.look(30.0, *late, says=FINE)
    course.look(40.0, *late)
    course.look(50.0, *late)
    assert course.hands.ended == []


def test_it_holds_while_the_service_is_away_and_by_a_word_on_the_node(tmp_path: Path) -> None:
    course = Course(tmp_path)
    course.look(0.0, says=FINE)
    course.agent.drain(draining=True, why="new kernel")
    late = managed(300, 15.0)
    course.look(20.0, *late, says=AWAY)
    course.look(30.0, *late, says=AWAY)
    assert (course.hands.ended, course.told_at("pts/300")) == (["uni-300a"], [WORDS])


def test_one_that_is_one_too_many_as_well_is_told_and_ended_once(course: Course) -> None:
    late = managed(300, 15.0)
    over = {**DRAIN, "end": ["uni-300a"], "tell": {"uni-300a": "daemon: you have 4 sessions"}}
    course.look(20.0, *late, says=over)
    course.look(30.0, *late, says=over)
    assert course.hands.ended == ["uni-300a"]
    assert course.told_at("pts/300")[0] == "daemon: you have 4 sessions"
    assert WORDS not in course.told_at("pts/300")


def test_who_is_there_when_an_agent_begins_anew_stays(tmp_path: Path) -> None:
    """Nobody knows any more when they came: before the drain, perhaps."""
    Course(tmp_path).agent.drain(draining=True, why="new kernel")
    course = Course(tmp_path)
    course.agent.sample = None
    for at in (0.0, 10.0):
        course.look(at, *managed(300, -5.0))
    assert course.hands.ended == []


def test_of_whom_the_directory_says_nothing_now_is_not_ended(course: Course) -> None:
    """It restarts, and who comes to repair the node is an administrator by a group of it."""
    unsure = [True]
    course.agent.unsure = lambda user: unsure[0]
    late, later = managed(300, 15.0), managed(400, 32.0, BIN)
    course.look(20.0, *late)
    course.look(30.0, *late)
    unsure[0] = False
    course.look(40.0, *late, *later)
    course.look(50.0, *late, *later)
    assert (course.hands.ended, course.told_at("pts/400")) == (["uni-400a"], [WORDS])


def test_who_was_told_stays_when_nobody_is_sure_any_more(course: Course) -> None:
    course.look(20.0, *managed(300, 15.0))
    course.agent.unsure = lambda user: True
    course.look(30.0, *managed(300, 15.0))
    assert course.hands.ended == []
