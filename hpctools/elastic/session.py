"""What the loader asks of the run it is part of, and the answer of a process that is in none.

What the session in turn asks of the loader (`Transferable`, `Resharding`, `Restorable`, `Foreseeing`,
`OnDevice`) has an underscore before each name: the loader's own public names are for training scripts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch

from hpctools.elastic.folder import RunFolder
from hpctools.elastic.group import Group
from hpctools.elastic.own_run import keep_to_ourselves, own_run
from hpctools.elastic.pieces import Seated
from hpctools.errors import ElasticError

LONE = Group(0, 0, 1, None)
"""The group of a process that has nobody to talk to."""

_OF_TORCHRUN, _WORLD = "TORCHELASTIC_RUN_ID", "WORLD_SIZE"
_begun: list[int] = []  # ids of the processes that had a session in a run: ours, and whose fork we are


class Agreed(Protocol):
    """What an exchange of all ranks ends with."""

    @property
    def agreed(self) -> int:
        """The highest generation that all ranks are ready to switch to."""
        ...


Result = TypeVar("Result", bound=Agreed)
Worked = TypeVar("Worked")


class Transferable(Protocol):
    """The training's state, as the session moves it."""

    @property
    def _completed(self) -> int:
        """How many rounds of all workers it is the result of: the steps, and each end of streams."""
        ...

    @property
    def _steps(self) -> int:
        """How many steps of them; what people, checkpoints and roll backs count."""
        ...

    def _capture(self) -> Mapping[str, Any]:
        """All of it; tensors may be the living ones."""
        ...

    def _load(self, state: Mapping[str, Any]) -> None:
        """Become what another worker captured."""
        ...


class Runner(Protocol):
    """Does work in a group's thread and awaits it, with an ear for the coordinator."""

    def __call__(self, group: Group, work: Callable[[], Worked], /) -> Worked | None:
        """What the work returns; None: we were called away. Raises what the work raises."""
        ...


@runtime_checkable
class Resharding(Protocol):
    """A training's state of which every worker holds a part: it moves by itself."""

    # No property: what asks whether a state is one of these would read it, on a state that is half made.
    def _moved(self) -> Mapping[str, Any]:
        """How it last moved, for the event of the resize: JSON values."""
        ...

    def _move(self, old: Group | None, new: Group | None, run: Runner) -> bool:
        """Bring the state to the members of the next generation.

        Args:
            old: the group of the generation before, in a planned change; None for those that join, and in a
                recovery.
            new: the next one; None when we leave.
            run: for everything that talks to others.

        Returns:
            False: called away, and the state is what it was.

        Raises:
            RuntimeError: a group broke; the state is what it was.
        """
        ...

    def _finish_part(self) -> None:
        """We have left: end what others wait for from us, for as long as they do."""
        ...


@runtime_checkable
class Restorable(Protocol):
    """A training's state that is saved and can come from what was saved, not only from another worker."""

    def _begin(self) -> None:
        """No worker has a state: become what was saved last, or stay as built.

        Raises:
            NothingOldEnough: after a roll back, and what is there is of later steps.
        """
        ...

    def _roll_back(self, to_step: int, skip: Sequence[int]) -> bool:
        """Become again what the state was after at most `to_step` steps, if that is in memory.

        Args:
            skip: numbers of steps (the first is 1) whose batches are passed over when they come again.

        Returns:
            False: no such state is left here; another worker gives one, or `begin` finds one that is saved.
        """
        ...

    def _save_as_ordered(self) -> None:
        """Carry out an order to save that has come in, if any; the training stands still."""
        ...

    def _has_put_off(self) -> bool:
        """Whether an order to save waits until what is being written is complete."""
        ...


@runtime_checkable
class Foreseeing(Protocol):
    """A training that can load what it will be fed after a change before that comes."""

    def _place(self, ahead: int) -> Mapping[str, int]:
        """Where in its data it will be after so many steps from now on."""
        ...

    def _foresee(self, group: Group, place: Mapping[str, int] | None) -> None:
        """Load what we shall be fed in a group that begins now, or after the next step.

        Args:
            place: where in the data, as another worker's `_place` tells; None: where we are.
        """
        ...


@runtime_checkable
class OnDevice(Protocol):
    """A training whose gradients may be added up on GPUs."""

    @property
    def _reduce_device(self) -> torch.device | None:
        """The one GPU that they are on; None: they are added up in the host's memory."""
        ...


