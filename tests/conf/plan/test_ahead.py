"""What slurmdbd is asked before the site is read."""

import threading
from collections import Counter
from collections.abc import Sequence

import pytest

from hpctools.conf.live import live_queries, read_live
from hpctools.conf.plan.ahead import Ahead
from hpctools.errors import CommandError

LIMIT = 20.0


def test_each_question_is_asked_once_and_before_anybody_wants_the_answer() -> None:
    asked: Counter[tuple[str, ...]] = Counter()
    all_asked = threading.Semaphore(0)

    def ask(argv: Sequence[str]) -> str:
        asked[tuple(argv)] += 1
        all_asked.release()
        return "|".join(argv)

    ahead = Ahead(ask)
    questions = [("sacctmgr", "-nP", *query) for query in live_queries()]
    for _ in questions:
        assert all_asked.acquire(timeout=LIMIT)
    assert asked == Counter(questions)
    assert [ahead(list(argv)) for argv in questions] == ["|".join(argv) for argv in questions]
    assert asked == Counter(questions)
    # An answer is of its time: the next time it is asked for anew, as is everything else.
    assert ahead(questions[0]) == "|".join(questions[0])
    assert ahead(("scontrol", "ping")) == "scontrol|ping"
    assert asked == Counter([*questions, questions[0], ("scontrol", "ping")])


def test_a_slurmdbd_that_is_down_is_told_to_whoever_wants_the_answer() -> None:
    def ask(argv: Sequence[str]) -> str:
        raise CommandError("slurmdbd is down", argv=argv, code=1)

    ahead = Ahead(ask)
    with pytest.raises(CommandError, match="slurmdbd is down"):
        read_live(lambda argv: ahead(("sacctmgr", "-nP", *argv)))
