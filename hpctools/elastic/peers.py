"""Who is connected with the coordinator."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hpctools.elastic.protocol import encode


@dataclass
class Agent:
    """An agent that has reported, and what runs under it."""

    writer: asyncio.StreamWriter
    name: str
    order: tuple[int, int]
    node: str
    job_id: int
    is_baseline: bool
    seen: float
    leaving: bool = False
    running: set[str] = field(default_factory=set)
    restarts: int = 0
    reason: str = "lost"


@dataclass
class Worker:
    """A worker that has reported."""

    writer: asyncio.StreamWriter
    name: str
    agent: str
    seen: float


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        state: finished, failed or cancelled.
        message: why; empty when finished.
    """

    state: str
    message: str = ""


def write(writer: asyncio.StreamWriter, kind: str, **fields: Any) -> None:
    """Send a message; a peer that is gone is noticed by who reads from it."""
    writer.write(encode(kind, **fields))
