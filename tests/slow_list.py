"""The tests that run with `--slow` only because of how long they take: slow_tests.txt."""

from __future__ import annotations

from pathlib import Path

SLOW_TESTS = Path(__file__).with_name("slow_tests.txt")


def slow_tests() -> list[str]:
    """`FILE::TEST` of each, without parameters, in the list's order."""
    return [line for line in SLOW_TESTS.read_text().splitlines() if line and not line.startswith("#")]
