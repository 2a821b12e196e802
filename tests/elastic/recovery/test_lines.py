"""Log rules against lines, in this process and in the real matcher beside an agent."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hpctools.elastic.recovery import listening
from hpctools.elastic.recovery.lines import LineRules
from hpctools.elastic.recovery.listening import Listener
from hpctools.elastic.recovery.matcher import rules_from_text, rules_to_text
from hpctools.elastic.recovery.settings import OPERATORS, LogRule, Threshold, holds
from hpctools.errors import CommandError

LIMIT = 90.0  # seconds, of any wait: the matcher is a process of its own, and others work here, too
LOSS = LogRule("loss", r".*loss=(\S+)", threshold=Threshold(2.5, "gt", 3))
CATASTROPHIC = LogRule("catastrophic", r"(?:a+)+$")
Message = dict[str, Any]


def feed(rules: LineRules, *lines: str, worker: str = "b0.0.0") -> None:
    for line in lines:
        rules.feed(worker, line)


def test_counts_and_the_longest_row_of_bad_values() -> None:
    rules = LineRules([LOSS])
    feed(rules, "loss=2.4", "step 3", "loss=2.6", "loss=2.7", "loss=1", "loss=9e9")
    assert rules.take() == [
        {
            "worker": "b0.0.0",
            "what": "loss",
            "metrics": {"matched": 5.0, "streak": 2.0, "value": 9e9},
            "lines": ["loss=9e9"],
        }
    ]
    assert rules.take() == []
    feed(rules, "loss=3", "loss=3")
    (message,) = rules.take()
    assert message["metrics"]["streak"] == 3.0, "a row goes on over what was told already"


def streaks(rules: LineRules, *lines: str) -> list[float]:
    """What is told after each of the lines."""
    told = []
    for line in lines:
        feed(rules, line)
        told += [message["metrics"]["streak"] for message in rules.take()]
    return told


def test_a_row_is_told_once_and_no_sound_line_tells_it_again() -> None:
    assert streaks(LineRules([LOSS]), "loss=3", "loss=3", "loss=3", "loss=1", "loss=1") == [1, 2, 3, 0, 0]
    assert streaks(LineRules([LogRule("loss", r"loss=(\S+)")]), "loss=nan", "loss=1") == [1, 0]


def test_what_stays_bad_is_found_after_so_many_more() -> None:
    assert streaks(LineRules([LOSS]), *["loss=3"] * 7) == [1, 2, 3, 1, 2, 3, 1]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-inf", "Infinity"])
def test_what_is_not_finite_is_never_healthy(operator: str, text: str) -> None:
    """HyperPod's agent compares integers: there, nan is healthy."""
    for threshold in (Threshold(0.0, operator), None):
        rules = LineRules([LogRule("loss", r".*loss=(\S+)", threshold=threshold)])
        feed(rules, f"step 7 loss={text}")
        (message,) = rules.take()
        assert message["metrics"]["streak"] == 1.0


def test_float_thresholds() -> None:
    assert [holds(2.5, operator, 2.5) for operator in OPERATORS] == [False, False, True, True, True]
    assert [holds(2.4, operator, 2.5) for operator in OPERATORS] == [False, True, False, False, True]
    assert [holds(2.6, operator, 2.5) for operator in OPERATORS] == [True, False, False, True, False]


def test_a_pattern_matches_from_the_beginning_as_in_hyperpod() -> None:
    rules = LineRules([LogRule("start", "begin")])
    feed(rules, "we begin")
    assert rules.take() == []


def test_workers_are_told_apart_and_a_word_is_no_number() -> None:
    rules = LineRules([LOSS])
    feed(rules, "loss=3", "loss=unknown", worker="b0.0.0")
    feed(rules, "loss=3", worker="b1.0.0")
    told = {message["worker"]: message["metrics"] for message in rules.take()}
    assert told == {
        "b0.0.0": {"matched": 2.0, "streak": 1.0},
        "b1.0.0": {"matched": 1.0, "streak": 1.0, "value": 3.0},
    }


WORD = LogRule("loss", r".*loss: (\S+)", threshold=Threshold(2.5, "gt"))


@pytest.mark.parametrize("rule", [WORD, replace(WORD, threshold=None)])
def test_a_rule_that_captures_a_comma_with_its_numbers_is_told_once(rule: LogRule) -> None:
    """Not even `nan,` is judged, and nobody would know."""
    rules = LineRules([rule])
    feed(rules, *["loss: nan, lr: 1"] * 9)
    assert [each["metrics"] for each in rules.take()] == [{"matched": 9.0, "streak": 0.0}]
    feed(rules, *["loss: nan, lr: 1"] * 50)
    said, _ = rules.take()
    assert said == {
        "worker": "b0.0.0",
        "what": "loss",
        "metrics": {"no_number": 1.0},
        "lines": ["loss: nan, lr: 1"],
    }
    feed(rules, *["loss: nan, lr: 1"] * 50)
    assert len(rules.take()) == 1


