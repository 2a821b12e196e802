"""Whole runs under random histories of resizes and crashes end with the undisturbed result, to the bit.

A few of those that `./dev bench exact` lives through, which are more than fifty; with --long fifty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bench.histories import EXACT, KINDS, SHARDED, all_lone, history, kind_of, zygote
from bench.lives import WEIGHTS, plan
from bench.same_result import committed, differences

SEEDS = (0, 3, 4)
"""A takeover; no worker left, only a checkpoint; fast mode and a frozen worker."""
MANY, AT_ONCE = 50, 4


@pytest.fixture(scope="module")
def command() -> Iterator[Callable[..., list[str]]]:
    with zygote() as launch:
        yield launch


@pytest.fixture(scope="module")
def lone(command: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    return all_lone(command, tmp_path_factory.mktemp("lone"), {kind_of(seed) for seed in SEEDS})


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_random_histories_change_nothing(
    command: Callable[..., list[str]], lone: dict[Any, Any], tmp_path: Path
) -> None:
    """Side by side, as most of each is waiting."""
    planned = {kind for seed in SEEDS for kind in plan(seed, len(KINDS))}
    assert planned >= {"kill coordinator", "kill all", "freeze worker"}
    with ThreadPoolExecutor(len(SEEDS)) as pool:
        lived = list(pool.map(lambda seed: history(seed, command, tmp_path / str(seed), lone), SEEDS))
    assert {str(each): each.problems for each in lived if each.problems} == {}
    done = {happening.kind for each in lived for happening in each.done}
    assert planned <= done, f"something was left out: {[str(each) for each in lived]}"
    takeover, resumed, fast = lived
    assert takeover.events.get("takeover", 0) >= 1
    assert resumed.events.get("resumed", 0) >= 1
    assert kind_of(fast.seed).mode == "fast"
    assert all(max(each.sizes) > min(each.sizes) for each in lived)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_random_histories_of_sharded_models_change_nothing(
    command: Callable[..., list[str]], tmp_path: Path
) -> None:
    """To the bit, too. Streams: both of two replicas are lost, after the end of an epoch for one of them."""
    lone, seeds = all_lone(command, tmp_path, SHARDED), (0, 31)
    with ThreadPoolExecutor(len(seeds)) as pool:
        live = [
            pool.submit(history, seed, command, tmp_path / str(seed), lone, kind=SHARDED[seed % len(SHARDED)])
            for seed in seeds
        ]
        lived = [each.result() for each in live]
    assert {str(each): each.problems for each in lived if each.problems} == {}
    assert [each.kind.data for each in lived] == ["map", "streams"]
    assert all(max(each.sizes) > min(each.sizes) for each in lived)
    assert {"kill coordinator", "kill agent"} <= {happening.kind for each in lived for happening in each.done}


def test_what_differs_is_found(lone: dict[Any, Any]) -> None:
    """The comparison itself: another loss, a weight, a sample left out or taken twice, a step too few."""
    ledger = lone[kind_of(0)]
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


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_fifty_random_histories_change_nothing(command: Callable[..., list[str]], tmp_path: Path) -> None:
    """To the bit: of all kinds of trainings in exact mode."""
    seeds = [seed for seed in range(2 * MANY) if kind_of(seed).mode == "exact"][:MANY]
    undisturbed = all_lone(command, tmp_path, {kind_of(seed) for seed in seeds})
    with ThreadPoolExecutor(AT_ONCE) as pool:
        lived = list(pool.map(lambda seed: history(seed, command, tmp_path / str(seed), undisturbed), seeds))
    assert {str(each): each.problems for each in lived if each.problems} == {}
    assert {happening.kind for each in lived for happening in each.done} == set(WEIGHTS)
    assert {kind_of(each.seed) for each in lived} == set(EXACT)
