"""What all models of the site file have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Strict (nothing is converted), frozen, and without unknown keys; field docstrings are the reference.

    pydantic does not read these: reading the sources anew takes 0.2 s at the start of every command.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")