@pytest.mark.parametrize(
    ("rule", "first"), [(replace(WORD, threshold=None, start_s=9.0), "loss: nan,"), (WORD, "loss: 1")]
)
def test_who_does_not_need_numbers_or_has_had_one_is_told_nothing(rule: LogRule, first: str) -> None:
    rules = LineRules([rule])
    feed(rules, first, *["loss: nan,"] * 50)
    assert len(rules.take()) == 1


def test_a_stop_pattern_ends_the_rule_for_good() -> None:
    rules = LineRules([LogRule("loss", r"loss=(\S+)", stop_pattern="done")])
    feed(rules, "loss=1", "done", "loss=nan")
    (message,) = rules.take()
    assert message["metrics"] == {"matched": 1.0, "streak": 0.0, "value": 1.0, "stopped": 1.0}
    feed(rules, "loss=nan")
    assert rules.take() == []


def test_rules_travel_to_the_matcher_whole() -> None:
    rules = (
        LOSS,
        CATASTROPHIC,
        LogRule("x", "é\t\"'", start_s=0.5, every_s=2.0, stop_pattern="b", fault=True),
    )
    assert rules_from_text(rules_to_text(rules)) == rules


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def heard(
    rules: list[LogRule],
    speak: Callable[[Listener], None],
    enough: Callable[[list[Message]], bool],
    limit: float = LIMIT,
) -> list[Message]:
    """What a real matcher tells of what is spoken; ends when that is enough."""
    told: list[Message] = []
    came = asyncio.Event()

    def say(kind: str, **message: Any) -> None:
        assert kind == "log"
        told.append(message)
        came.set()

    listener = Listener(rules, say)
    keeping = asyncio.ensure_future(listener.keep())
    try:
        await asyncio.wait_for(listener.listening.wait(), limit)
        speak(listener)
        deadline = time.monotonic() + limit
        while not enough(told):
            await asyncio.wait_for(came.wait(), deadline - time.monotonic())
            came.clear()
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
    return told


def test_an_expression_that_backtracks_for_ever_is_given_up_and_the_agent_never_waits() -> None:
    """Other rules go on; the agent's loop turns while the matcher works, and does none of its work."""

    def speak(listener: Listener) -> None:
        for _ in range(4):
            listener.heard("b0.0.0", 1, b"a" * 60 + b"!\nloss=7.5\n")

    async def scene() -> tuple[list[Message], int, float]:
        turns, longest, ended = 0, 0.0, False

        async def turn() -> None:
            nonlocal turns, longest
            while not ended:
                before = time.thread_time()
                await asyncio.sleep(0.01)
                turns, longest = turns + 1, max(longest, time.thread_time() - before)

        turning = asyncio.ensure_future(turn())
        told = await heard(
            [CATASTROPHIC, LOSS],
            speak,
            lambda told: (
                {"catastrophic", "loss"} <= {message["what"] for message in told}
                and sum(message["metrics"].get("matched", 0) for message in told) == 4
            ),
        )
        ended = True
        await turning
        return told, turns, longest

    told, turns, longest = asyncio.run(scene())
    (given_up,) = [message for message in told if message["what"] == "catastrophic"]
    assert given_up["metrics"] == {"given_up": 1.0}
    assert [message["metrics"]["value"] for message in told if message["what"] == "loss"][-1] == 7.5
    assert turns >= 5
    assert longest < 0.5, "seconds of the processor: the expression alone would take for ever"


def test_lines_come_in_pieces_with_carriage_returns_and_without_an_end() -> None:
    def speak(listener: Listener) -> None:
        for piece in (b"lo", b"ss=1\rloss=", b"2\n", b"loss=nan"):
            listener.heard("b0.0.0", 2, piece)
        listener.heard("b0.0.0", 2, b"")
        listener.heard("b0.0.1", 1, b"x" * 100_000 + b" loss=5\nloss=4\n")

    told = asyncio.run(
        heard([LOSS], speak, lambda told: sum(message["metrics"]["matched"] for message in told) >= 4)
    )
    of = {message["worker"]: message["metrics"] for message in told}
    assert of["b0.0.0"]["matched"] == 3.0
    assert math.isnan(of["b0.0.0"]["value"])
    assert of["b0.0.1"]["matched"] == 1.0, "only the first 4096 characters of a line are looked at"


def test_what_is_said_before_the_matcher_is_there_waits_for_it() -> None:
    async def scene() -> list[Message]:
        told: list[Message] = []
        listener = Listener([LOSS], lambda kind, **message: told.append(message))
        listener.heard("b0.0.0", 1, b"loss=1\nloss=2\n")
        keeping = asyncio.ensure_future(listener.keep())
        await until(lambda: bool(told))
        keeping.cancel()
        await asyncio.wait([keeping])
        return told

    (message,) = asyncio.run(scene())
    assert message["metrics"] == {"matched": 2.0, "streak": 0.0, "value": 2.0}


