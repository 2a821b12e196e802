"""Whom a keeper of checkpoints talks to: the run that its worker is part of, or nobody."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from hpctools.elastic.checkpoint.keeper import Order
from hpctools.elastic.checkpoint.measure import Grace
from hpctools.elastic.checkpoint.saver import Origin
from hpctools.elastic.checkpoint.settings import S3, Checkpoint, is_periodic
from hpctools.elastic.earlier_terms import events_of, last_saved
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
    """Nobody orders, nobody is preempted, nobody else writes; what a person should know is printed."""

    saves = True
    origin = Origin("", 0, 0)
    grace: Grace | None = None

    def fence(self, origin: Origin) -> str | None:
        """Nobody takes over."""
        return None

    def expected(self) -> str | None:
        """Nobody remembers."""
        return None

    def take_order(self) -> Order | None:
        """Nobody orders."""
        return None

    def tell(self, kind: str, **fields: Any) -> None:
        """Warnings are for the user, and that the training does not begin anew; the rest is not asked for."""
        if kind == "resumed":
            fields["message"] = f"goes on after step {fields['step']}, from {fields['where']}"
        if kind in ("warning", "resumed"):
            print(f"elastic: {fields['message']}", file=sys.stderr, flush=True)


class RunDesk:
    """The coordinator orders and is told; the first worker of each generation saves.

    Args:
        place: folder or address that the checkpoints are written to.
    """

    def __init__(self, folder: RunFolder, line: RunLine, place: str) -> None:
        self._folder = folder
        self._shares_storage = _share_storage(folder, place)
        self._line = line
        spec = folder.spec()
        self._run = spec.id
        # Nobody is preempted of a run of one size.
        self.grace = Grace(spec.graceful_seconds, spec.grace_seconds) if spec.max_replicas else None

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

        One that nobody can find, as its address cannot be written, has no workers who could save: until it is
        published, ours are the run. With no address at all, as when the run has ended, the claim counts.

        When the run's folder cannot be read, and the checkpoints lie on the same storage, nobody can have
        taken over either, and the checkpoint counts more. Others may be reached from a node that is cut off
        from the run's folder alone.

        Raises:
            ElasticError: it cannot be known.
        """
        ours = self._line.term
        try:
            current = self._folder.current_term()
            gone = current < ours  # an empty folder in the place of what was mounted
            if current > ours and self._folder.findable_term() == ours:
                current = ours
        except ElasticError:
            current, gone = 0, True
        if gone and not self._shares_storage:
            raise ElasticError(
                f"the run's folder {self._folder.path} cannot be read: others may have gone on without us",
                "nothing is committed until it can; see what became of the file system on this node",
            )
        return f"term {current} has begun, and we are of term {ours}" if current > ours else None

    def expected(self) -> str | None:
        """As the run's events tell."""
        return last_saved(events_of(self._folder))

    def take_order(self) -> Order | None:
        """As the coordinator's message says."""
        message = self._line.take_order()
        if message is None:
            return None
        known = {
            name: message[name] for name in ("why", "urgent", "seconds") if message.get(name) is not None
        }
        return Order(**{"why": "ordered", **known}, number=message.get("order"))

    def tell_settings(self, settings: Checkpoint) -> None:
        """The coordinator has to know whether something will be saved, and not what the script says of it."""
        self.tell("saving", by_itself=is_periodic(settings))

    def tell(self, kind: str, **fields: Any) -> None:
        """To the coordinator, who writes it down."""
        self._line.tell(kind, **fields)


def _share_storage(folder: RunFolder, place: str) -> bool:
    """Whether a place is on the run folder's own file system; False also where that cannot be seen now.

    What is wrong with the place is told by whoever reads it, who tries for longer.
    """
    if place.startswith(S3):
        return False
    path = Path(place).expanduser().absolute()
    try:
        existing = next(each for each in (path, *path.parents) if each.exists())
        return existing.stat().st_dev == folder.path.stat().st_dev
    except OSError:
        return False
