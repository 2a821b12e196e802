"""The surface that a training uses: a data loader whose gradients are the same on any number of workers."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.data import default_collate

from hpctools.elastic.batches import Batches
from hpctools.elastic.checkpoint import Checkpoint
from hpctools.elastic.checkpoint.attach import keeper_of
from hpctools.elastic.devices import GLOO
from hpctools.elastic.early_end import tell_at_exit
from hpctools.elastic.exchange import Exchanged
from hpctools.elastic.gradients import Totals
from hpctools.elastic.group import Group
from hpctools.elastic.held import Held
from hpctools.elastic.metrics import as_floats
from hpctools.elastic.options import check_run, plain_model, sampling_for, source_for, summing_for
from hpctools.elastic.parameters import Parameters
from hpctools.elastic.pieces import Piece, Step
from hpctools.elastic.session import LONE, session_from
from hpctools.elastic.summing import backward_of, unscaled
from hpctools.elastic.training import AnyDataset, Stateful
from hpctools.elastic.unsaved import NAME as UNSAVED
from hpctools.elastic.unsaved import UnsavedBuffers
from hpctools.errors import ElasticError


class Loader(Held):
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

    What the loop gets is what `collate` makes of a list of samples. With torch's own `default_collate` that
    is tensors of shape `(n, *sample)`: of a global batch of B samples (`batch_size`; the last one of an epoch
    is smaller) n is B / shards, up or down to a whole number and never 0, fewer where a stream ends; in fast
    mode, but for streams, B / world_size, up or down, in pieces of at most `microbatch`.

    The gradient is that of the mean over the global batch's samples, also where the last batch is smaller.
    Parameters that no shard used get a gradient of zeros.

    Args:
        model: on every worker of the same shape; its values come from the first worker. On its device
            already: fast mode's gradients go over nccl where each worker has a GPU of its own. Without
            DistributedDataParallel, which this replaces; over one process it is switched off.
        optimizer: built over the model's parameters, and no others. Those that train when the loader is made
            train to the end: see docs/elastic.md on how to hold some of them back for a while.
        dataset: the same on every worker: map-style (`__len__`, `__getitem__`, `training.MapDataset`); or
            read in order, in one stream for each virtual shard (`shard(index, of)`, `StreamDataset` there);
            or any iterable, which then every shard reads as a whole to take its own samples of it.
        batch_size: samples in a global batch, 1 or more; as many as `shards` at least for streams.
        epochs: passes over the data set, 1 or more.
        seed: of the order of samples, and of the random numbers that each shard's forward pass draws.
        shards: virtual shards of a global batch; at least as many as there will ever be workers.
        scheduler: moves with the state when given; stepped by the loop, in a step or after a pass.
        state: further objects that move with the state, by name: see `elastic.Stateful`.
        collate: makes a batch of a list of samples.
        num_workers: processes that load ahead of the loop; 0: the loop loads. The batches are the same, if
            only `set_epoch` changes the data set. Forked here: make the loader before threads; without CUDA.
        mode: `exact`, as said above; or `fast`: the loop sees all samples of a worker at once, and gradients
            are all-reduced beside the backward pass. Right to the sample, and rounded differently, on any
            number of workers; masks of dropout and a batch norm's statistics, too, are of a worker's samples.
        microbatch: fast mode: samples that the loop sees at a time, at most (gradient accumulation).
        checkpoint: where and how often the training is saved, and what it begins from. None: as the run was
            submitted; without a run not at all.
        threads: of torch on the CPU; kernels may round differently with another number. None: as they are.

    Raises:
        ElasticError: the data set is empty, a number makes no sense, the run may get more workers than there
            are shards, the model is wrapped for several processes or has a SyncBatchNorm, the optimizer has
            parameters that are not the model's, or the run has ended.
        UnreachableError: the run's coordinator does not answer.

    In an elastic run, a worker that has to go (its node is wanted, or the run ends without it) leaves by
    SystemExit from the loop. One batch is fed for practice before a worker joins: its gradients are dropped.

    Attributes:
        loss: of the last completed step, the mean over the global batch's samples, in the unit of the loss
            that `backward` was given; a float, the same on every worker. NaN before the first step.
        indices: of the last completed step's samples, all workers', in the epoch's order: what the data set
            was asked for. Empty before the first step, and always for a data set that is read in order.

    Sources: `torch.utils.data.DataLoader` for data sets, batches and `collate`; its `DistributedSampler`
    doubles samples or leaves some out, in an order that depends on the ranks, which is not done here. The
    order of addition: docs/decisions/0021-a-tree-over-virtual-shards.md; fast mode, which does what
    `DistributedDataParallel` does: docs/decisions/0093-fast-mode-and-its-agreement.md.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        dataset: AnyDataset,
        *,
        batch_size: int,
        epochs: int,
        seed: int = 0,
        shards: int = 12,
        scheduler: Stateful | None = None,
        state: Mapping[str, Stateful] | None = None,
        collate: Callable[[list[Any]], Any] = default_collate,
        num_workers: int = 0,
        mode: Literal["exact", "fast"] = "exact",
        microbatch: int | None = None,
        checkpoint: Checkpoint | None = None,
        threads: int | None = 1,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        model = plain_model(model)
        self._sampling = sampling_for(dataset, batch_size, shards, epochs, seed)
        shared = shards if mode == "exact" or self._sampling.total_steps is None else None
        self._folder = folder = check_run(shared)
        self._parameters = Parameters(model, optimizer)
        self._sum, self._cut = summing_for(mode, model, self._sampling, microbatch, self._parameters.own.note)
        source = source_for(dataset, collate, self._sampling)
        stateful: dict[str, Stateful] = {"model": model, "optimizer": optimizer}
        stateful |= {UNSAVED: unsaved} if (unsaved := UnsavedBuffers(model)) else {}
        stateful |= {"scheduler": scheduler} if scheduler is not None else {}
        stateful |= {f"state {name}": value for name, value in (state or {}).items()}
        super().__init__(
            stateful, Batches(self._sampling, source, lambda *place: self._cut(*place), num_workers)
        )
        self._todo: deque[Piece] = deque()
        self._fed: Piece | None = None
        self._fed_at = 0.0
        self._entered = False
        self._epoch = 0
        self.indices: list[int] = []
        self._spec = folder.spec() if folder is not None else None
        self._session = session_from(os.environ, self, self._progress)
        tell_at_exit(lambda: self.replays, self._session)
        self._keeper = keeper_of(folder, self._session, checkpoint, self._capture, self._described)

    # For the training

    @property
    def total_steps(self) -> int | None:
        """Steps of the whole training; None when the data set has no length."""
        return self._sampling.total_steps

    @property
    def epoch(self) -> int:
        """The epoch, from 0, of the batch that the loop has, or had last.

        That of the data, where a loop's own number counts passes: after a roll back over an epoch's end the
        rest of the earlier epoch is fed in the same pass.
        """
        return self._epoch

    @property
    def world_size(self) -> int:
        """Workers that train now; 0 while we practise and are none of them yet."""
        return self._session.group.world if self._trains else 0

    @property
    def rank(self) -> int:
        """Our place among them; 0 is the one that should print and save, -1 while we practise."""
        return self._session.group.rank if self._trains else -1

    @property
    def generation(self) -> int:
        """Number of the present membership; 0 without an elastic run, and while we practise."""
        return self._session.group.number if self._trains else 0

    @property
    def reduce_backend(self) -> str:
        """Over what the workers' gradients are added up now: `nccl`, where fast mode can, or `gloo`."""
        return self._session.group.backend if self._trains else GLOO

    @property
    def scale_config(self) -> Mapping[str, Any]:
        """What the policy says for the present number of nodes (while we practise the least), or nothing."""
        return {} if self._spec is None else self._spec.config_of(self.world_size)

    def report(self, **numbers: float) -> None:
        """Tell the run numbers of your own, for its status and the recovery policy's rules.

        Each is told once, from this worker, with the step that it is of: the one in work, or between `True`
        and the next batch the one just completed. Of two with one name in a step the later one counts; what
        is reported of the batch for practice is not told. `loss`, step times and the gradients' norm are told
        without it.

        Raises:
            ElasticError: one of them is no number.
        """
        told = as_floats(numbers)
        if self._trains:
            in_work = self._fed is not None or bool(self._todo)
            self._metrics.report(self.step + in_work, told)

    @property
    def _trains(self) -> bool:
        return self._entered or self._session.is_lone

    def __len__(self) -> int:
        """Steps of an epoch.

        Raises:
            TypeError: the data set has no length.
        """
        if self.total_steps is None:
            raise TypeError("a data set that is read in order has no length")
        return self.total_steps // self._sampling.epochs

    def __iter__(self) -> Iterator[Any]:
        """Our shards of the rest of one epoch, from the first on; those before we came are empty (`replays`).

        Raises:
            ElasticError: `backward` was not called for a batch; a thousand passes after all `epochs`;
                in the first pass or after a loss of all state, a checkpoint does not fit or cannot be read;
                all streams are empty; a loading process has ended by itself, or was killed again and again.
            SystemExit: this worker's part has ended.
        """
        known, epoch = self._passes.counted, self._passes.begin()
        self._batches.check_pass(epoch, known)
        with self._passes.within():
            yield from self._pass(epoch)
        self._passes.end(epoch, goes_back=self._keeper is not None or not self._session.is_lone)

    def _pass(self, epoch: int) -> Iterator[Any]:
        if not self._entered:
            self._check_readable(moves=not self._session.is_lone)
            yield from self._rehearsal()
            self._session.enter()
            if self._session.is_lone:
                self._begin()
            self._entered = True
            self._save_as_ordered()
            self._plan_step()
        went_back = True
        while went_back:
            while (piece := self._next_piece(epoch)) is not None:
                yield from self._offer(piece, self._batches.batch(piece))
            if not self._batches.is_over or epoch < self._sampling.epochs - 1:
                return
            if went_back := self._session.finish():
                self._plan_step()
        self._batches.close()
        if self._keeper is not None:
            self._keeper.close(finished=True)

    def backward(self, loss: torch.Tensor, scaler: torch.amp.GradScaler | None = None) -> bool:
        """The backward pass of one batch; call it in place of `loss.backward()`.

        Args:
            loss: the mean loss over the batch's samples, a scalar.
            scaler: makes the gradients larger when given; then `scaler.step(optimizer)` comes, as always.
                Give the loader `state={"scaler": scaler}`, so that it is saved and moves with the state.

        Returns:
            Whether the global batch is complete: the gradients of all its shards are in the parameters,
            `loss`, `indices` and `step` tell about it, and it is time for the optimizer. If not, go on.

        Raises:
            ElasticError: there is no batch to which the loss could belong, the scaler is in no `state` that
                is saved or moves, the loop has run a backward pass of its own for the batch, or other
                parameters train than when the loader was made.
        """
        if self._fed is None:
            raise ElasticError("backward() was called without a batch", "call it once for each batch")
        self._check_scaler(scaler)
        piece, self._fed, self._scaler = self._fed, None, scaler
        self._passes.only_looked = False
        self._parameters.check_untouched()
        self._batches.look_ahead(self._session.coming, len(self._todo))
        self._sum.add(piece, loss, backward_of(loss, scaler), self._session.ready_for)
        if not self._entered:
            self._sum.set_back()
            return False
        if piece.samples:
            self._metrics.piece(self._own_time() - self._fed_at, piece.samples)
        self._todo.popleft()
        self._pass_unfed()
        return not self._todo and self._combine()

    # For the session

    @property
    def _reduce_device(self) -> torch.device | None:
        """The GPU on which gradients are added up where each worker has one; None: in the host's memory."""
        return self._sum.device

    def _progress(self) -> Mapping[str, Any]:
        told = {"total_steps": self.total_steps, "between": self._passes.between}
        if not self._entered or self.step == 0:
            return told
        counts = {"step": self.step, "loss": self.loss, "samples": self._samples_done}
        in_steps = self._metrics.take_steps(leads=self.rank == 0)
        return {**told, **counts, "metrics": self._metrics.take(), "in_steps": in_steps}

    # One step

    def _rehearsal(self) -> Iterator[Any]:
        """One batch for practice, so that whatever is slow or fails the first time does so before we join."""
        if not self._session.is_lone:
            self._sum.begin(Step(0, 1, 1, ()), LONE)
            yield from self._parameters.practised(self._offer(*self._batches.rehearsal()))

    def _next_piece(self, epoch: int) -> Piece | None:
        """The next piece to feed; None when the epoch is over."""
        if self._todo:
            self._sum.set_back()
            if self._session.recover():
                self._metrics.paused()
                self._plan_step()
        while not self._todo:  # twice where streams have ended, and the rest of an earlier epoch was fed
            if self._batches.cursor.epoch > epoch or self._batches.is_over:
                return None
            self._parameters.look(self.step if self._scaler is None else 0)
            self._save_as_ordered()
            self._session.boundary()
            self._plan_step()
        return self._todo[0] if self._batches.cursor.epoch <= epoch else None

    def _plan_step(self) -> None:
        """Find out which pieces of the next step are ours."""
        self._todo.clear()
        self._settle()
        if not self._batches.is_over:
            group = self._session.group
            step = self._batches.plan(group)
            if step.pieces:  # else streams have ended, and the cursor is the next epoch's
                self._epoch = self._batches.cursor.epoch
            self._todo.extend(step.pieces)
            self._sum.begin(step, group)
            self._pass_unfed()

    def _pass_unfed(self) -> None:
        while self._todo and not self._todo[0].is_fed:
            self._sum.add_nothing(self._todo.popleft())

    def _offer(self, piece: Piece, batch: Any) -> Iterator[Any]:
        self._sum.begin_piece()
        self._batches.draw(piece.number)
        self._fed, self._fed_at = piece, self._own_time()
        with self._parameters.own:
            yield batch
        if self._fed is not None:
            raise ElasticError(
                "the loop went on to the next batch without loader.backward(loss)",
                "call loader.backward(loss) once for each batch, in place of loss.backward()",
            )

    def _combine(self) -> bool:
        """Add up the pieces of all workers; False: a worker was lost, or there was nothing to add up."""
        self._parameters.check()
        self._sum.set_back()
        ready_for = self._session.ready_for

        def work(group: Group) -> Exchanged:
            exchanged = self._sum.exchange(group, ready_for)
            self._batches.tell(group, exchanged.agreed)
            return exchanged

        exchanged = self._session.exchange(work)
        if exchanged is None:
            self._metrics.paused()
            self._plan_step()
            return False
        totals = self._sum.apply(exchanged)
        if totals.samples == 0:
            self._batches.passed(0)
            return False
        self._complete(totals)
        return True

    def _complete(self, totals: Totals) -> None:
        self.loss, self.indices = totals.loss, self._batches.indices()
        self._batches.draw(self._sampling.shards_of(self._batches.cursor))
        self._samples_done += totals.samples
        self._batches.passed(totals.samples)
        self._parameters.own.begin(is_last=self._batches.is_over)
        self._metrics.step(self.step, self.loss, unscaled(self._norm, self._scaler))

    @property
    def _norm(self) -> Callable[[], float] | None:
        """Measures the gradients; on one worker only, as they are the same on all and reading takes time."""
        return self._parameters.norm if self.rank == 0 else None
