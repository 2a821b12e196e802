"""The passes of a training's loop, and what stands between them, such as `scheduler.step()` after each epoch.

That code is the training's own, and runs once in each process for each pass of its loop. It is to count once
in the training, so there are two cases to mend:

- A process that came later runs through earlier passes with nothing to feed. What the code does there is in
  the state already, and is undone: before the next of these passes, so that it does not pile up.
- After a roll back over an epoch's end the loop does not come round again: the rest of the earlier epoch is
  fed in the pass that is on. What the code did the first time was noted, and is put in its place again. A
  process that came in between comes to the end of the earlier pass itself: what its code does there, where a
  batch that was left out may make it something else, is undone, and the same put in its place.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch

from hpctools.elastic.training import Stateful

OPTIMIZER = "optimizer"
"""Of it only the settings, such as the learning rate, are changed between passes."""
MOST_KEPT = 16
"""Over the ends of so many passes a training can go back."""
MOST_BYTES = 64 << 20
"""Of tensors, in all that is noted: each snapshot, checkpoint and worker that joins takes them along."""
SMALL_BYTES = 1 << 20
"""Of what is put back before each pass that is run through; what is larger is put back only at last."""
UNKNOWN = "not noted"
"""Among what was noted of a pass, when it is not all."""
WHOLE = "the whole state"
"""Name of the one value of an object whose state is no mapping."""

Values = Mapping[str, Any]


class Passes:
    """Counts the loop's passes.

    Args:
        changeable: what code between passes may change, by name.

    Attributes:
        begun: passes that this process has begun.
        counted: passes for which the state has what the code after them did.
        only_looked: whether the last pass was left before `backward`: it is none, as of `next(iter(loader))`.
        replays: whether we stand after a pass whose end others have come to before; False within a pass.
        between: whether the loop is in no pass now: before the first, after the last, or after one that has
            ended or was left.
    """

    def __init__(self, changeable: Callable[[], Mapping[str, Stateful]]) -> None:
        self._changeable = changeable
        self.begun = 0
        self.counted = 0
        self.only_looked = self.replays = False
        self.between = True
        self._goes_back = True
        self._before_replay: Mapping[str, Values] | None = None
        self._small: Mapping[str, Values] = {}  # of it
        self._at_end: Mapping[str, Mapping[str, int] | None] | None = None
        self._done: dict[int, dict[str, dict[str, Any]]] = {}  # by number of the pass

    def begin(self) -> int:
        """The number of the pass, from 0; the code after the one before has been run."""
        number = self.begun - self.only_looked
        self.begun, self.only_looked, self.replays = number + 1, True, False
        if self._before_replay is not None:
            self._undo(self._before_replay, number)
        if self._at_end is not None:
            self._note(number - 1, self._at_end)
            self._at_end = None
        self.counted = max(self.counted, number)
        return number

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        """While a pass feeds the loop, to its end or until the loop leaves it."""
        self.between = False
        try:
            yield
        finally:
            self.between = True

    def end(self, number: int, *, goes_back: bool = True) -> None:
        """The code after the pass comes next: does it count, or is it in the state, or noted, already?

        Args:
            goes_back: whether the training may ever go back over this; else nothing need be noted.
        """
        self._goes_back, self.only_looked = goes_back, False
        # Of the oldest passes nothing is kept, but a later one tells that the training has been further.
        self.replays = number < self.counted or number <= max(self._done, default=-1)
        if self.replays:
            if self._before_replay is None:
                self._before_replay = before = self._copied(number)
                self._small = {name: values for name, values in before.items() if _is_small(values)}
        elif goes_back:
            self._at_end = {name: _digests(values) for name, values in self._values()}

    def catch_up(self, epoch: int) -> None:
        """The next step is one of an epoch: do what was done after the passes before it, unless that is done.

        Only a training that has gone back is behind: the loop itself has come so far already.
        """
        while self.counted < min(epoch, self.begun - 1):
            noted = dict(self._done.get(self.counted, {UNKNOWN: {}}))
            if noted.pop(UNKNOWN, None) is not None and self._goes_back:
                warnings.warn(
                    f"rolled back over the end of pass {self.counted}: what stands after it in the loop is "
                    "not known any more, and was not done again",
                    stacklevel=2,
                )
            self._put(copy.deepcopy(noted), whole=False)
            self.counted += 1

    def capture(self) -> Mapping[str, Any]:
        """For another worker, and for a checkpoint."""
        return {"passes": self.counted, "between": self._done}

    def restore(self, state: Mapping[str, Any], epoch: int) -> None:
        """Go on from what was captured; checkpoints of earlier releases may not tell."""
        self.counted = int(state.get("passes", epoch))
        self._done |= copy.deepcopy(dict(state.get("between", {})))
        self._before_replay = self._at_end = None
        self._small = {}

    def _undo(self, before: Mapping[str, Values], number: int) -> None:
        """Put back what the code after a pass that we run through has changed."""
        if number >= self.counted:
            self._put(before, whole=True)
            self._before_replay, self._small = None, {}
            self.catch_up(number)
            return
        self._put(copy.deepcopy(self._small), whole=True)  # a scheduler goes on with these very values

    def _note(self, number: int, before: Mapping[str, Mapping[str, int] | None]) -> None:
        """What the code after a pass has changed, and nothing else: steps change more, and are done again."""
        noted: dict[str, dict[str, Any]] = {}
        self._done[number] = noted
        for name, values in self._values():
            room = MOST_BYTES - _size(noted)
            if (changed := _changed(values, before.get(name, {}), room)) is None:
                noted[UNKNOWN] = {}
            elif changed:
                noted[name] = changed
        while len(self._done) > MOST_KEPT or _size(self._done) > MOST_BYTES:
            del self._done[min(self._done)]

    def _copied(self, number: int) -> Mapping[str, Values]:
        """What the code after an earlier pass may change, to undo that."""
        copied: dict[str, Values] = {}
        for name, values in self._values():
            try:
                copied[name] = copy.deepcopy(values)
            except Exception as error:  # noqa: BLE001 - whatever the object is, it worked before we copied it
                warnings.warn(
                    f"what stands after pass {number} in the loop is done again to the {name}, which cannot "
                    f"be copied: {error!r}",
                    stacklevel=4,
                )
        return copied

    def _values(self) -> Iterator[tuple[str, Values]]:
        for name, part in self._changeable().items():
            if name == OPTIMIZER:
                yield name, _settings(part)
                continue
            state: Any = part.state_dict()
            yield name, state if isinstance(state, Mapping) else {WHOLE: state}

    def _put(self, given: Mapping[str, Values], *, whole: bool) -> None:
        parts = self._changeable()
        for name, values in given.items():
            if (part := parts.get(name)) is None:
                continue  # what was saved is of a script that had more in `state`
            if name == OPTIMIZER:
                for number, group in enumerate(cast("Any", part).param_groups):
                    group.update(_of_group(values, number))
            elif WHOLE in values:
                part.load_state_dict(values[WHOLE])
            else:
                part.load_state_dict(dict(values) if whole else {**part.state_dict(), **values})


def _settings(optimizer: Any) -> dict[str, Any]:
    """Learning rate and the like, of each group of parameters: by its number and their name."""
    return {
        f"{number} {name}": value
        for number, group in enumerate(optimizer.param_groups)
        for name, value in group.items()
        if name != "params"
    }


def _of_group(settings: Values, number: int) -> dict[str, Any]:
    start = f"{number} "
    return {name[len(start) :]: value for name, value in settings.items() if name.startswith(start)}


def _changed(values: Values, before: Mapping[str, int] | None, room: int) -> dict[str, Any] | None:
    """Copies; None: it cannot be told, or not be kept in so many bytes."""
    after = _digests(values)
    if before is None or after is None:
        return None
    with contextlib.suppress(Exception):  # what cannot be copied need not be: the training is sound
        changed = {name: values[name] for name in values if after[name] != before.get(name)}
        # Before it is copied, where it lies: a GPU may have no room for another average of the weights.
        return copy.deepcopy(changed) if _size(changed) <= room else None
    return None


def _digests(values: Values) -> dict[str, int] | None:
    """One for each value: a copy of all would be too much for what averages a model's weights.

    Returns:
        None: something in it cannot be digested, such as a sparse tensor.
    """
    found = {}
    with contextlib.suppress(Exception):  # an object of the training's own may be anything
        for name, value in values.items():
            found[name] = 0
            for piece in _pieces(value):
                found[name] = zlib.crc32(piece, found[name])
        return found
    return None


def _pieces(value: Any) -> Iterator[bytes | memoryview]:
    """All that makes a value what it is."""
    if isinstance(value, torch.Tensor):
        # Of a sharded one our part: nobody else need be asked.
        part = getattr(value, "_local_tensor", value).detach().cpu().resolve_conj().resolve_neg().contiguous()
        yield f"{part.dtype} {tuple(part.shape)}".encode()
        yield part.reshape(-1).view(torch.uint8).numpy().data
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield repr(key).encode()
            yield from _pieces(each)
    elif isinstance(value, (list, tuple)):
        yield f"{type(value).__name__} {len(value)}".encode()
        for each in value:
            yield from _pieces(each)
    else:
        yield repr(value).encode()


def _is_small(values: Values) -> bool:
    """Whether it is soon copied, with all that is no tensor; of what cannot be pickled nobody knows."""
    with contextlib.suppress(Exception):  # an object of the training's own may be anything
        return _size(values) <= SMALL_BYTES and len(pickle.dumps(values)) <= SMALL_BYTES
    return False


def _size(value: Any) -> int:
    """Bytes of the tensors in it."""
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, Mapping):
        value = list(value.values())
    return sum(_size(each) for each in value) if isinstance(value, (list, tuple)) else 0
