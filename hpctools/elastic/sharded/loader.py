"""The surface that a sharded training uses: `Loader` for a model that no worker holds as a whole."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.data import default_collate

from hpctools.elastic.agent_place import own_node
from hpctools.elastic.checkpoint import Checkpoint
from hpctools.elastic.checkpoint.desks import LoneDesk, RunDesk, RunLine
from hpctools.elastic.checkpoint.keeper import Desk
from hpctools.elastic.checkpoint.place import place_of, settings_of, settled
from hpctools.elastic.checkpoint.saver import Origin
from hpctools.elastic.checkpoint.way_back import NothingOldEnough
from hpctools.elastic.gradients import Totals
from hpctools.elastic.group import Group
from hpctools.elastic.loader import Loader
from hpctools.elastic.parameters import Parameters
from hpctools.elastic.passes import OPTIMIZER
from hpctools.elastic.reduction import Share, in_turn, neighbours
from hpctools.elastic.sampling import Cursor, Sampling, StreamSampling
from hpctools.elastic.session import Runner, Session
from hpctools.elastic.sharded.feeding import ShardedSum, in_step, passes_of
from hpctools.elastic.sharded.in_order import InOrder, check_optimizer, clip_in_order
from hpctools.elastic.sharded.keeping import ShardKeeper
from hpctools.elastic.sharded.moment import Moment
from hpctools.elastic.sharded.process_group import AFTER, IN_STEP
from hpctools.elastic.sharded.refused import check_mode, without_snapshots
from hpctools.elastic.sharded.shards import Setting, Shards
from hpctools.elastic.sharded.trained import Build
from hpctools.elastic.single_samples import smallest_shard, warn_of_single_samples
from hpctools.elastic.training import AnyDataset, Stateful
from hpctools.errors import ElasticError


class ShardedLoader(Loader):
    """Batches for a training whose model is sharded with FSDP2's `fully_shard` over workers that come and go.

        def build(mesh):
            model = Transformer(config)
            for layer in model.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
            return model, torch.optim.AdamW(model.parameters(), lr=3e-4)

        loader = elastic.ShardedLoader(build, dataset, batch_size=48, epochs=2, seed=1)
        for epoch in range(2):
            for inputs, targets in loader:
                loss = F.cross_entropy(loader.model(inputs), targets)
                if not loader.backward(loss):
                    continue
                loader.optimizer.step()
                loader.optimizer.zero_grad()

    `build` is called once before the first step and again at each resize: its model must be the same at
    each call, on every worker. Its first random values come from `seed`, so they do not depend on the number
    of workers. At a resize its values are not used: shards and optimizer state move between the workers,
    each byte once, and `torch.nn.init` is left out. `loader.optimizer` stays the same object (a scheduler
    over it goes on); `loader.model` is a new one after each resize, so take it from the loader in each step.

    Sampling, virtual shards, `backward`, `step`, `loss` and `indices` are as in `elastic.Loader`. Losses and
    buffers are added up in the fixed order of the virtual shards. Gradients are in `fast` mode added up by
    FSDP in the order of the ranks, so the result is that of a lone run up to rounding; in `exact` mode in
    that of the virtual shards, too, so it is that of a lone run to the bit. Every worker does the same number
    of passes a step; one that has fewer virtual shards is fed some without effect.

    torch's default process group is made by the loader, anew at each resize.

    Args:
        build: makes the model, shards it over the mesh that it is given (one dimension, all workers), and
            makes the optimizer over its parameters.
        dataset: the same on every worker; map-style, streams or any iterable, as in `elastic.Loader`. As
            streams end, workers do the passes that they would need samples for without effect.
        batch_size, epochs, seed, shards, state, collate, num_workers, threads: as in `elastic.Loader`.
        checkpoint: where and how often the training is saved, and what it begins from; every worker writes
            its own shards. None: as the run was submitted; without a run not at all.
        copy_steps: after every so many steps each worker's shards are copied, to its own memory and to
            one's on another node: when a worker or a node is lost, all go back to the copies, and no storage
            is needed.
            Takes twice the memory of the shards, four times while copying. 0: no copies.
        mode: `fast`, or `exact`: the same bits on any number of workers. Needs torch 2.9, gradients that are
            added up in the type of the parameters, an optimizer that treats each element by itself (AdamW,
            SGD; not fused on the CPU), `loader.clip_grad_norm_` in place of torch's, and virtual shards that
            all train the same parameters, once each. Takes memory for one more part of the gradients; on
            GPUs they are added up in the host's memory.
        device: of the mesh, `cpu` or `cuda` (the current one). FSDP's collectives of CUDA tensors go over
            nccl where each worker has a GPU of its own, else through the CPU.

    Raises:
        ElasticError: as `elastic.Loader` does; or `build` raised, returned no sharded model or another one
            than before, trains a parameter that is not sharded, or used another mesh; mode is `exact` and
            torch, the optimizer or a layer's MixedPrecisionPolicy does not let it; or `checkpoint` asks for
            snapshots.
        UnreachableError: the run's coordinator does not answer.

    Sources: `torch.distributed.fsdp.fully_shard` (FSDP2) shards the model; which shard overlaps with which,
    at a resize and when a checkpoint is read, says the load planner of `torch.distributed.checkpoint`. Why a
    process group and a checkpoint of our own: docs/decisions/0096-sharded-models.md; how exact mode adds up:
    docs/decisions/0212-sharded-models-to-the-bit.md.
    """

    def __init__(
        self,
        build: Build,
        dataset: AnyDataset,
        *,
        batch_size: int,
        epochs: int,
        seed: int = 0,
        shards: int = 12,
        state: Mapping[str, Stateful] | None = None,
        collate: Callable[[list[Any]], Any] = default_collate,
        num_workers: int = 0,
        checkpoint: Checkpoint | None = None,
        copy_steps: int = 0,
        mode: Literal["exact", "fast"] = "fast",
        device: Literal["cpu", "cuda"] = "cpu",
        threads: int | None = 1,
    ) -> None:
        check_mode(mode)
        self._is_exact = mode == "exact"
        self._share: Share = in_turn if self._is_exact else neighbours
        self._has_completed, self._mesh_device = False, device
        super().__init__(
            nn.Module(),
            torch.optim.SGD([torch.zeros(1)]),
            dataset,
            batch_size=batch_size,
            epochs=epochs,
            seed=seed,
            shards=shards,
            collate=collate,
            num_workers=num_workers,
            threads=threads,
        )
        self._shard_keeper = self._keeper_of(checkpoint)
        self._keeper = None
        self._stateful = {f"state {name}": value for name, value in (state or {}).items()}
        self._cut = in_step(self._sampling, self._share)
        if isinstance(self._sampling, StreamSampling):
            self._batches.fill = passes_of(self._sampling)
        spec = self._spec
        line: LoneDesk | RunLine = LoneDesk() if spec is None else cast("RunLine", self._session)
        setting = Setting(
            build,
            self._sampling.seed,  # numpy's as Python's
            device,
            partial(_run, self._session),  # not us: torch keeps who does collectives, and whom it holds
            workers_per_node=1 if spec is None else spec.workers_per_node,
            folder=None if self._folder is None else self._folder.path,
            saved=self._shard_keeper,
            copy_steps=copy_steps,
            node=own_node(os.environ),
            warn=lambda message: line.tell("warning", message=message),
        )
        self._shards = Shards(setting, self)
        if spec is None:
            self._shards.begin_alone()
        else:
            self._shards.pretend(spec.min_nodes * spec.workers_per_node)
        self._renew()
        if isinstance(sampling := self._sampling, Sampling):
            warn_of_single_samples(self.model, sampling, partial(smallest_shard, sampling.shards))

    @property
    def model(self) -> nn.Module:
        """The sharded model of the present generation; another object after each resize."""
        return self._shards.trained.model

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer; the same object for the whole training."""
        return self._shards.trained.optimizer

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clip the norm of all gradients together, as `torch.nn.utils.clip_grad_norm_`; on all workers.

        In exact mode with the same bits on any number of workers, which torch's has not: every gradient is
        gathered whole, one after the other, so it costs about as much as gathering the model once.

        Returns:
            The norm before, a scalar.
        """
        parameters = list(self._shards.trained.parameters.values())  # sharded, whatever is gathered now
        if self._is_exact:
            return clip_in_order(parameters, max_norm, norm_type)
        norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def track(self, name: str, state: Stateful) -> None:
        """Move a further object with the state, for example a scheduler over `loader.optimizer`.

        Raises:
            ElasticError: the training has begun, or the name is taken.
        """
        if self._entered or f"state {name}" in self._stateful:
            raise ElasticError(
                f"loader.track({name!r}) comes too late or twice", "call it once, before the first batch"
            )
        self._stateful[f"state {name}"] = state

    def __iter__(self) -> Iterator[Any]:
        """Our batches of the rest of one epoch, as `elastic.Loader` gives them.

        Raises:
            ElasticError: as `elastic.Loader`'s; or `build` does not make the same model at a resize. Also
                from collectives and passes of the model while `replays` holds and there are other workers.
            SystemExit: this worker's part has ended.
        """
        self._shards.group.replays = False
        yield from super().__iter__()
        self._shards.group.replays = self.replays
        if self._batches.is_over and self._passes.begun >= self._sampling.epochs:
            self._shards.group.phase = AFTER
            if self._shard_keeper is not None:
                self._shard_keeper.close()

    # For the session

    @property
    def _reduce_device(self) -> torch.device | None:
        """The GPU whose shards go over nccl where each worker has one; None: through the host."""
        on_gpu = self._mesh_device == "cuda"
        return torch.device("cuda", torch.cuda.current_device()) if on_gpu else None

    def _move(self, old: Group | None, new: Group | None, run: Runner) -> bool:
        """See `session.Resharding`."""
        self._parameters.check()  # the next model is built as the first one was
        self._shards.torn |= self._group_broke_between_steps()
        if self._shard_keeper is not None and _somebody_goes(old, new):
            self._shard_keeper.hurry()
        try:
            moved = self._shards.move(old, new, run)
        except NothingOldEnough as error:
            error.skipped = sorted(self._skipped)
            raise
        if old is None:
            self._metrics.forget()
        if moved and new is not None:
            self._renew()
            self._has_completed = False
            if self._shard_keeper is not None and old is None:
                self._shard_keeper.rolled_back(self._steps)
        return moved

    def _finish_part(self) -> None:
        """Of the checkpoint that is being written."""
        if self._shard_keeper is not None:
            self._shard_keeper.leave()

    def _moved(self) -> Mapping[str, Any]:
        """Where the state came from, where it waited, and how many bytes this worker received and kept."""
        return self._shards.detail

    def _roll_back(self, to_step: int, skip: Sequence[int]) -> bool:
        """Give up what is after `to_step` steps; `_move` finds the state to go on from."""
        self._metrics.forget()
        self._skipped |= frozenset(skip)
        if self._shard_keeper is not None:
            self._shard_keeper.limit = to_step
        if self._steps > to_step:
            self._shards.give_up_after(to_step)
        return self._steps <= to_step

    def _check_readable(self, *, moves: bool) -> None:
        """As `elastic.Loader` does, of all that is not sharded."""
        super()._check_readable(moves=moves or self._shard_keeper is not None)

    def _begin(self) -> None:
        """The shards were begun already; what was tracked since goes on as it was saved, too.

        Raises:
            ElasticError: what was saved does not fit it.
        """
        try:
            self._shards.read_again()
        except KeyError as error:
            raise ElasticError(
                f"the newest checkpoint does not fit this training: it has no {error}",
                "track what was tracked there, or give another folder (elastic.Checkpoint(folder=...))",
            ) from None

    def _save_as_ordered(self) -> None:
        """Save when it was agreed on in the step that is complete."""
        if self._shard_keeper is not None:
            self._shard_keeper.boundary(self._steps, sound=math.isfinite(self.loss))
        # Only after a step, which all ranks of the generation have done: those that join come here, too.
        completed, self._has_completed = self._has_completed, False
        if completed and self._shards.copies.is_due(self._steps, self.world_size):
            self._shards.copy(self._session.collective)

    def _replayed(self) -> Mapping[str, Stateful]:
        return {**super()._replayed(), OPTIMIZER: self.optimizer}

    @property
    def _cursor(self) -> Cursor:
        """The place in the data that the state has come to."""
        return self._batches.cursor

    @property
    def _began(self) -> dict[int, int]:
        return self._batches.began

    def _capture_rest(self) -> Mapping[str, Any]:
        """All state but model and optimizer."""
        return self._capture()

    def _load_rest(self, state: Mapping[str, Any], *, saved: bool = False) -> None:
        """Become what another worker captured, or was `saved`: that may lack what we have."""
        self._restore(state, saved=saved)

    def _group_broke_between_steps(self) -> bool:
        """Whether collectives failed after the gradients were complete: the weights may be wrong then."""
        group = self._shards.group
        return group.void and not group.pretended and group.phase != IN_STEP

    def _renew(self) -> None:
        trained = self._shards.trained
        self._parameters = Parameters(trained.model, trained.optimizer)
        group = self._shards.group
        in_order = None
        if self._is_exact:
            check_optimizer(trained.optimizer, self._mesh_device)
            in_order = InOrder(trained.model, group)
        self._sharded_sum = ShardedSum(
            trained.model, group, self._wishes, self._share, in_order, self._metrics.is_due
        )
        self._sum = self._sharded_sum

    def _wishes(self, next_step: int) -> bool:
        return self._shard_keeper is not None and self._shard_keeper.wishes(next_step)

    def _keeper_of(self, checkpoint: Checkpoint | None) -> ShardKeeper | None:
        """As `checkpoint.attach` makes the keeper of a model that is not sharded."""
        folder = self._folder
        desk: Desk = LoneDesk()
        if folder is not None:
            settings = without_snapshots(settings_of(folder.spec(), checkpoint))
            place = place_of(folder, settings)
            desk = run_desk = RunDesk(folder, cast("RunLine", self._session), place)
            run_desk.tell_settings(settings)
        elif checkpoint is None or not (without_snapshots(checkpoint).folder or checkpoint.resume_from):
            return None
        else:
            settings = settled(checkpoint)
            place = settings.folder
        return ShardKeeper(
            settings, place, desk, lambda: self._shards.living(), self._moment, self._described
        )

    def _moment(self, origin: Origin) -> Moment:
        group = self._shards.group
        place = group.rank(), group.size()
        return Moment(self._steps, *place, origin, self._described(), self._completed)

    def _complete(self, totals: Totals) -> None:
        super()._complete(totals)
        self._shards.settled()
        self._has_completed = True
        if self._shard_keeper is not None:
            self._shard_keeper.agreed = self._sharded_sum.agreed

    def _own_time(self) -> float:
        """FSDP's collectives are awaited in the passes: without their time a slow rank looks like all."""
        return super()._own_time() - self._shards.group.waited

    def _combine(self) -> bool:
        self._sharded_sum.measure()
        return super()._combine()

    @property
    def _norm(self) -> Callable[[], float] | None:
        """Of all workers' gradients; the first one tells it."""
        norm = self._sharded_sum.norm
        return None if norm is None or self.rank != 0 else partial(float, norm)


def _run(session: Session, work: Callable[[Group], None]) -> bool:
    """Do a collective in the group's thread; False: we were called away."""

    def done(group: Group) -> bool:
        work(group)
        return True

    return session.collective(done) is not None


def _somebody_goes(old: Group | None, new: Group | None) -> bool:
    """Whether parts of what is being saved may never come: of who was lost, or leaves."""
    return old is None or new is None or new.world <= old.world
