"""Batch norms that are fed one sample: they raise in the last batch of an epoch, after all the others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from hpctools.elastic.sampling import Sampling


def smallest_shard(shards: int, size: int) -> int:
    """Samples of the smallest virtual shard of a batch of so many samples."""
    return size // min(shards, size)


def smallest_block(worlds: Iterable[int], microbatch: int | None, size: int) -> int:
    """Samples of the smallest part of a batch that a worker's loop is fed at once.

    Args:
        worlds: how many workers there may be.
        microbatch: samples that the loop sees at a time, at most.
        size: of the batch.
    """
    blocks = {block for world in worlds for block in (size // world, -(-size // world)) if block}
    return min((block % microbatch or microbatch) if microbatch else block for block in blocks)


def warn_of_single_samples(model: nn.Module, sampling: Sampling, smallest: Callable[[int], int]) -> None:
    """Say what to do where a batch norm may be given one sample.

    Args:
        smallest: samples that the loop is fed at once, at least, of a batch of so many samples.
    """
    norms = [name for name, each in model.named_modules() if isinstance(each, _BatchNorm) and each.training]
    full, last = min(sampling.batch_size, sampling.samples), sampling.last_batch
    single = [size for size in (full, last) if smallest(size) < 2]
    if not single or not norms:
        return
    which = f"each full batch has {full}" if full in single else f"the last batch of each epoch has {last}"
    warnings.warn(
        f"{which} of {sampling.samples} samples, and the loop may be fed one "
        f"of them alone: the batch norm {norms[0]} fails there (Expected more than 1 value per channel) "
        "unless it sees several places of a sample. Give fewer shards, or in fast mode another microbatch; "
        "another batch_size; or leave samples out (torch.utils.data.Subset)",
        stacklevel=4,
    )
