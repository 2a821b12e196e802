"""Every sample exactly once per epoch, whatever the sizes, and nothing depends on the number of workers."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from hpctools.elastic.sampling import Cursor, Sampling, mixed_seed

SAMPLINGS = st.builds(
    Sampling,
    samples=st.integers(1, 200),
    batch_size=st.integers(1, 64),
    shards=st.integers(1, 24),
    epochs=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)


def walk(sampling: Sampling) -> list[Cursor]:
    cursors, cursor = [], Cursor()
    while not sampling.is_over(cursor):
        cursors.append(cursor)
        cursor = sampling.after(cursor)
    return cursors


@given(SAMPLINGS)
def test_every_sample_once_per_epoch(sampling: Sampling) -> None:
    cursors = walk(sampling)
    assert [cursor.step for cursor in cursors] == list(range(sampling.total_steps))
    for epoch in range(sampling.epochs):
        order = sampling.permutation(epoch)
        seen = [
            int(index)
            for cursor in cursors
            if cursor.epoch == epoch
            for shard in range(sampling.shards_of(cursor))
            for index in order[slice(*sampling.slice_of(cursor, shard))]
        ]
        assert seen == order.tolist()
        assert sorted(seen) == list(range(sampling.samples))


@given(SAMPLINGS)
def test_shards_of_a_step_are_even_and_never_empty(sampling: Sampling) -> None:
    for cursor in walk(sampling):
        sizes = [
            high - low
            for low, high in (sampling.slice_of(cursor, s) for s in range(sampling.shards_of(cursor)))
        ]
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1
        assert len(sizes) <= sampling.shards


def test_order_depends_on_seed_and_epoch_and_not_on_torchs_own_numbers() -> None:
    sampling = Sampling(samples=50, batch_size=8, shards=4, epochs=2, seed=3)
    first = sampling.permutation(0)
    torch.manual_seed(99)
    assert torch.equal(first, sampling.permutation(0))
    assert not torch.equal(first, sampling.permutation(1))
    assert not torch.equal(first, Sampling(50, 8, 4, 2, seed=4).permutation(0))


def test_seeds_differ_where_parts_differ() -> None:
    parts = [(1, "shard", step, shard) for step in range(50) for shard in range(50)]
    assert len({mixed_seed(*each) for each in parts}) == len(parts)
    assert all(0 <= mixed_seed(*each) < 2**63 for each in parts)
