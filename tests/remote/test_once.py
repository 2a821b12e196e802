"""A submission is made exactly once, wherever its process is killed, and however late Slurm answers."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.errors import RemoteError, UnreachableError
from hpctools.remote import submissions
from hpctools.remote.once import SETTLE_SECONDS, Answer, Job, Once, Refused
from hpctools.remote.receiving import Reception
from hpctools.remote.submissions import Claim, Record, Submission

NAME = "train-0123456789ab"


class Killed(BaseException):
    """kill -9: no handler of ours runs, but those of the test."""


@dataclass
class World:
    """A Slurm, and a clock; the process that is at work is killed after so many steps.

    Attributes:
        jobs: when each appeared in the queue.
        still_until: so long slurmctld stands still; what was sent to it waits.
        claims: when each was taken.
        planning: seconds that hp-submit asks Slurm before it starts sbatch.
        forgotten: how often what was left has been removed.
    """

    left: int = 10**9
    time: float = 1000.0
    delay: float = 0.0
    answer: Answer | None = None
    jobs: list[float] = field(default_factory=list)
    still_until: float = 0.0
    claims: dict[str, float] = field(default_factory=dict)
    planning: float = 0.0
    forgotten: int = 0

    def step(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def submit(self, record: Record, lock: int, go_on: Callable[[], None]) -> Answer:
        self.step()
        self.time += self.planning
        try:
            go_on()
        except RemoteError as error:
            return Answer(1, None, "", f"hp-submit: {error.message}")
        if self.answer is not None and self.answer.code and "timed out" not in self.answer.stderr:
            return self.answer
        self.jobs.append(max(self.time, self.still_until) + self.delay)
        self.step()
        return self.answer or Answer(0, Job(7))

    def find(self, record: Record) -> Job | None:
        self.step()
        if self.still_until - self.time > 10:
            self.time += 10
            raise UnreachableError("Slurm does not answer", "")
        self.time = max(self.time, self.still_until)
        return Job(7) if any(each <= self.time for each in self.jobs) else None

    def forget(self, record: Record) -> None:
        self.step()
        self.forgotten += 1

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@dataclass(frozen=True)
class Watched(Submission):
    """A submission whose every write may be the last thing that is done, or that is not."""

    world: World

    def write(self, record: Record) -> Record:
        self.world.step()
        written = super().write(record)
        self.world.step()
        return written

    def claim(self, name: str) -> Claim:
        self.world.step()
        claim = super().claim(name)
        at = self.world.claims.setdefault(name, self.world.time)
        self.world.step()
        return replace(claim, at=at)

    def now(self) -> float:
        return self.world.time


class Unlocked(Watched):
    """On a file system whose locks hold for one node: Lustre's localflock, NFS without locks."""

    @contextmanager
    def locked(self, waiting: Callable[[], None], seconds: float = 0) -> Iterator[int]:
        yield 0


def attempt(
    folder: Path, world: World, request: str = "r", kind: type[Watched] = Watched, **again: Any
) -> tuple[Record, bool]:
    submission = kind(folder / NAME, world)

    def receive(reception: Reception) -> None:
        world.step()

    once = Once(submission, world, receive, lambda: None, world.sleep, **again)
    return once.make(Record(NAME, request), Reception(submission, ()))


@given(st.lists(st.integers(0, 11), max_size=4), st.floats(0, SETTLE_SECONDS - 1), st.floats(0, 60))
@settings(deadline=None)
def test_killed_anywhere_and_asked_again_there_is_one_job(
    kills: list[int], delay: float, pause: float
) -> None:
    """A job that a killed process submitted appears in the queue up to 14 s later."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(delay=delay)
        for steps in kills:
            world.left = steps
            try:
                attempt(Path(folder), world)
            except Killed:
                world.time += pause
        world.left = 10**9
        record, _ = attempt(Path(folder), world)
        assert (record.state, record.job_id, len(world.jobs)) == ("submitted", 7, 1)
        again, before = attempt(Path(folder), world)
        assert (again, before, len(world.jobs)) == (record, True, 1)


@given(st.floats(0, 200), st.floats(0, SETTLE_SECONDS - 1), st.floats(0, 60))
@settings(deadline=None)
def test_a_slurmctld_that_stands_still_takes_up_one_job(still: float, delay: float, pause: float) -> None:
    """The request of a login node that died waits there, longer than anybody waits for the job."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(delay=delay)
        world.still_until = world.time + still
        world.left = 6  # right after the request went out
        with pytest.raises(Killed):
            attempt(Path(folder), world)
        assert len(world.jobs) == 1
        world.left = 10**9
        world.time += pause
        for _ in range(30):
            with suppress(UnreachableError):
                record, _ = attempt(Path(folder), world)
                break
        assert (record.job_id, len(world.jobs)) == (7, 1)


