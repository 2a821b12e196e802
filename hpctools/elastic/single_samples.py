"""Batch norms that are fed one sample: they raise in the last batch of an epoch, after all the others."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from hpctools.elastic.sampling import Sampling


def smallest_shard(sampling: Sampling) -> int:
    """Samples of the smallest virtual shard of an epoch's last batch."""
    size = sampling.last_batch
    return size // min(sampling.shards, size)


def smallest_block(sampling: Sampling, worlds: Iterable[int], microbatch: int | None) -> int:
    """Samples of the smallest part of an epoch's last batch that a worker's loop is fed at once.

    Args:
        worlds: how many workers there may be.
        microbatch: samples that the loop sees at a time, at most.
    """
    size = sampling.last_batch
    blocks = {block for world in worlds for block in (size // world, -(-size // world)) if block}
    return min((block % microbatch or microbatch) if microbatch else block for block in blocks)


def warn_of_single_samples(model: nn.Module, sampling: Sampling, smallest: int) -> None:
    """Say what to do where a batch norm may be given one sample.

    Args:
        smallest: samples that the loop is fed at once, at least.
    """
    norms = [name for name, each in model.named_modules() if isinstance(each, _BatchNorm) and each.training]
    if smallest > 1 or not norms:
        return
    size = sampling.last_batch
    warnings.warn(
        f"the last batch of each epoch has {size} of {sampling.samples} samples, and the loop may be fed one "
        f"of them alone: the batch norm {norms[0]} fails there (Expected more than 1 value per channel) "
        "unless it sees several places of a sample. Give fewer shards, or in fast mode another microbatch; "
        "another batch_size; or leave samples out (torch.utils.data.Subset)",
        stacklevel=4,
    )
