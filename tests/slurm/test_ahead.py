"""What slurmdbd is asked before the site is read."""

import threading
from collections import Counter
from collections.abc import Sequence

import pytest

from hpctools.conf.live import read_live
from hpctools.errors import CommandError
from hpctools.slurm.account_questions import NAMES, live_queries
from hpctools.slurm.ahead import Ahead, in_parts

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
    first = Counter([*questions, ("sacctmgr", "-nP", *NAMES)])
    for _ in range(first.total()):
        assert all_asked.acquire(timeout=LIMIT)
    assert asked == first
    assert [ahead(list(argv)) for argv in questions] == ["|".join(argv) for argv in questions]
    assert asked == first
    # An answer is of its time: the next time it is asked for anew, as is everything else.
    assert ahead(questions[0]) == "|".join(questions[0])
    assert ahead(("scontrol", "ping")) == "scontrol|ping"
    assert asked == first + Counter([questions[0], ("scontrol", "ping")])


def test_a_slurmdbd_that_is_down_is_told_to_whoever_wants_the_answer() -> None:
    def ask(argv: Sequence[str]) -> str:
        raise CommandError("slurmdbd is down", argv=argv, code=1)

    ahead = Ahead(ask)
    with pytest.raises(CommandError, match="slurmdbd is down"):
        read_live(lambda argv: ahead(("sacctmgr", "-nP", *argv)))


QUESTIONS = {query[1]: ("sacctmgr", "-nP", *query) for query in live_queries()}


def people(argv: Sequence[str]) -> list[str]:
    """Who is named in a question; nobody: all are meant."""
    return [name for word in argv if word.startswith("name=") for name in word[5:].split(",")]


def test_many_people_are_asked_for_in_parts_and_everybody_once() -> None:
    everybody = [f"u{number}" for number in range(500)]

    def ask(argv: Sequence[str]) -> str:
        if tuple(argv[2:]) == NAMES:
            return "".join(f"{user}\n" for user in everybody)
        return "".join(f"{user}|lab|\n" for user in people(argv))

    told = Ahead(ask)(QUESTIONS["user"]).splitlines()
    assert sorted(told) == sorted(f"{user}|lab|" for user in everybody)


@pytest.mark.parametrize("odd", ["u|1", "a,b", "d'arc", "x y"])
def test_few_people_and_odd_names_are_asked_for_at_once(odd: str) -> None:
    argv = QUESTIONS["user"]
    assert in_parts(argv, [f"u{number}" for number in range(100)]) == [argv]
    assert in_parts(argv, [*(f"u{number}" for number in range(500)), odd]) == [argv]


def test_a_part_is_no_longer_than_an_argument_may_be() -> None:
    everybody = [f"{number:032}" for number in range(20_000)]
    parts = in_parts(QUESTIONS["user"], everybody)
    assert sorted(name for part in parts for name in people(part)) == everybody
    assert max(len(word) for part in parts for word in part) < 131_072
    assert all(
        [word for word in part if not word.startswith("name=")] == [*QUESTIONS["user"]] for part in parts
    )


def test_a_slurmdbd_that_does_not_answer_is_not_tried_again() -> None:
    asked: list[tuple[str, ...]] = []

    def ask(argv: Sequence[str]) -> str:
        asked.append(tuple(argv))
        raise CommandError("no answer", argv=argv, code=1)

    with pytest.raises(CommandError, match="no answer"):
        Ahead(ask)(QUESTIONS["user"])
    assert [argv[2:] for argv in asked if argv[3] == "user"] == [NAMES]