def test_a_request_that_is_an_hour_old_is_not_waited_for(tmp_path: Path) -> None:
    """slurmctld takes none whose credential has expired."""
    world = World(left=5)
    with pytest.raises(Killed):
        attempt(tmp_path, world)
    world.left, world.time = 10**9, world.time + 3700
    begun = world.time
    assert attempt(tmp_path, world)[0].job_id == 7
    assert world.time == begun


def test_two_on_two_nodes_whose_locks_hold_for_one_make_one_job(tmp_path: Path) -> None:
    """One is at it between the other's look and its mark."""
    world = World()

    class Overtaken(Unlocked):
        def write(self, record: Record) -> Record:
            if not world.jobs:
                attempt(tmp_path, world, kind=Unlocked)
            return super().write(record)

    with pytest.raises(RemoteError, match=f"was not submitted now: .*--submission {NAME}"):
        attempt(tmp_path, world, kind=Overtaken)
    record, before = attempt(tmp_path, world)
    assert (record.job_id, before, len(world.jobs)) == (7, True, 1)


def test_who_was_overtaken_before_sbatch_submits_and_removes_nothing(tmp_path: Path) -> None:
    """hp-submit asks Slurm for long, and its signs of life are not seen: another node finds no job."""

    class Asking(World):
        is_other = False

        def submit(self, record: Record, lock: int, go_on: Callable[[], None]) -> Answer:
            if not self.is_other:
                self.is_other = True
                attempt(tmp_path, self, kind=Unlocked)
            return super().submit(record, lock, go_on)

    world = Asking()
    with pytest.raises(RemoteError, match=f"another connection .*--submission {NAME}"):
        attempt(tmp_path, world, kind=Unlocked)
    assert (len(world.jobs), world.forgotten) == (1, 1)
    assert attempt(tmp_path, world)[0].job_id == 7
    assert len(world.jobs) == 1


@pytest.mark.parametrize("no", [False, True])
def test_who_asks_slurm_for_long_before_sbatch_marks_it_anew(tmp_path: Path, no: bool) -> None:
    """Others count from there, and sbatch has its time."""
    refusal = Answer(1, None, "", "sbatch: error: Invalid account")
    world = World(planning=20.0, answer=refusal if no else None)
    with pytest.raises(Refused) if no else nullcontext():
        attempt(tmp_path, world)
    assert list(world.claims.values()) == [1000.0, 1020.0]
    assert (len(world.jobs), world.forgotten) == ((0, 1) if no else (1, 0))


@pytest.mark.parametrize("through", [False, True])
def test_who_shows_signs_of_life_is_waited_for(tmp_path: Path, through: bool) -> None:
    """Its sbatch takes 40 s: then there is the job, or whoever started it is dead, too."""

    class Living(World):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.time < 1040.0:
                os.utime(tmp_path / NAME / ".hpctools/record.json", (self.time, self.time))
            elif through and not self.jobs:
                self.jobs.append(self.time)

    world = Living(left=5)
    with pytest.raises(Killed):
        attempt(tmp_path, world)
    world.left = 10**9
    record, before = attempt(tmp_path, world, kind=Unlocked)
    assert (record.job_id, before, len(world.jobs)) == (7, through, 1)
    assert world.forgotten == (0 if through else 1)
    assert through or 1040.0 + SETTLE_SECONDS - 2 < world.time < 1040.0 + SETTLE_SECONDS + 2


def test_who_waits_for_another_one_hears_when_that_one_is_done(tmp_path: Path) -> None:
    other = Submission(tmp_path / NAME)

    class Done(World):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            other.write(Record(NAME, "r", state="submitted", job_id=7))

    world = Done(left=5)
    with pytest.raises(Killed):
        attempt(tmp_path, world)
    world.left = 10**9
    with pytest.raises(RemoteError, match=f"another connection .*--submission {NAME}"):
        attempt(tmp_path, world, kind=Unlocked)
    assert (world.jobs, world.forgotten, world.time < 1005) == ([], 0, True)


