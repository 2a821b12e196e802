"""Layers that exchange numbers with other processes by themselves, behind the loader's back."""

from __future__ import annotations

from torch import nn

from hpctools.errors import ElasticError


def check_layers(model: nn.Module) -> None:
    """Refuse what would silently be something else than its name says.

    torch's SyncBatchNorm looks for a default process group in its forward pass, and is an ordinary batch norm
    where there is none, as in `elastic.Loader`. Over that of `elastic.ShardedLoader` it would count batches
    that are fed without effect, and what it does would depend on the number of workers.

    Raises:
        ElasticError: the model has such a layer.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm):
            raise ElasticError(
                f"the model's layer {name or 'itself'} is a SyncBatchNorm, which reaches nobody here",
                "leave out convert_sync_batchnorm and take BatchNorm1d, 2d or 3d (the state has the same "
                "names): its statistics are those of the batch that the loop is fed, in exact mode a virtual "
                "shard, so give fewer shards for more samples; or a norm that needs no batch, as GroupNorm",
            )
