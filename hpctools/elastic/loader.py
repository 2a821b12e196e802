"""The surface that a training uses: a data loader whose gradients are the same on any number of workers."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.data import default_collate

from hpctools.elastic.checkpoint import Checkpoint
from hpctools.elastic.checkpoint.attach import keeper_of
from hpctools.elastic.fast import FastSum
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.gradients import FlatGradients
from hpctools.elastic.pieces import Cut, Piece, Step, by_blocks, by_shards, practice
from hpctools.elastic.randomness import draw_from
from hpctools.elastic.sampling import Cursor, Sampling
from hpctools.elastic.session import LONE, RUN_DIR, session_from
from hpctools.elastic.summing import ExactSum, Summing, backward_of
from hpctools.elastic.training import MapDataset, Stateful
from hpctools.errors import ElasticError


class Loader:
    """Batches for a training whose workers come and go, and the gradients of all of them.

    Takes the place of torch.utils.data.DataLoader in an ordinary training loop:

        loader = elastic.Loader(model, optimizer, dataset, batch_size=48, epochs=2, seed=1)
        for epoch in range(2):
            for inputs, targets in loader:
                loss = F.cross_entropy(model(inputs), targets)
                if not loader.backward(loss):
                    continue
                optimizer.step()
                optimizer.zero_grad()

    Every global batch of `batch_size` samples is cut into `shards` virtual shards, which the workers share.
    The loop sees one virtual shard at a time; `backward` returns True once the gradients of the whole
    global batch are in the parameters. Which samples, in which order, with which random numbers, and the
    order in which gradients are added up do not depend on the workers: loss and weights are bitwise the
    same whatever came and went, and without an elastic run (then this is one process).

    The gradient is that of the mean over the global batch's samples, also where the last batch is smaller.
    Parameters that no shard used get a gradient of zeros.

    Args:
        model: on every worker of the same shape; its values come from the first worker.
        optimizer: built over the model's parameters.
        dataset: map-style, the same on every worker.
        batch_size: samples in a global batch.
        epochs: passes over the data set.
        seed: of the order of samples, and of the random numbers that each shard's forward pass draws.
        shards: virtual shards of a global batch; at least as many as there will ever be workers.
        scheduler: moves with the state when given.
        state: further objects that move with the state, by name.
        collate: makes a batch of a list of samples.
        mode: `exact`, as said above; or `fast`: the loop sees all samples of a worker at once, and gradients
            are all-reduced beside the backward pass. Also right to the sample on any number of workers,
            but rounded differently on each.
        microbatch: fast mode: samples that the loop sees at a time, at most (gradient accumulation).
        checkpoint: where and how often the training is saved, and what it begins from. None: as the run was
            submitted; without a run not at all.
        threads: of torch on the CPU; kernels may round differently with another number. None: as they are.

    Raises:
        ElasticError: the data set is empty, a number makes no sense, the run may get more workers than there
            are shards, or the run has ended.
        UnreachableError: the run's coordinator does not answer.

    In an elastic run, a worker that has to go (its node is wanted, or the run ends without it) leaves by
    SystemExit from the loop. One shard is fed for practice before a worker joins: its gradients are dropped.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        dataset: MapDataset,
        *,
        batch_size: int,
        epochs: int,
        seed: int = 0,
        shards: int = 12,
        scheduler: Stateful | None = None,
        state: Mapping[str, Stateful] | None = None,
        collate: Callable[[list[Any]], Any] = default_collate,
        mode: Literal["exact", "fast"] = "exact",
        microbatch: int | None = None,
        checkpoint: Checkpoint | None = None,
        threads: int | None = 1,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self._sampling = _checked(Sampling(len(dataset), batch_size, shards, epochs, seed))
        self._dataset = dataset
        self._collate = collate
        self._stateful: dict[str, Stateful] = {"model": model, "optimizer": optimizer}
        self._stateful |= {"scheduler": scheduler} if scheduler is not None else {}
        self._stateful |= {f"state {name}": value for name, value in (state or {}).items()}
        self._sum, self._cut = _parts_of(mode, model, self._sampling, microbatch)
        self._todo: deque[Piece] = deque()
        self._fed: Piece | None = None
        self._entered = False
        self._passes = 0
        self._cursor = Cursor()
        self._permuted: tuple[int, torch.Tensor] | None = None
        self._samples_done = 0
        self._skipped: frozenset[int] = frozenset()
        self.loss = float("nan")
        self.indices: list[int] = []
        self._session = session_from(os.environ, self, self._progress)
        folder = RunFolder(os.environ[RUN_DIR]) if RUN_DIR in os.environ else None
        self._keeper = keeper_of(folder, self._session, checkpoint, self.capture, self._described)

    # For the training

    @property
    def step(self) -> int:
        """Completed steps (global batches) since the beginning of the training."""
        return self._cursor.step

    @property
    def total_steps(self) -> int:
        """Steps of the whole training."""
        return self._sampling.total_steps

    @property
    def world_size(self) -> int:
        """Workers that train now."""
        return self._session.group.world

    @property
    def rank(self) -> int:
        """Our place among them; 0 is the one that should print and save."""
        return self._session.group.rank

    @property
    def generation(self) -> int:
        """Number of the present membership; 0 without an elastic run."""
        return self._session.group.number

    def __len__(self) -> int:
        """Steps of an epoch."""
        return self._sampling.total_steps // self._sampling.epochs

    def __iter__(self) -> Iterator[Any]:
        """Our shards of the rest of one epoch; the first call serves the first epoch, and so on.

        A worker that joins in a later epoch finds the ones before empty.

        Raises:
            ElasticError: `backward` was not called for a batch.
            SystemExit: this worker's part has ended.
        """
        epoch = self._passes
        self._passes += 1
        if not self._entered:
            yield from self._rehearsal()
            self._session.enter()
            if self._session.is_lone:
                self.begin()
            self._entered = True
            self.save_as_ordered()
            self._plan_step()
        while (piece := self._next_piece(epoch)) is not None:
            yield from self._feed(piece)
        if self._sampling.is_over(self._cursor) and epoch == self._sampling.epochs - 1:
            self._session.finish()
            if self._keeper is not None:
                self._keeper.close(finished=True)

    def backward(self, loss: torch.Tensor) -> bool:
        """The backward pass of one batch; call it in place of `loss.backward()`.

        Args:
            loss: the mean loss over the batch's samples, a scalar.

        Returns:
            Whether the global batch is complete: the gradients of all its shards are in the parameters,
            `loss`, `indices` and `step` tell about it, and it is time for the optimizer. If not, go on with
            the next batch.

        Raises:
            ElasticError: there is no batch to which the loss could belong.
        """
        if self._fed is None:
            raise ElasticError("backward() was called without a batch", "call it once for each batch")
        piece, self._fed = self._fed, None
        self._sum.add(piece, loss, backward_of(loss, None), self._session.ready_for)
        if not self._entered:
            self._sum.set_back()
            return False
        self._todo.popleft()
        return not self._todo and self._combine()

    # For the session

    @property
    def completed(self) -> int:
        """How many steps the state is the result of."""
        return self._cursor.step

    def capture(self) -> Mapping[str, Any]:
        """The whole state of the training."""
        parts = {name: part.state_dict() for name, part in self._stateful.items()}
        counts = {"loss": self.loss, "samples": self._samples_done, "skipped": sorted(self._skipped)}
        return {**parts, **counts, "cursor": asdict(self._cursor)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Become what another worker captured."""
        if self._keeper is not None:
            self._keeper.forget()
        self._become(state)

    def _become(self, state: Mapping[str, Any]) -> None:
        for name, part in self._stateful.items():
            part.load_state_dict(state[name])
        self._cursor = Cursor(**state["cursor"])
        self.loss = state["loss"]
        self._samples_done = state["samples"]
        self._skipped |= frozenset(state["skipped"])

    def begin(self) -> None:
        """No worker has a state: become that of the newest whole checkpoint, or stay as built.

        Raises:
            ElasticError: the place of the checkpoints cannot be read, or a checkpoint does not fit; or the
                training was rolled back and no state from before is left.
        """
        restored = self._keeper.begin() if self._keeper is not None else None
        if restored is not None:
            try:
                self._become(restored)
            except (RuntimeError, ValueError, KeyError) as error:
                raise ElasticError(
                    f"the newest checkpoint does not fit this training: {error}",
                    "train what was saved there, or give another folder (elastic.Checkpoint(folder=...))",
                ) from None

    def roll_back(self, to_step: int, skip: Sequence[int]) -> bool:
        """Become what the state was after at most `to_step` steps; leave out the batches of steps `skip`."""
        earlier = self._keeper.roll_back(to_step, self.completed) if self._keeper is not None else None
        if earlier is not None:
            self._become(earlier)
        self._skipped |= frozenset(skip)
        return self.completed <= to_step

    def save_as_ordered(self) -> None:
        """Save if it is ordered, or time."""
        if self._keeper is not None:
            self._keeper.boundary(self.completed)

    def _described(self) -> Mapping[str, Any]:
        """What a checkpoint's manifest tells about the training."""
        return {"world_size": self.world_size, "cursor": asdict(self._cursor), **asdict(self._sampling)}

    def _progress(self) -> Mapping[str, Any]:
        if not self._entered or self._cursor.step == 0:
            return {"total_steps": self.total_steps}
        return {
            "step": self._cursor.step,
            "total_steps": self.total_steps,
            "loss": self.loss,
            "samples": self._samples_done,
        }

    # One step

    def _rehearsal(self) -> Iterator[Any]:
        """One batch for practice, so that whatever is slow or fails the first time does so before we join."""
        if not self._session.is_lone:
            self._sum.begin(Step(0, 1, 1, ()), LONE)
            yield from self._feed(practice(self._sampling, self._cursor, 0))

    def _next_piece(self, epoch: int) -> Piece | None:
        """The next piece to feed; None when the epoch is over."""
        if self._todo:
            self._sum.set_back()
            if self._session.recover():
                self._plan_step()
        if not self._todo:
            if self._cursor.epoch > epoch or self._sampling.is_over(self._cursor):
                return None
            self.save_as_ordered()
            self._session.boundary()
            self._plan_step()
        return self._todo[0] if self._cursor.epoch <= epoch else None

    def _plan_step(self) -> None:
        """Find out which pieces of the next step are ours."""
        self._todo.clear()
        if self._keeper is not None:
            self._keeper.settled(self.completed)
        while self._cursor.step + 1 in self._skipped and not self._sampling.is_over(self._cursor):
            self._cursor = self._sampling.after(self._cursor)
        if self._sampling.is_over(self._cursor):
            return
        group = self._session.group
        low, high = self._sampling.batch(self._cursor)
        shards = self._sampling.shards_of(self._cursor)
        pieces = self._cut(self._cursor, group.rank, group.world)
        self._todo.extend(pieces)
        self._sum.begin(Step(self.completed, shards, high - low, tuple(pieces)), group)

    def _feed(self, piece: Piece) -> Iterator[Any]:
        self._sum.begin_piece()
        batch = self._load(piece)
        draw_from(self._sampling.seed, "shard", piece.cursor.step, piece.number)
        self._fed = piece
        yield batch
        if self._fed is not None:
            raise ElasticError(
                "the loop went on to the next batch without loader.backward(loss)",
                "call loader.backward(loss) once for each batch, in place of loss.backward()",
            )

    def _load(self, piece: Piece) -> Any:
        samples = []
        for index in self._order()[piece.low : piece.high].tolist():
            draw_from(self._sampling.seed, "sample", piece.cursor.epoch, index)
            samples.append(self._dataset[index])
        return self._collate(samples)

    def _combine(self) -> bool:
        """Add up the pieces of all workers; False: a worker was lost, and the step begins again."""
        self._sum.set_back()
        ready_for = self._session.ready_for
        exchanged = self._session.exchange(lambda group: self._sum.exchange(group, ready_for))
        if exchanged is None:
            self._plan_step()
            return False
        self.loss = self._sum.apply(exchanged).loss
        low, high = self._sampling.batch(self._cursor)
        self.indices = self._order()[low:high].tolist()
        draw_from(self._sampling.seed, "shard", self._cursor.step, self._sampling.shards_of(self._cursor))
        self._samples_done += high - low
        self._cursor = self._sampling.after(self._cursor)
        return True

    def _order(self) -> torch.Tensor:
        epoch = min(self._cursor.epoch, self._sampling.epochs - 1)
        if self._permuted is None or self._permuted[0] != epoch:
            self._permuted = (epoch, self._sampling.permutation(epoch))
        return self._permuted[1]


def _parts_of(mode: str, model: nn.Module, sampling: Sampling, microbatch: int | None) -> tuple[Summing, Cut]:
    if mode == "exact" and microbatch is None:
        return ExactSum(FlatGradients(model)), by_shards(sampling)
    if mode == "fast" and (microbatch is None or microbatch >= 1):
        return FastSum(model), by_blocks(sampling, microbatch)
    raise ElasticError(
        f"elastic.Loader: mode is {mode!r} and microbatch {microbatch}",
        "mode is 'exact' or 'fast'; microbatch is 1 or more and for fast mode: exact feeds virtual shards",
    )


def _checked(sampling: Sampling) -> Sampling:
    values: Sequence[tuple[str, int]] = (
        ("the data set's length", sampling.samples),
        ("batch_size", sampling.batch_size),
        ("epochs", sampling.epochs),
        ("shards", sampling.shards),
    )
    for name, value in values:
        if value < 1:
            raise ElasticError(f"elastic.Loader: {name} is {value}", "it has to be 1 or more")
    if RUN_DIR in os.environ:
        spec = RunFolder(os.environ[RUN_DIR]).spec()
        largest = spec.max_nodes * spec.workers_per_node
        if largest > sampling.shards:
            raise ElasticError(
                f"elastic.Loader: up to {largest} workers cannot share {sampling.shards} virtual shards",
                f"give shards={largest} or more, the same at every start of this training",
            )
    return sampling
