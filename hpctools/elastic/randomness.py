"""Random numbers that belong to a part of the training, whoever computes it.

What draws from torch, `random` or numpy is seeded by where in the training it is (epoch and sample for
loading, step and virtual shard for the forward pass), so that the generators' states need not be moved:
they are a function of the cursor.
"""

from __future__ import annotations

import random
import sys

import torch

from hpctools.elastic.sampling import mixed_seed


def draw_from(*parts: int | str) -> None:
    """Let the process's generators go on from a point that the parts name.

    `torch.manual_seed` does the same for torch in a hundred times the time, as it looks for every kind of
    device; this is called for every sample.
    """
    seed = mixed_seed(*parts)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)
