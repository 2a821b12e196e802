"""The state of a training: what moves to workers that join, what is saved, and what it may become again."""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

import torch
from torch import nn

from hpctools.elastic.batches import Batches
from hpctools.elastic.belongings import check_scaler, check_scheduler
from hpctools.elastic.checkpoint.keeper import Keeper
from hpctools.elastic.checkpoint.way_back import NothingOldEnough
from hpctools.elastic.group import Group
from hpctools.elastic.metrics import Metrics
from hpctools.elastic.optimizer_state import keep_dtypes, keep_layouts
from hpctools.elastic.passes import OPTIMIZER, Passes
from hpctools.elastic.readable import check_readable
from hpctools.elastic.sampling import Cursor
from hpctools.elastic.training import Stateful
from hpctools.elastic.unsaved import NAME as UNSAVED
from hpctools.errors import ElasticError

MODEL = "model"


class Held:
    """Model, optimizer, scheduler and whatever else is stateful, and the place in the data.

    The states of random generators are not among it: they are functions of the place (see `randomness`).
    """

    def __init__(self, stateful: Mapping[str, Stateful], batches: Batches) -> None:
        self._stateful = dict(stateful)
        self._batches = batches
        self._keeper: Keeper | None = None
        self._travels = False
        self._told: set[str] = set()
        self._known_scalers: deque[torch.amp.GradScaler] = deque(maxlen=8)
        self._scaler: torch.amp.GradScaler | None = None
        self._metrics = Metrics()
        self._samples_done = 0
        self._skipped: frozenset[int] = frozenset()
        self._passes = Passes(lambda: self._replayed())
        self.loss = float("nan")

    @property
    def step(self) -> int:
        """Completed steps (global batches) since the beginning of the training."""
        return self._batches.cursor.step

    @property
    def replays(self) -> bool:
        """Whether the pass that the loop ended last was over before this process came; False within a pass.

        Such a pass is empty here (after a roll back it may have the rest of its epoch), and what stands after
        it was done by others then: `if loader.replays: continue`. Without that line it is done on weights of
        a later epoch, while all others wait or train on; what it changes in state that moves is undone.
        """
        return self._passes.replays

    @property
    def _completed(self) -> int:
        """How many rounds of all workers the state is the result of."""
        return self._batches.rounds

    def _capture(self) -> Mapping[str, Any]:
        """The whole state of the training."""
        parts = {name: part.state_dict() for name, part in self._stateful.items()}
        counts = {"loss": self.loss, "samples": self._samples_done, "skipped": sorted(self._skipped)}
        return {**parts, **counts, **self._passes.capture(), **self._batches.capture()}

    def _check_readable(self, *, moves: bool) -> None:
        """Before the first step: whether what will be saved, or moved when it `moves`, can be read back.

        Warns where a scheduler is not part of it.

        Raises:
            ElasticError: something in it cannot.
        """
        self._travels = moves or self._keeper is not None
        if self._travels:
            check_readable(self._capture())
            self._batches.unchecked = True  # what streams say of their places is known when they are read
            optimizer = cast("torch.optim.Optimizer", self._replayed()[OPTIMIZER])
            check_scheduler(optimizer, self._stateful.values())

    def _check_scaler(self, scaler: torch.amp.GradScaler | None) -> None:
        """Of the loop's gradient scaler: whether it is saved and moved, too.

        Raises:
            ElasticError: it is not.
        """
        if self._travels and scaler is not None and all(each is not scaler for each in self._known_scalers):
            check_scaler(scaler, self._stateful.values())
            self._known_scalers.append(scaler)

    def _load(self, state: Mapping[str, Any]) -> None:
        """Become what another worker captured."""
        self._metrics.forget()
        if self._keeper is not None:
            self._keeper.forget()
        self._become(state)

    def _begin(self) -> None:
        """No worker has a state: become that of the newest whole checkpoint, or stay as built.

        Raises:
            NothingOldEnough: the training was rolled back, and no state from before is left.
            ElasticError: the place of the checkpoints cannot be read, or a checkpoint does not fit.
        """
        try:
            restored = self._keeper.begin(self._steps) if self._keeper is not None else None
        except NothingOldEnough as error:
            error.skipped = sorted(self._skipped)
            raise
        if restored is not None:
            try:
                self._restore(restored)
            except (RuntimeError, ValueError, KeyError) as error:
                raise ElasticError(
                    f"the newest checkpoint does not fit this training: {' '.join(str(error).split())}",
                    "train what was saved there, or give another folder (elastic.Checkpoint(folder=...))",
                ) from None

    def _roll_back(self, to_step: int, skip: Sequence[int]) -> bool:
        """Become what the state was after at most `to_step` steps; leave out the batches of steps `skip`."""
        self._metrics.forget()
        earlier = self._keeper.roll_back(to_step, self._steps) if self._keeper is not None else None
        if earlier is not None:
            self._restore(earlier)
        self._skipped |= frozenset(skip)
        return self._steps <= to_step

    def _save_as_ordered(self) -> None:
        """Save if it is ordered, or time."""
        if self._keeper is not None:
            sound = self._steps == 0 or math.isfinite(self.loss)
            self._keeper.boundary(self._steps, sound=sound, rounds=self._completed)

    def _has_put_off(self) -> bool:
        """Whether an order to save waits until what is being written is complete."""
        return self._keeper is not None and self._keeper.has_put_off

    @property
    def _steps(self) -> int:
        """Completed steps; the rounds of all workers are some more when streams end unevenly."""
        return self._batches.cursor.step

    def _settle(self) -> None:
        """The state is that of between two steps: pass over the steps that are to be left out.

        Also has done again what stands between passes, when a roll back undid it.
        """
        if self._keeper is not None:
            self._keeper.settled(self._steps)
        while self._steps + 1 in self._skipped and not self._batches.is_over:
            self._batches.skip()
        self._passes.catch_up(self._batches.cursor.epoch)

    def _restore(self, state: Mapping[str, Any], *, saved: bool = True) -> None:
        """Go back to a state; where a later epoch began stays known: its first batch may be left out."""
        began = self._batches.began
        self._become(state, saved=saved)
        self._batches.began |= began

    def _become(self, state: Mapping[str, Any], *, saved: bool = False) -> None:
        """Go on from a state.

        Args:
            saved: by a script that may have given its loader less to save: what it lacks stays as it is.
        """
        model: object = self._stateful.get(MODEL)
        lacking = self._lacking(state) if saved else ()
        for name, part in self._stateful.items():
            if name in lacking or (name == UNSAVED and name not in state):  # as earlier releases saved it
                continue
            part.load_state_dict(state[name])
            if isinstance(part, torch.optim.Optimizer) and isinstance(model, nn.Module):
                keep_dtypes(part, state[name], model, state[MODEL])
                keep_layouts(part)
        self._batches.load(state)
        self.loss = state["loss"]
        self._samples_done = state["samples"]
        self._skipped |= frozenset(state["skipped"])
        self._passes.restore(state, self._batches.cursor.epoch)

    def _lacking(self, state: Mapping[str, Any]) -> Sequence[str]:
        """What we were given besides model and optimizer, and a checkpoint has not; it is told once each."""
        needed = (MODEL, OPTIMIZER, UNSAVED)
        lacking = [name for name in self._stateful if name not in state and name not in needed]
        for name in (each for each in lacking if each not in self._told):
            warnings.warn(
                f"the checkpoint has no {name}: it is not changed, and goes on as the script has made it",
                RuntimeWarning,
                stacklevel=2,
            )
        self._told |= set(lacking)
        return lacking

    def _replayed(self) -> Mapping[str, Stateful]:
        """What code between passes may change: not the model, whose steps are done in passes."""
        return {name: part for name, part in self._stateful.items() if name not in (MODEL, UNSAVED)}

    def _own_time(self) -> float:
        """Seconds on a clock that stands still while a piece waits for other workers."""
        return time.monotonic()

    def _place(self, ahead: int) -> Mapping[str, int]:
        """Where in the data the training will be after so many steps from now on."""
        return asdict(self._batches.place(ahead))

    def _foresee(self, group: Group, place: Mapping[str, int] | None) -> None:
        """Load what we shall be fed in a group that begins there; None: where we are."""
        here = self._batches.cursor
        # A later release may tell more.
        there = here if place is None else Cursor(place["step"], place["epoch"], place["offset"])
        self._batches.begins(group, there)

    def _described(self) -> Mapping[str, Any]:
        """What a checkpoint's manifest tells about the place in the data."""
        return {"cursor": asdict(self._batches.cursor), **asdict(self._batches.sampling)}
