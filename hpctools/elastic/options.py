"""What a training asks of the loader, checked and made into parts."""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpctools.elastic.fast import FastSum
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.gradients import FlatGradients
from hpctools.elastic.indexed import Indexed
from hpctools.elastic.layers import check_layers
from hpctools.elastic.own_passes import listen
from hpctools.elastic.own_run import own_run
from hpctools.elastic.pieces import Cut, by_blocks, by_shards
from hpctools.elastic.sampling import Sampling, StreamSampling
from hpctools.elastic.single_samples import smallest_block, smallest_shard, warn_of_single_samples
from hpctools.elastic.streams import Streams, as_streams
from hpctools.elastic.summing import ExactSum, Summing
from hpctools.elastic.training import AnyDataset, MapDataset
from hpctools.errors import ElasticError


def plain_model(model: nn.Module) -> nn.Module:
    """The model itself, also when it is wrapped in DistributedDataParallel.

    A wrapper over one process is switched off: the loader adds up the gradients.

    Raises:
        ElasticError: it is wrapped for several processes, which would add up gradients a second time; with a
            communication hook, which nobody would call; or it has a SyncBatchNorm.
    """
    check_layers(model)
    if not isinstance(model, DistributedDataParallel):
        return model
    world = model.process_group.size()
    if world > 1:
        raise ElasticError(
            f"elastic.Loader: the model is wrapped in DistributedDataParallel over {world} processes",
            "leave out init_process_group and DistributedDataParallel: the loader adds up the gradients of "
            "all workers, and gives all of them the first one's weights",
        )
    if getattr(model, "_comm_hooks", ()):
        raise ElasticError(
            "elastic.Loader: the model's DistributedDataParallel has a communication hook, never called",
            "leave out register_comm_hook (and mixed_precision=, which makes one): the loader adds up "
            "gradients in the dtype that they have, and has nothing for a narrower one on the way",
        )
    model.require_backward_grad_sync = False
    model.require_forward_param_sync = False
    inner: nn.Module = model.module
    return inner


def sampling_for(
    dataset: AnyDataset, batch_size: int, shards: int, epochs: int, seed: int
) -> Sampling | StreamSampling:
    """The order of samples, as the data set admits it.

    Raises:
        ElasticError: a number makes no sense, or it is no data set.
    """
    mapped = _mapped(dataset)
    samples = {"the data set's length": len(mapped)} if mapped is not None else {}
    numbers = {**samples, "batch_size": batch_size, "epochs": epochs, "shards": shards}
    batch_size, epochs, shards = [_at_least_one(*each) for each in numbers.items()][-3:]
    seed = operator.index(seed) if hasattr(seed, "__index__") else seed  # numpy's draws what Python's does
    if mapped is not None:
        return Sampling(len(mapped), batch_size, shards, epochs, seed)
    if shards > batch_size:
        raise ElasticError(
            f"elastic.Loader: {shards} shards cannot share batches of {batch_size} samples",
            f"give shards={batch_size} or fewer: each shard has a stream of its own",
        )
    return StreamSampling(batch_size, shards, epochs, seed)


def _at_least_one(name: str, value: Any) -> int:
    """A number of something, also when it is one of numpy's, or a float without a fraction."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if (number := int(value)) == value and number >= 1:
            return number
    raise ElasticError(f"elastic.Loader: {name} is {value!r}", "it has to be 1 or more, a whole number")


def source_for(
    dataset: AnyDataset,
    collate: Callable[[list[Any]], Any],
    sampling: Sampling | StreamSampling,
) -> Indexed | Streams:
    """What makes batches of the data set."""
    mapped, streams = _mapped(dataset), as_streams(dataset)
    if isinstance(sampling, Sampling):
        assert mapped is not None  # noqa: S101 - the sampling was chosen by it
        return Indexed(mapped, collate, sampling)
    assert streams is not None  # noqa: S101
    return Streams(streams, collate, sampling)


def _mapped(dataset: AnyDataset) -> MapDataset | None:
    """The data set, when it is map-style."""
    return cast("MapDataset", dataset) if as_streams(dataset) is None else None


def summing_for(
    mode: str,
    model: nn.Module,
    sampling: Sampling | StreamSampling,
    microbatch: int | None,
    note: Callable[[], None],
) -> tuple[Summing, Cut]:
    """How gradients are added up, and what the loop sees at a time; a warning where that may be too little.

    Args:
        note: called in each backward pass of the model; in those of the step itself perhaps not.

    Raises:
        ElasticError: there is no such mode, or `microbatch` does not go with it.
    """
    if mode == "exact" and microbatch is None:
        listen(model, note)
        if isinstance(sampling, Sampling):
            warn_of_single_samples(model, sampling, partial(smallest_shard, sampling.shards))
        return ExactSum(FlatGradients(model)), by_shards(sampling)
    if mode == "fast" and microbatch is None and isinstance(sampling, StreamSampling):
        return FastSum(model, note), by_shards(sampling)
    if mode == "fast" and (microbatch is None or microbatch >= 1) and isinstance(sampling, Sampling):
        warn_of_single_samples(model, sampling, partial(smallest_block, _worlds(), microbatch))
        return FastSum(model, note), by_blocks(sampling, microbatch)
    raise ElasticError(
        f"elastic.Loader: mode is {mode!r} and microbatch {microbatch}",
        "mode is 'exact' or 'fast'; microbatch is 1 or more and for fast mode with a map-style data set: "
        "else the loop sees one virtual shard at a time",
    )


def _worlds() -> range:
    """How many workers this training may have."""
    if (run := own_run(os.environ)) is None:
        return range(1, 2)
    spec = RunFolder(run.path).spec()
    nodes = spec.min_nodes, spec.max_nodes
    least, most = (each * spec.workers_per_node for each in nodes)
    return range(least, most + 1)


def check_run(shards: int | None) -> RunFolder | None:
    """The folder of the run that this process is a worker of; None: of none.

    Args:
        shards: what the workers share; None: samples, of which there are always enough.

    Raises:
        ElasticError: the run may get more workers than there are shards.
    """
    if (run := own_run(os.environ)) is None:
        return None
    folder = RunFolder(run.path)
    spec = folder.spec()
    largest = spec.max_nodes * spec.workers_per_node
    if shards is not None and largest > shards:
        raise ElasticError(
            f"elastic.Loader: up to {largest} workers cannot share {shards} virtual shards",
            f"give shards={largest} or more, the same at every start of this training",
        )
    return folder
