"""What a run has used adds up."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from hpctools.submit.bill import HUNDREDTH, Item, Part, bill, hours


@dataclass(frozen=True)
class Record:
    job_id: int
    qos: str = "elastic"
    state: str = "COMPLETED"
    submitted: int = 1000
    start: int | None = 1010
    end: int | None = 1110
    suspended_seconds: int = 0
    gpus: int = 8


def test_baselines_that_were_replaced_and_every_run_of_a_replica_count():
    roles = {1: "baseline", 2: "replica", 3: "replica", 4: "baseline", 9: "replica"}
    records = [
        (Record(1, "normal", "NODE_FAIL", gpus=16), 2),
        (Record(4, "normal", "RUNNING", start=1200, end=None, gpus=16), 2),
        (Record(2, suspended_seconds=40), 1),
        (Record(2, submitted=1005, start=1020, end=1021), 1),
        (Record(3, state="CANCELLED", start=None, end=1100, gpus=0), 0),
        (Record(7), 1),  # somebody else's
        (Record(9, submitted=100), 1),  # an id that Slurm has used before
    ]
    found = bill(roles, records, created=1000.0, now=1250.9)
    assert found.items == (
        Item(1, "baseline", "normal", "NODE_FAIL", 100, 2, 16),
        Item(2, "replica", "elastic", "COMPLETED", 60, 1, 8),
        Item(2, "replica", "elastic", "COMPLETED", 1, 1, 8),
        Item(3, "replica", "elastic", "CANCELLED", 0, 0, 0),
        Item(4, "baseline", "normal", "RUNNING", 50, 2, 16),
    )
    assert found.parts == (
        Part("normal", "baseline", 2, 300, 2400),
        Part("elastic", "replica", 2, 61, 488),
    )
    assert (found.node_seconds, found.gpu_seconds, found.unknown) == (361, 2888, (9,))


@given(st.lists(st.integers(0, 10**7), max_size=9))
def test_hours_add_up_to_their_own_total_and_are_right_to_the_hundredth(seconds: list[int]):
    shown = hours(seconds)
    total = Decimal((sum(seconds) + HUNDREDTH // 2) // HUNDREDTH) / 100
    assert sum(shown, Decimal()) == total
    for each, exact in zip(shown, seconds, strict=True):
        assert abs(each - Decimal(exact) / 3600) < Decimal("0.01")


@given(st.lists(st.tuples(st.sampled_from(["normal", "elastic"]), st.integers(0, 999), st.integers(0, 8))))
def test_every_item_is_in_one_part(jobs: list[tuple[str, int, int]]):
    roles = dict.fromkeys(range(len(jobs)), "replica")
    records = [(Record(n, qos, end=1010 + s, gpus=g), 1) for n, (qos, s, g) in enumerate(jobs)]
    found = bill(roles, records, 1000.0, 5000.0)
    assert (
        sum(part.gpu_seconds for part in found.parts) == found.gpu_seconds == sum(s * g for _, s, g in jobs)
    )
    assert sum(part.node_seconds for part in found.parts) == found.node_seconds == sum(s for _, s, _ in jobs)
    assert sum(part.jobs for part in found.parts) == len(jobs)
