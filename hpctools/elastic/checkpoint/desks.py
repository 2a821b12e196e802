"""The desk of a process that is in no run: it alone trains, and it says things on standard error."""

from __future__ import annotations

import sys
from typing import Any

from hpctools.elastic.checkpoint.keeper import Order
from hpctools.elastic.checkpoint.saver import Origin


class LoneDesk:
    """Nobody orders, nobody is preempted, nobody else writes."""

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