def test_signs_of_life_are_shown_as_long_as_it_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "_SIGN_SECONDS", 0.01)
    submission = Submission(tmp_path / NAME)

    class Watching(World):
        def submit(self, record: Record, lock: int, go_on: Callable[[], None]) -> Answer:
            first, end = submission.touched(), time.monotonic() + 30
            while submission.touched() == first:
                assert time.monotonic() < end
                time.sleep(0.01)
            assert submission.record() == record
            return super().submit(record, lock, go_on)

    assert attempt(tmp_path, Watching())[0].job_id == 7


def test_an_answer_that_got_lost_is_looked_for_in_the_queue(tmp_path: Path) -> None:
    """slurmctld took the job 12 s after sbatch had given up."""
    world = World(
        delay=12, answer=Answer(1, None, "", "sbatch: error: Socket timed out on send/recv operation")
    )
    record, _ = attempt(tmp_path, world)
    assert (record.state, record.job_id, len(world.jobs)) == ("submitted", 7, 1)


def test_a_refusal_is_told_at_once_and_may_be_tried_again(tmp_path: Path) -> None:
    no = Answer(1, None, "", "sbatch: error: invalid partition specified: nope")
    world = World(answer=no)
    with pytest.raises(Refused) as refused:
        attempt(tmp_path, world)
    assert (refused.value.answer, world.time, world.jobs) == (no, 1000.0, [])
    world.answer = None
    assert attempt(tmp_path, world)[0].job_id == 7


def test_an_id_stands_for_one_request(tmp_path: Path) -> None:
    world = World()
    attempt(tmp_path, world)
    with pytest.raises(RemoteError, match="is another submission's id"):
        attempt(tmp_path, world, request="something else")
    assert len(world.jobs) == 1


def test_two_at_the_same_time_are_one_after_the_other(tmp_path: Path) -> None:
    submission = Submission(tmp_path / NAME)
    submission.make()
    waited: list[int] = []
    note: Callable[[], None] = lambda: waited.append(1)  # noqa: E731
    with (
        submission.locked(note),
        pytest.raises(RemoteError, match="still at work"),
        submission.locked(note, seconds=0.15),
    ):
        pass
    assert waited
    with submission.locked(note, seconds=0):
        pass


def test_a_record_that_is_torn_stops_everything(tmp_path: Path) -> None:
    world = World()
    attempt(tmp_path, world)
    (tmp_path / NAME / ".hpctools/record.json").write_text('{"id": "tr')
    with pytest.raises(RemoteError, match="cannot read"):
        attempt(tmp_path, world)
    assert len(world.jobs) == 1


def test_a_slurm_that_does_not_answer_leaves_it_open_and_says_how_to_ask_again(tmp_path: Path) -> None:
    class Silent(World):
        def find(self, record: Record) -> Job | None:
            raise UnreachableError("Slurm does not answer", "check it with `scontrol ping`")

    world = Silent(answer=Answer(1, None, "", "sbatch: error: Socket timed out on send/recv operation"))
    with pytest.raises(UnreachableError, match=f"not known whether .*--submission {NAME}"):
        attempt(tmp_path, world)


def test_a_job_that_cannot_be_written_down_is_told_all_the_same(tmp_path: Path) -> None:
    """The quota ends between sbatch's answer and the record."""

    class Full(Submission):
        def write(self, record: Record) -> Record:
            if record.state == "submitted":
                raise RemoteError("cannot write the record: Disk quota exceeded", "free space")
            return super().write(record)

    world = World()
    once = Once(Full(tmp_path / NAME), world, lambda _: None, lambda: None, world.sleep)
    record, before = once.make(Record(NAME, "r"), Reception(once.submission, ()))
    assert (record.job_id, before, "Disk quota" in record.stderr) == (7, False, True)
    again, before = attempt(tmp_path, world)
    assert (again.job_id, before, len(world.jobs)) == (7, True, 1)


@pytest.mark.parametrize("when", ["before the mark", "after it"])
def test_who_sees_what_another_process_wrote_submits_nothing(tmp_path: Path, when: str) -> None:
    """A lock that holds for one node only keeps nobody on another node out."""
    world = World()
    other = Submission(tmp_path / NAME)

    class Crossed(Watched):
        def write(self, record: Record) -> Record:
            written = super().write(record)
            if when == "after it":
                other.write(record)
            return written

    def receive(reception: Reception) -> None:
        if when == "before the mark":
            other.write(Record(NAME, "r", state="submitting"))

    submission = Crossed(tmp_path / NAME, world)
    submission.make()
    other.write(Record(NAME, "r", state="submitting"))
    once = Once(submission, world, receive, lambda: None, world.sleep)
    with pytest.raises(RemoteError, match=f"another connection .*--submission {NAME}"):
        once.make(Record(NAME, "r"), Reception(submission, ()))
    assert (world.jobs, world.forgotten) == ([], 0), "what is there is the other one's"


