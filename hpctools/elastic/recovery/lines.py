"""Log rules against lines, in the agent's matcher: what the coordinator is told is counts and numbers.

A line never leaves its node but as the example of a match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpctools.elastic.recovery.settings import LogRule

LINE_LENGTH = 4096
QUOTE_LENGTH = 300
STRIKES = 3
WORDS = 10
"""So many captures without a single number among them are told: nothing could ever be judged."""

Search = Callable[["re.Pattern[str]", str], "re.Match[str] | None"]


class TooSlow(Exception):
    """An expression needed more time for a line than it may take."""


def plain(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    """The match at the beginning of the line, without a limit of time."""
    return pattern.match(line)


@dataclass
class _Count:
    matched: int = 0
    value: float | None = None
    streak: int = 0
    worst: int = 0
    stopped: bool = False
    line: str = ""
    fresh: bool = False

    def take(self) -> dict[str, Any]:
        """What happened since the last time."""
        metrics = {"matched": float(self.matched), "streak": float(self.worst)}
        metrics |= {"value": self.value} if self.value is not None else {}
        metrics |= {"stopped": 1.0} if self.stopped else {}
        told = {"metrics": metrics, "lines": [self.line[:QUOTE_LENGTH]]}
        # A row that is told already is no longer the longest: a sound line after it would tell it again.
        self.matched, self.worst, self.fresh = 0, 0, False
        return told


@dataclass
class _Rule:
    rule: LogRule
    pattern: re.Pattern[str]
    stop: re.Pattern[str] | None
    strikes: int = 0
    words: int = 0  # captured before the first number
    counts: dict[str, _Count] = field(default_factory=dict)


class LineRules:
    """The rules of one node.

    Args:
        search: matches within a time limit, or raises TooSlow.
    """

    def __init__(self, rules: Sequence[LogRule], search: Search = plain) -> None:
        self._search = search
        self._rules = [
            _Rule(
                rule, re.compile(rule.pattern), re.compile(rule.stop_pattern) if rule.stop_pattern else None
            )
            for rule in rules
        ]
        self._apart: list[dict[str, Any]] = []  # messages about rules that are of no use

    def feed(self, worker: str, line: str) -> None:
        """A worker has printed a line; only its first 4096 characters are looked at."""
        for rule in self._rules:
            if rule.strikes < STRIKES:
                self._apply(rule, worker, line[:LINE_LENGTH])

    def take(self) -> list[dict[str, Any]]:
        """Messages about what happened since the last time, one for each rule and worker."""
        told, self._apart = self._apart, []
        for rule in self._rules:
            for worker, count in rule.counts.items():
                if count.fresh:
                    told.append({"worker": worker, "what": rule.rule.name, **count.take()})
        return told

    def _apply(self, rule: _Rule, worker: str, line: str) -> None:
        count = rule.counts.setdefault(worker, _Count())
        if count.stopped:
            return
        try:
            match = self._search(rule.pattern, line)
            ends = rule.stop is not None and self._search(rule.stop, line) is not None
        except TooSlow:
            self._strike(rule, worker, line)
            return
        if match is not None:
            count.matched, count.line, count.fresh = count.matched + 1, line, True
            self._measure(rule, worker, count, match)
        if ends:
            count.stopped, count.fresh, count.line = True, True, line

    def _measure(self, rule: _Rule, worker: str, count: _Count, match: re.Match[str]) -> None:
        if not match.re.groups:
            return
        count.value = _number(match.group(1))
        if count.value is None:
            self._note_word(rule, worker, count.line)
            return
        rule.words = WORDS
        threshold = rule.rule.threshold
        bad = threshold.is_bad(count.value) if threshold else abs(count.value) == float("inf")
        bad = bad or count.value != count.value
        count.streak = count.streak + 1 if bad else 0
        count.worst = max(count.worst, count.streak)
        if threshold is not None and count.streak >= threshold.points:
            count.streak = 0  # found: so many more make the next finding

    def _note_word(self, rule: _Rule, worker: str, line: str) -> None:
        rule.words += 1
        if rule.words == WORDS and _is_for_numbers(rule.rule):
            self._tell_apart("no_number", rule, worker, line)

    def _strike(self, rule: _Rule, worker: str, line: str) -> None:
        rule.strikes += 1
        if rule.strikes == STRIKES:
            self._tell_apart("given_up", rule, worker, line)

    def _tell_apart(self, mark: str, rule: _Rule, worker: str, line: str) -> None:
        told = {"metrics": {mark: 1.0}, "lines": [line[:QUOTE_LENGTH]]}
        self._apart.append({"worker": worker, "what": rule.rule.name, **told})


def _is_for_numbers(rule: LogRule) -> bool:
    """Whether a rule finds less than it was written for, or nothing, when it captures no number."""
    timed = rule.start_s is not None or rule.every_s is not None
    return rule.threshold is not None or not (timed or rule.fault)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
