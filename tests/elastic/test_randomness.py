"""Random numbers are functions of the place in the training, on a GPU, too."""

from __future__ import annotations

import random

import pytest
import torch

from hpctools.elastic.randomness import draw_from


def test_all_generators_go_on_from_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the GPUs get the same seed, once CUDA is in use; before that nothing starts it."""
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)

    def drawn(*parts: int | str) -> tuple[float, float]:
        draw_from(*parts)
        return torch.rand(1).item(), random.random()

    first = drawn(7, "shard", 3, 1)
    assert seeds == []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert drawn(7, "shard", 3, 1) == first
    assert drawn(7, "shard", 3, 2) != first
    assert drawn(7, "shard", 3, 1) == first
    one, other, again = seeds
    assert one == again != other
    torch.default_generator.manual_seed(one)
    assert torch.rand(1).item() == first[0]
