"""What the shards need of the training around them: the rest of its state, and its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from hpctools.elastic.sampling import Cursor
from hpctools.elastic.sharded.layout import Part
from hpctools.elastic.sharded.moving import Source, Wanted
from hpctools.errors import ElasticError


class Rest(Protocol):
    """What moves besides model and optimizer: the cursor, schedulers, ...

    Attributes:
        _samples_done: in all steps; 0 before the first one, also when batches were left out.
        _skipped: numbers of the steps whose batches are left out.
    """

    _samples_done: int
    _skipped: frozenset[int]

    @property
    def _cursor(self) -> Cursor:
        """The place in the data that the state has come to."""
        ...

    @property
    def _began(self) -> dict[int, int]:
        """With streams, after how many steps epochs began, as far as that is known; may be added to."""
        ...

    def _capture_rest(self) -> Mapping[str, Any]:
        """All of it."""
        ...

    def _load_rest(self, state: Mapping[str, Any], *, saved: bool = False) -> None:
        """Become what another worker captured, or was `saved`: that may lack what we have."""
        ...


class Saved(Protocol):
    """Checkpoints of a sharded training."""

    @property
    def known(self) -> int:
        """None that may be used is of more completed steps, as far as this worker knows."""
        ...

    def newest(self, *, patiently: bool = True) -> int:
        """Step of the newest whole one; -1: there is none. Raises ElasticError when it cannot be known.

        Args:
            patiently: whether what cannot be read is tried again for longer than two seconds.
        """
        ...

    def unread(self, error: ElasticError) -> None:
        """`newest` raised that, and the workers had what was wanted."""
        ...

    def nothing_old_enough(self) -> ElasticError | None:
        """Why the training cannot go back; None: it is not about to."""
        ...

    def examples(self, step: int) -> Mapping[str, Part]:
        """An example part of each of its tensors."""
        ...

    def read(self, step: int, wanted: Wanted) -> Mapping[str, Any]:
        """Fill our parts; returns the unsharded state."""
        ...


NO_MEMORY = ("allocate memory", "out of memory")  # torch's words of the CPU's, and of CUDA itself


@contextmanager
def fitting(source: Source) -> Iterator[None]:
    """Where the state comes from a checkpoint: say so when the training has no place for it.

    Raises:
        ElasticError: it does not fit.
        RuntimeError: there is no memory for it, which may be otherwise at the next try.
    """
    try:
        yield
    except (ElasticError, RuntimeError, ValueError, KeyError) as error:
        if source.name != "checkpoint" or _is_for_want_of_memory(error):
            raise
        said = error.message if isinstance(error, ElasticError) else " ".join(str(error).split())
        raise ElasticError(
            "the newest checkpoint does not fit this training: "
            f"{f'it has no {said}' if isinstance(error, KeyError) else said}",
            "train what was saved there, or give another folder (elastic.Checkpoint(folder=...))",
        ) from None


def _is_for_want_of_memory(error: Exception) -> bool:
    if not isinstance(error, RuntimeError):
        return False
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in NO_MEMORY)
