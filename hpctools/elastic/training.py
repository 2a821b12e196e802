"""What a training hands to the loader."""

from __future__ import annotations

from typing import Any, Protocol


class Stateful(Protocol):
    """Anything that can be saved and restored, for example a learning-rate scheduler."""

    def state_dict(self) -> dict[str, Any]:
        """All that it needs to go on elsewhere: plain values, containers and tensors."""
        ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Go on from there."""
        ...


class MapDataset(Protocol):
    """A map-style data set, as torch.utils.data.Dataset with a length."""

    def __len__(self) -> int:
        """How many samples there are."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """One sample; the same at every call, but for random numbers drawn from torch, random or numpy."""
        ...
