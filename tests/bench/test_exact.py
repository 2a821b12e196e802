"""Which histories there are, and how their results are judged. No run is started here."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from bench.exact import HISTORIES, QUICK_HISTORIES, history_goals, history_rows
from bench.histories import KINDS, SHARDED, History, Kind, kind_of
from bench.lives import THEMES, WEIGHTS, Happening, plan
from bench.same_result import committed, differences, read

FIRST = "b0.0.0"


def test_a_plan_belongs_to_its_seed_begins_with_growth_and_is_short():
    plans = [plan(seed, len(KINDS)) for seed in range(200)]
    assert plans == [plan(seed, len(KINDS)) for seed in range(200)]
    assert len(set(plans)) > 100
    assert all(each[0] == "grow" and set(each) <= set(WEIGHTS) and 3 <= len(each) <= 5 for each in plans)


def test_the_bench_has_fifty_exact_histories_and_every_kind_of_event_several_times():
    for count, least in ((HISTORIES, 10), (QUICK_HISTORIES, 1)):
        happens = Counter(kind for seed in range(count) for kind in plan(seed, len(KINDS)))
        assert set(happens) == set(THEMES)
        assert min(happens.values()) >= least
        assert {kind_of(seed) for seed in range(count)} == set(KINDS)
    assert sum(kind_of(seed).mode == "exact" for seed in range(HISTORIES)) >= 50


def lived(
    seed: int, *kinds: str, problems: tuple[str, ...] = (), training: Kind | None = None, **events: int
) -> History:
    done = tuple(Happening(kind, "1") for kind in kinds)
    return History(seed, training or kind_of(seed), done, events, (1, 2), problems, 10, 1.0)


def test_a_history_that_differs_and_an_event_that_never_came_fail_the_bench():
    whole = [lived(0, *THEMES, takeover=2, resumed=1), lived(4, "grow")]
    assert all(goal.met for goal in history_goals(whole))
    assert [row["result"] for row in history_rows(whole)] == ["1 the same", "1 the same"]
    differs = [whole[0], lived(1, "grow", problems=("step 5 of w has another result",)), whole[1]]
    assert [goal.name for goal in history_goals(differs) if not goal.met] == [
        "histories in exact mode equal to the bit"
    ]
    sharded = [*whole, lived(0, "grow", training=SHARDED[0], problems=("weights at the end of 2 workers",))]
    (missed,) = [goal for goal in history_goals(sharded) if not goal.met]
    assert (missed.name, missed.limit) == ("histories in sharded mode equal to the bit", 1)
    assert len([goal for goal in history_goals([whole[1]]) if not goal.met]) == 3  # kinds, takeover, resumed


def line(worker: str, step: int, loss: float, committed: list[int], **more: Any) -> dict[str, Any]:
    result = {"loss": loss.hex(), "drawn": step / 7, "committed": committed, "epoch": 0}
    return {"worker": worker, "step": step, **result, **more}


def ledger(
    worker: str, losses: tuple[float, float] = (2.0, 1.0), weight: float = 3.0
) -> list[dict[str, Any]]:
    return [
        {"worker": worker, "step": 1, "fed": [2, 0]},
        line(worker, 1, losses[0], [2, 0]),
        {"worker": worker, "step": 2, "fed": [1, 3]},
        line(worker, 2, losses[1], [1, 3]),
        {"worker": worker, "final": {"a": [[weight, 0.5]], "b": [1.0]}, "lr": [0.1]},
    ]


def test_exact_mode_allows_no_bit_and_fast_mode_a_rounding():
    lone, near = ledger("lone"), ledger(FIRST, (2.0001, 1.0), 3.0001)
    assert differences(ledger(FIRST), lone) == []
    assert differences(near, lone, 1e-3) == []
    assert differences(near, lone) == [
        f"step 1 of {FIRST} has another result",
        "weights at the end of 1 workers",
    ]
    assert differences(ledger(FIRST, (2.01, 1.0)), lone, 1e-3) == [f"step 1 of {FIRST} has another result"]
    assert differences(ledger(FIRST, weight=3.01), lone, 1e-3) == ["weights at the end of 1 workers"]


def test_fast_mode_s_workers_have_the_same_weights_to_the_bit_and_every_sample_once():
    lone = ledger("lone")
    apart = [*ledger(FIRST), *ledger("r1000.0.0", weight=3.0000001)]
    assert differences(apart, lone, 1e-3) == ["weights at the end of 2 workers"]
    doubled = [
        {**each, "committed": [1, 1]} if each.get("step") == 2 and "loss" in each else each for each in lone
    ]
    assert "epoch 0: not exactly once: [1]" in differences(doubled, lone, 1e-3)
    unfed = [each for each in lone if each.get("fed") != [1, 3]]
    assert differences(unfed, lone, 1e-3) == ["step 2 was not fed {1, 3}"]


def test_a_line_that_a_killed_worker_left_torn_is_not_read(tmp_path: Path):
    (tmp_path / f"{FIRST}.jsonl").write_text('{"step": 1, "fed": [2]}\n{"final": {"a": [1.0]}')
    (tmp_path / "b.jsonl").write_text('{"step": 1, "loss": "0x1p0"}\n')
    assert read(tmp_path) == [{"step": 1, "loss": "0x1p0"}, {"step": 1, "fed": [2]}]
    assert committed(read(tmp_path)) == {1: {"step": 1, "loss": "0x1p0", "fed": {2}}}