def device_of(state: object) -> torch.device | None:
    """The GPU on which a training's gradients may be added up."""
    return state._reduce_device if isinstance(state, OnDevice) else None


class Session(Protocol):
    """What the loader asks of the run it is part of."""

    @property
    def group(self) -> Group:
        """The group of the generation in force."""
        ...

    @property
    def is_lone(self) -> bool:
        """Whether there is no run: the training is an ordinary process."""
        ...

    def enter(self) -> None:
        """Everything is built and rehearsed: wait to be let in, and receive the state."""
        ...

    def boundary(self) -> None:
        """Between two steps: switch to the next generation, or leave, when that was agreed."""
        ...

    def recover(self) -> bool:
        """Within a step: be part of a recovery when there is one; True: the step is to be begun again."""
        ...

    def exchange(self, work: Callable[[Group], Result]) -> Result | None:
        """Do in the group's thread what all ranks do at the end of a step, and await it.

        Returns:
            What the work returns; None: the group broke (the work raised RuntimeError, or a member is
            gone), we are in the next group now, and the step is to be done again.
        """
        ...

    def collective(self, work: Callable[[Group], Worked]) -> Worked | None:
        """Do in the group's thread what all ranks do within a step, and await it.

        Returns:
            What the work returns; None: we were called away, and `recover` has to come before the next step.

        Raises:
            RuntimeError: the group broke; `exchange` finds the same and recovers.
        """
        ...

    def finish(self) -> bool:
        """The last step is done: wait until it is for everyone.

        Returns:
            Whether the state has gone back to an earlier one instead: steps are to be done again.
        """
        ...

    @property
    def ready_for(self) -> int:
        """The highest generation that we may switch to when all others may, too."""
        ...

    @property
    def coming(self) -> Seated | None:
        """Our place in a group that may come into force after the step in work; None: as far as is known."""
        ...


class LoneSession:
    """The training runs by itself, as one process."""

    is_lone = True
    ready_for = 0
    coming = None

    def __init__(self) -> None:
        self.group = LONE

    def enter(self) -> None:
        """Nobody to wait for."""

    def boundary(self) -> None:
        """Nothing changes."""

    def recover(self) -> bool:
        """Nobody can be lost."""
        return False

    def exchange(self, work: Callable[[Group], Result]) -> Result | None:
        """Done at once."""
        return work(self.group)

    def collective(self, work: Callable[[Group], Worked]) -> Worked | None:
        """Done at once."""
        return work(self.group)

    def finish(self) -> bool:
        """Nobody to wait for."""
        return False


def session_from(
    environ: MutableMapping[str, str], state: Transferable, progress: Callable[[], Mapping[str, Any]]
) -> Session:
    """The session that the process's environment describes: a worker's, or that of a lone process.

    A worker's environment no longer says so afterwards: nothing that the training starts is this worker.

    Raises:
        UnreachableError: the coordinator does not answer.
        ElasticError: the run's folder names none, this process has a session, or it is one of several that
            torchrun (or restart mode) has started.
    """
    if os.getpid() in _begun:
        raise ElasticError(
            "a second loader is made, and a worker of a run trains with one, whose steps, data and state are "
            "those of the run",
            "train everything with the one loader (models in an nn.ModuleList, data in one data set); "
            "evaluate with torch's DataLoader, and submit a second training as a run of its own",
        )
    if (run := own_run(environ)) is None:
        _check_alone(environ)
        return LoneSession()
    from hpctools.elastic.run_session import RunSession

    session = RunSession(RunFolder(run.path), run.worker, state, progress)
    _begun.append(os.getpid())
    keep_to_ourselves(environ)
    return session


def _check_alone(environ: Mapping[str, str]) -> None:
    """Each of torchrun's processes would train by itself, and all would write the same files."""
    count = environ.get(_WORLD, "1")
    if _OF_TORCHRUN in environ and count != "1":
        raise ElasticError(
            f"torchrun has started {count} of this process, and each loader would be a training of its own",
            "start the script with python: hp-submit --nodes MIN:MAX --ntasks-per-node N -- python SCRIPT; "
            "restart mode and torchrun are for scripts without hpctools.elastic's loaders",
        )
