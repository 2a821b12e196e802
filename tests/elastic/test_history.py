"""How a run went: every second while it is young, a bounded file for ever."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hpctools.elastic.effects import Formed
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.history import History, Moment
from hpctools.elastic.journal import FolderJournal
from tests.elastic.test_journal import SPEC

BEGIN = datetime(2026, 2, 3, 10, tzinfo=timezone.utc)


class Kept:
    """A file's moments, in memory."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.longest = 0

    def history(self) -> list[Moment]:
        return list(self.moments)

    def append_moment(self, moment: Moment) -> None:
        self.moments.append(moment)
        self.longest = max(self.longest, len(self.moments))

    def replace_history(self, moments: Sequence[Moment]) -> None:
        self.moments = list(moments)


def at(second: int) -> Moment:
    return Moment((BEGIN + timedelta(seconds=second)).isoformat(), second, 2, 1)


def second_of(moment: Moment) -> int:
    return moment.step


def test_a_young_run_has_every_second() -> None:
    kept = Kept()
    history = History(kept, most=64)
    for tenth in range(100):
        history.note(tenth / 10, at(tenth // 10))
    assert [second_of(each) for each in kept.moments] == list(range(10))


@given(most=st.integers(4, 40), seconds=st.integers(1, 3000), restarts=st.sets(st.integers(0, 3000)))
def test_any_run_is_covered_from_its_begin_to_its_end_by_few_moments(
    most: int, seconds: int, restarts: set[int]
) -> None:
    kept = Kept()
    history = History(kept, most)
    for second in range(seconds):
        if second in restarts:
            history = History(kept, most)  # another coordinator took over
        history.note(float(second), at(second))
    history.note(float(seconds), at(seconds), at_once=True)
    assert kept.longest <= most
    times = [second_of(each) for each in kept.moments]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (0, seconds)


def test_distances_double_and_stay_even() -> None:
    kept = Kept()
    history = History(kept, most=16)
    for second in range(200):
        history.note(float(second), at(second))
    assert [second_of(each) for each in kept.moments] == list(range(0, 200, 16))


def test_the_journal_writes_it_once_the_training_has_begun(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", SPEC)
    journal = FolderJournal(folder, SPEC)
    journal.flush(0.0)
    assert folder.history() == []
    journal.formed(Formed(1, ("a", "b"), (), 0, recovered=True), ["n1", "n2"])
    journal.change(step=3, loss=float("nan"), samples_per_second=12.5)
    journal.flush(1.0)
    journal.change(step=4, loss=0.5)
    journal.flush(1.5)
    journal.flush(1.6, at_once=True)
    seen = folder.history()
    assert [(each.step, each.size, each.nodes, each.samples_per_second) for each in seen] == [
        (3, 2, 2, 12.5),
        (4, 2, 2, 12.5),
    ]
    assert seen[1].loss == 0.5


def test_torn_and_foreign_lines_are_no_moments(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", SPEC)
    folder.append_moment(at(1))
    with (folder.path / "history.jsonl").open("a") as file:
        file.write('{"time": "yesterday", "step": 1, "size": 1, "nodes": 1}\n{"time": 3}\n[]\n{"time": "2026')
    assert folder.history() == [at(1)]
    folder.replace_history([at(1), at(2)])
    assert folder.history() == [at(1), at(2)]