def test_lines_that_nobody_can_take_are_confessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The matcher is behind; a rule must not count that as silence."""
    monkeypatch.setattr(listening, "BACKLOG", 10)
    monkeypatch.setattr(listening, "DROPPED_SECONDS", 0.05)
    told: list[Message] = []

    async def scene() -> None:
        listener = Listener([LOSS], lambda kind, **message: told.append(message))
        listener.heard("b0.0.0", 1, b"loss=1\nloss=2\nloss=3\n")
        await until(lambda: bool(told))

    asyncio.run(scene())
    assert told == [{"worker": "", "what": "", "metrics": {"dropped": 2.0}, "lines": []}]


def test_a_matcher_that_is_killed_with_lines_unread_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is what it had not looked at taken for silence."""
    monkeypatch.setattr(listening, "RESTART_SECONDS", 0.05)
    started, start = [], listening.run.start
    monkeypatch.setattr(listening.run, "start", lambda *a, **k: started.append(start(*a, **k)) or started[-1])
    told: list[Message] = []

    async def scene() -> None:
        listener = Listener([LOSS], lambda kind, **message: told.append(message))
        keeping = asyncio.ensure_future(listener.keep())
        listener.heard("b0.0.0", 1, b"loss=1\n")
        await until(lambda: len(told) == 1)
        os.kill(started[0].pid, signal.SIGSTOP)
        listener.heard("b0.0.0", 1, b"loss=2\n")
        os.kill(started[0].pid, signal.SIGKILL)
        await until(lambda: len(started) == 2)
        listener.heard("b0.0.0", 1, b"loss=3\n")
        await until(lambda: len(told) == 3)
        keeping.cancel()
        await asyncio.wait([keeping])

    asyncio.run(scene())
    assert [each["metrics"].get("value") for each in told] == [1.0, None, 3.0]
    assert told[1] == {"worker": "", "what": "", "metrics": {"dropped": 1.0}, "lines": []}


class Matchers:
    """Stands for what starts matchers: each lives for so long, on a clock that stands still otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lives: float) -> None:
        self.now, self.pauses, self.told = 0.0, list[float](), list[tuple[str, Message]]()
        self._lives = iter(lives)
        self.listener = Listener([LOSS], lambda kind, **message: self.told.append((kind, message)))
        monkeypatch.setattr(listening, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(listening.asyncio, "sleep", self._sleep)
        monkeypatch.setattr(self.listener, "_have_matched", self._have_matched)
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self.listener.keep())

    async def _have_matched(self) -> None:
        life = next(self._lives, None)
        if life is None:
            raise asyncio.CancelledError
        self.now += life
        raise CommandError("cannot start python", argv=["python"], code=None)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def warnings(self) -> int:
        return len([kind for kind, _ in self.told if kind == "warning"])


def test_a_matcher_that_ends_at_once_is_tried_ever_later_and_no_rule_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On other nodes the rules go on; here nobody looks at what is printed, and no rule may count on it."""
    matchers = Matchers(monkeypatch, *[0.0] * 9)
    assert matchers.pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert matchers.warnings() == 1
    assert not any("given_up" in message.get("metrics", {}) for _, message in matchers.told)
    assert matchers.listener.over == {}
    assert not any(kind == "log" for kind, _ in matchers.told), "nobody has printed, so nothing was lost"

    async def prints() -> None:
        matchers.listener.heard("b0.0.0", 1, b"loss=1\nloss=2\n")
        matchers.listener._confess()

    asyncio.run(prints())
    assert matchers.told[-1][1]["metrics"] == {"dropped": 2.0}


def test_a_matcher_that_has_lived_for_long_is_started_again_at_once_however_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process in months of training, once a week: no reason to do without."""
    matchers = Matchers(monkeypatch, 0.0, 0.0, *[listening.LIVED_SECONDS] * 5)
    assert matchers.pauses == [1.0, 2.0, *[1.0] * 5]
    assert matchers.warnings() == 0


def test_the_agents_hello_tells_which_rules_are_over() -> None:
    """What it told when they ended may have found no coordinator."""
    kept: list[Listener] = []

    def speak(listener: Listener) -> None:
        kept.append(listener)
        for _ in range(4):
            listener.heard("b0.0.0", 1, b"a" * 60 + b"!\nloss=7\ndone\n")

    rules = [CATASTROPHIC, replace(LOSS, stop_pattern="done")]
    asyncio.run(heard(rules, speak, lambda told: len(kept[0].over) == 2))
    (listener,) = kept
    assert {name: each["metrics"] for name, each in listener.over.items()} == {
        "catastrophic": {"given_up": 1.0},
        "loss": {"stopped": 1.0},
    }
