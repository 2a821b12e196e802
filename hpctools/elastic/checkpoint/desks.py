"""Whom a keeper of checkpoints talks to: the run that its worker is part of, or nobody."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol

from hpctools.elastic.checkpoint.keeper import Order
from hpctools.elastic.checkpoint.saver import Origin
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.group import Group
from hpctools.errors import ElasticError


class RunLine(Protocol):
    """The part of a worker's session that a desk uses."""

    @property
    def group(self) -> Group:
        """The group of the generation in force."""
        ...

    @property
    def term(self) -> int:
        """Of the coordinator that we obey."""
        ...

    def take_order(self) -> Mapping[str, Any] | None:
        """The coordinator's last order to save, once."""
        ...

    def tell(self, kind: str, **fields: Any) -> None:
        """Tell the coordinator something; from any thread."""
        ...


class LoneDesk:
    """Nobody orders, nobody is preempted, nobody else writes; warnings go to standard error."""

    saves = True
    origin = Origin("", 0, 0)
    grace_seconds: float | None = None

    def fence(self, origin: Origin) -> str | None:
        """Nobody takes over."""
        return None

    def take_order(self) -> Order | None:
        """Nobody orders."""
        return None

    def tell(self, kind: str, **fields: Any) -> None:
        """Warnings are for the user; the rest is not asked for."""
        if kind == "warning":
            print(f"elastic: {fields['message']}", file=sys.stderr, flush=True)


class RunDesk:
    """The coordinator orders and is told; the first worker of each generation saves."""

    def __init__(self, folder: RunFolder, line: RunLine) -> None:
        self._folder = folder
        self._line = line
        spec = folder.spec()
        self._run = spec.id
        self.grace_seconds: float | None = spec.graceful_seconds

    @property
    def saves(self) -> bool:
        """Whether we are rank 0 of the generation in force."""
        return self._line.group.rank == 0

    @property
    def origin(self) -> Origin:
        """Run, term and generation."""
        return Origin(self._run, self._line.term, self._line.group.number)

    def fence(self, origin: Origin) -> str | None:
        """A coordinator of a later term than ours may have replaced us.

        When its folder cannot be read, nobody can have taken over either, and the checkpoint counts more.
        """
        try:
            current = self._folder.current_term()
        except ElasticError:
            return None
        if current > self._line.term:
            return f"term {current} has begun, and we are of term {self._line.term}"
        return None

    def take_order(self) -> Order | None:
        """As the coordinator's message says."""
        message = self._line.take_order()
        if message is None:
            return None
        known = {
            name: message[name] for name in ("why", "urgent", "seconds") if message.get(name) is not None
        }
        return Order(**{"why": "ordered", **known})

    def tell(self, kind: str, **fields: Any) -> None:
        """To the coordinator, who writes it down."""
        self._line.tell(kind, **fields)
