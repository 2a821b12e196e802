"""Whole runs under random histories of resizes and crashes end with the undisturbed result, to the bit.

As many as fit into the time; `./dev bench exact` lives through more than fifty.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bench.histories import KINDS, History, all_lone, committed, differences, history, options_of, zygote

AT_A_TIME = 4
BUDGET_SECONDS = 45.0
MOST = 60
LEAST = len(KINDS)


@pytest.fixture(scope="module")
def command() -> Iterator[Callable[..., list[str]]]:
    with zygote() as launch:
        yield launch


@pytest.fixture(scope="module")
def lone(command: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    return all_lone(command, tmp_path_factory.mktemp("lone"))


@pytest.mark.timeout(300)
def test_random_histories_change_nothing(
    command: Callable[..., list[str]], lone: dict[Any, Any], tmp_path: Path
) -> None:
    """Map-style and streams, with and without loading processes; every kind at least once."""
    begun = time.monotonic()

    def one(seed: int) -> History | None:
        if seed >= LEAST and time.monotonic() - begun > BUDGET_SECONDS:
            return None
        return history(seed, command, tmp_path / str(seed), lone[options_of(seed)])

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        lived = [each for each in pool.map(one, range(MOST)) if each is not None]
    assert {each.seed: (each.events, each.problems) for each in lived if each.problems} == {}
    assert any(len(each.sizes) > 1 for each in lived), "no history had a resize"


def test_what_differs_is_found(lone: dict[Any, Any]) -> None:
    """The comparison itself: another loss, a weight, a sample left out or taken twice, a step too few."""
    ledger = lone[options_of(0)]
    assert differences(ledger, ledger) == []
    last = max(committed(ledger))

    def changed(condition: Callable[[dict[str, Any]], bool], **values: Any) -> list[str]:
        return differences([{**line, **values} if condition(line) else line for line in ledger], ledger)

    def is_result(line: dict[str, Any]) -> bool:
        return "loss" in line and line["step"] == 5

    (result,) = [line for line in ledger if is_result(line)]
    assert changed(is_result, loss=(1.0).hex()) == ["step 5 of lone has another result"]
    twice = [*result["committed"][1:], result["committed"][1]]
    assert len(changed(is_result, committed=twice)) == 2
    assert changed(lambda line: "final" in line, lr=[0.5]) == ["weights at the end of 1 workers"]
    assert changed(lambda line: "fed" in line and line["step"] == 5, fed=[]) != []
    fewer = [line for line in ledger if line.get("step") != last]
    assert f"{last - 1} steps instead of {last}" in differences(fewer, ledger)
