"""What a submission costs, from its options and last rates."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from hpctools.submit.estimate import Asked, Estimate, Rate, estimate, read_asked, read_rates
from hpctools.submit.intent import read_intent, read_invocation

RATES = [
    Rate("reserved", Decimal("32"), "USD", 96, 1_000_000, 8),
    Rate("shared", Decimal("6"), "USD", 48, 200_000, 4),
    Rate("cpu", Decimal("1"), "USD", 16, 64_000, 0),
]
PARTITIONS = {"nlp": ["reserved", "shared"], "all": ["reserved", "shared", "cpu"], "odd": ["new"]}


def asked(*words: str) -> Asked:
    return read_asked(
        read_intent(
            read_invocation([*words, "--", "true"]),
            environment={},
            cwd=Path("/"),
            standard_input=lambda: None,
        )
    )


def cost(*words: str) -> Estimate | None:
    return estimate(asked(*words), RATES, PARTITIONS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--gpus=4"], {"gpus": 4}),
        (["--gpus=a100:4"], {"gpus": 4}),
        (["--gres=gpu:a100:2", "-N2"], {"gpus": 4, "nodes": (2, 2), "cpus": 2}),
        (["--gres=gpu"], {"gpus": 1}),
        (["--gres=gpu:a100"], {"gpus": 1}),
        (["--gpus=0"], {}),
        (["--gpus=a100:0"], {}),
        (["--gres=gpu:0"], {}),
        (["--gpus-per-node=8", "--nodes=2-4"], {"gpus": 16, "nodes": (2, 4), "cpus": 2}),
        (["--gpus-per-task=1", "-n4", "-c6"], {"gpus": 4, "cpus": 24}),
        (["--ntasks-per-node=4", "-N2"], {"cpus": 8, "nodes": (2, 2)}),
        (["--mem=16G"], {"memory_mb": 16384}),
        (["--mem=100"], {"memory_mb": 100}),
        (["-t", "1-12"], {"hours": Fraction(36)}),
        (["-t", "90"], {"hours": Fraction(3, 2)}),
        (["-t", "0"], {}),
        (["--exclusive"], {"whole": True}),
        (["--exclusive=topo"], {"whole": True}),
        (["--exclusive=user"], {}),
        (["--exclusive=MCS"], {}),
        (["--array=0-9:3,20%2"], {"tasks": 5}),
        (["--array=x"], {}),
        (["-p", "nlp,cv"], {"partition": "nlp"}),
        (["-p", ",nlp"], {"partition": "nlp"}),
        (["--nodes=2:6", "--gpus-per-node=1"], {"nodes": (2, 6), "gpus": 2, "cpus": 2}),
    ],
)
def test_what_is_asked_for(words: list[str], expected: dict[str, object]) -> None:
    assert asked(*words) == Asked(**{"partition": "", **expected})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "low", "high"),
    [
        (
            ["-p", "nlp", "--gpus=4", "-t", "2:00:00"],
            "12.00",
            "32.00",
        ),  # a whole shared node, half a reserved
        (["-p", "nlp", "--gpus=8", "-t", "60"], "32.00", "32.00"),
        (["-p", "nlp", "-n1", "--exclusive", "-t", "60"], "6.00", "32.00"),
        (["-p", "all", "-c4", "-t", "60"], "0.25", "1.33"),
        (["-p", "nlp", "--mem=500000", "-t", "60"], "16.00", "16.00"),
        (["-p", "nlp", "--gpus-per-node=8", "-N2", "--array=1-3", "-t", "60"], "192.00", "192.00"),
        (["-p", "nlp", "--gpus-per-node=8", "--nodes=1:4", "-t", "60"], "32.00", "128.00"),
    ],
)
def test_by_hand(words: list[str], low: str, high: str) -> None:
    assert cost(*words) == Estimate(Decimal(low), Decimal(high), "USD")


def test_without_a_time_limit_it_is_by_the_hour() -> None:
    assert cost("-p", "nlp", "--gpus=8") == Estimate(Decimal("32.00"), Decimal("32.00"), "USD", per_hour=True)


@pytest.mark.parametrize("words", [["-p", "odd", "-t", "60"], ["-p", "nlp", "--gpus=9", "-t", "60"]])
def test_where_nothing_fits_nothing_is_said(words: list[str]) -> None:
    assert cost(*words) is None


def test_a_partition_that_nobody_knows_may_be_any() -> None:
    assert cost("-p", "new", "--gpus=8", "-t", "60") == Estimate(Decimal("32.00"), Decimal("32.00"), "USD")


def test_rates_as_the_api_tells_them() -> None:
    one = {"node_group": "g", "per_node_hour": "1.5", "currency": "USD", "day": "2026-11-20"}
    answer = {"rates": [{**one, "cpus": 4, "memory_mb": 10, "gpus": 0}], "partitions": {"p": ["g"]}}
    assert read_rates(answer) == ([Rate("g", Decimal("1.5"), "USD", 4, 10, 0)], {"p": ["g"]})
    with pytest.raises(KeyError):
        read_rates({})