def test_two_that_wrote_at_the_same_tick_of_the_clock_are_told_apart(tmp_path: Path) -> None:
    """Of a file system that counts whole seconds, both would find what they wrote themselves."""

    class Coarse(Submission):
        def now(self) -> float:
            return 1000.0

    one = Coarse(tmp_path / NAME)
    one.make()
    wanted = Record(NAME, "r", state="submitting")
    first, second = one.write(wanted), one.write(wanted)
    assert first != second == one.record()
    (one.own / "record.json").write_text(f'{{"id": "{NAME}", "request": "r", "marked": 3.0}}')
    assert one.record() == Record(NAME, "r", marked=3.0), "as an older release wrote it"


def test_who_stood_still_after_the_mark_submits_nothing(tmp_path: Path) -> None:
    """Others have waited for its job meanwhile, and may have submitted theirs."""
    world = World()

    class Frozen(Watched):
        def write(self, record: Record) -> Record:
            written = super().write(record)
            world.time += 20
            return written

    once = Once(Frozen(tmp_path / NAME, world), world, lambda _: None, lambda: None, world.sleep)
    with pytest.raises(RemoteError, match="stood still for 20 s"):
        once.make(Record(NAME, "r"), Reception(once.submission, ()))
    assert world.jobs == []
    record, before = attempt(tmp_path, world)
    assert (record.state, before, len(world.jobs)) == ("submitted", False, 1)


@pytest.mark.parametrize(("delay", "age"), [(0.0, 5.0), (14.0, 5.0), (14.0, 86400.0)])
def test_a_node_without_the_shared_home_makes_no_second_job(tmp_path: Path, delay: float, age: float) -> None:
    """login1 took it, and its answer was lost; the home of login2 is an empty local one. The last of several
    attempts may be younger than the first."""
    world = World(delay=delay)
    attempt(tmp_path / "shared", world)
    record, before = attempt(tmp_path / "local", world, again=True, age=age)
    assert (record.state, record.job_id, before, len(world.jobs)) == ("submitted", 7, True, 1)
    assert attempt(tmp_path / "local", world, again=True, age=age)[0].job_id == 7


def test_a_job_that_another_homes_node_made_after_a_no_here_is_found(tmp_path: Path) -> None:
    world = World(answer=Answer(1, None, "", "sbatch: error: invalid partition specified: nope"))
    with pytest.raises(Refused):
        attempt(tmp_path / "local", world)
    world.answer = None
    attempt(tmp_path / "shared", world)
    record, before = attempt(tmp_path / "local", world, again=True, age=5.0)
    assert (record.state, record.job_id, before, len(world.jobs)) == ("submitted", 7, True, 1)


def test_what_nobody_made_is_submitted_once_that_is_certain(tmp_path: Path) -> None:
    world = World()
    record, before = attempt(tmp_path, world, again=True, age=5.0)
    assert (record.job_id, before, len(world.jobs)) == (7, False, 1)
    assert world.time >= 1000.0 + SETTLE_SECONDS


def test_what_is_asked_for_the_first_time_waits_for_nothing(tmp_path: Path) -> None:
    """Nor is an id that the laptop does not know: it is looked for once."""
    world = World()
    assert attempt(tmp_path / "first", world)[1] is False
    assert attempt(tmp_path / "other", world, again=True)[1] is True
    assert (world.time, len(world.jobs)) == (1000.0, 1)
    assert attempt(tmp_path, World(), again=True)[1] is False


def test_what_a_later_release_wrote_is_read(tmp_path: Path) -> None:
    """On another login node, which said that nothing was submitted. But for a state that is not known."""
    world = World()
    record, _ = attempt(tmp_path, world)
    path = tmp_path / NAME / ".hpctools/record.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "colour": "red"}))
    assert attempt(tmp_path, world) == (record, True)
    path.write_text(json.dumps({**said, "state": "promised"}))
    with pytest.raises(RemoteError, match=r"its state is 'promised'; .* the same release") as error:
        attempt(tmp_path, world)
    assert "nothing was submitted" not in str(error.value)
    assert len(world.jobs) == 1
