"""The norm of a sharded model's gradients: every rank's squares are added up, in the exchange of the step.

No rank has all gradients, and asking the others in between would be one more place in which one may be
missing. So rank 0 says in a step that the next one's are to be measured, and then each rank adds the squares
of what it holds to the vector that is exchanged anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch.distributed.tensor import DTensor

from hpctools.elastic.sharded.trained import local


def own_squares(gradients: Iterable[torch.Tensor | None]) -> float:
    """The sum of the squares of what this rank holds of the gradients."""
    ours = [local(each) for each in gradients if isinstance(each, DTensor)]
    norms = [each.detach().norm().float().cpu() for each in ours]
    return float(torch.stack(norms).norm()) ** 2 if norms else 0.0


def whole_norm(squares: float, factor: float) -> float:
    """From the squares of all ranks, which were made larger by the factor as the gradients were."""
    return math.sqrt(squares * factor) if squares >= 0 else math.nan
