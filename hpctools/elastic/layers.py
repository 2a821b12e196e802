"""Layers and buffers that a training of several workers cannot have: said before it begins."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from hpctools.errors import ElasticError

_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check_layers(model: nn.Module) -> None:
    """Refuse what would silently be something else than its name says.

    torch's SyncBatchNorm looks for a default process group in its forward pass, and is an ordinary batch norm
    where there is none, as in `elastic.Loader`. Over that of `elastic.ShardedLoader` it would count batches
    that are fed without effect, and what it does would depend on the number of workers.

    Raises:
        ElasticError: the model has such a layer, or a buffer that cannot be added up.
    """
    check_buffers(model)
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm):
            raise ElasticError(
                f"the model's layer {name or 'itself'} is a SyncBatchNorm, which reaches nobody here",
                "leave out convert_sync_batchnorm and take BatchNorm1d, 2d or 3d (the state has the same "
                "names): its statistics are those of the batch that the loop is fed, in exact mode a virtual "
                "shard, so give fewer shards for more samples; or a norm that needs no batch, as GroupNorm",
            )


def check_buffers(model: nn.Module) -> None:
    """Refuse buffers that cannot be set back, added up over the shards, or brought to another worker.

    Raises:
        ElasticError: the model has one.
    """
    for name, buffer in model.named_buffers():
        if not is_lazy(buffer) and (what := _oddity(buffer)):
            raise ElasticError(
                f"the model's buffer {name} {what}: it cannot be added up over the shards, nor be brought to "
                "workers that join",
                "make it dense (to_dense()), with memory of its own (contiguous()), of a usual dtype; or, "
                "where it never changes, keep it as an attribute (self.name = tensor) and not as a buffer",
            )


def _oddity(buffer: torch.Tensor) -> str | None:
    if buffer.is_nested or buffer.layout != torch.strided:
        return "is a nested tensor" if buffer.is_nested else f"is sparse ({buffer.layout})"
    if any(step == 0 and size > 1 for step, size in zip(buffer.stride(), buffer.shape, strict=True)):
        return "has elements that share memory (expand())"
    # Nothing can be computed with floats of one byte.
    of_numbers = (buffer.is_floating_point() or buffer.is_complex()) and buffer.element_size() > 1
    return None if of_numbers or buffer.dtype in _WHOLE else f"is of {buffer.dtype}"
