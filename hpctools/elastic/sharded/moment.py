"""What is written down with a checkpoint of a sharded training, and agreed on by all who write it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from hpctools.elastic.checkpoint.manifest import Manifest
from hpctools.elastic.checkpoint.saver import Origin
from hpctools.elastic.folder import utc_now


@dataclass(frozen=True)
class Moment:
    """What is saved.

    Attributes:
        step: completed steps.
        rank, world: of the generation that saves.
        origin: run, term and generation.
        training: for the manifest.
        rounds: exchanges that it is the state after; -1: as many as steps.
    """

    step: int
    rank: int
    world: int
    origin: Origin
    training: Mapping[str, Any]
    rounds: int = -1

    @property
    def label(self) -> str:
        """The same on all ranks, and another one for each attempt."""
        if not self.origin.run:  # nobody else need know it
            return secrets.token_hex(4)
        return f"{self.origin.label}{self.origin.term}.{self.origin.generation}"

    def manifest(self) -> Manifest:
        """What is written down of it, with the present time."""
        return Manifest(
            self.step,
            self.origin.run,
            self.origin.term,
            self.origin.generation,
            utc_now(),
            torch.__version__,
            training={**self.training, "sharded_over": self.world},
        )
