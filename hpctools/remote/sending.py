"""A submission's way to the cluster: sent as often as it takes, made once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.remote.meter import Meter
from hpctools.remote.session import Exchange, Refusal, Session
from hpctools.remote.shipping import Shipment
from hpctools.remote.transport import LostConnection
from hpctools.remote.wire import CHUNK

EAGER_BYTES = CHUNK
"""So much is sent unasked, which saves a round trip; of more the cluster first says what it has already."""


class Unsure(UnreachableError):
    """The request may have got through before something failed, with that failure's exit code."""

    def __init__(self, cause: HpctoolsError, name: str) -> None:
        again = f"give the same line with --submission {name}: it is submitted once"
        super().__init__(
            f"{cause.message}; it is not known whether it was submitted",
            f"{cause.remedy}; {again}" if cause.remedy else again,
        )
        self.exit_code = cause.exit_code


def send(
    session: Session,
    shipment: Shipment,
    meter: Meter | None = None,
    before_end: Callable[[], None] = lambda: None,
) -> Mapping[str, Any]:
    """Submit; returns what the cluster says of it.

    Args:
        meter: shows how far the files are.
        before_end: called before the first message after which it may be submitted.

    Raises:
        Refusal: the cluster's hp-submit said no.
        Unsure: whether the job is there is not known.
        HpctoolsError: nothing was sent, or the cluster says what is wrong.
    """
    way = _Way(session, shipment, meter or Meter(), before_end)
    try:
        return way.go()
    except Refusal:
        raise
    except HpctoolsError as error:
        if way.broke and not shipment.request.get("trial"):
            raise Unsure(error, shipment.id) from None
        raise
    finally:
        way.meter.clear()


@dataclass
class _Way:
    """A shipment that is on its way.

    Attributes:
        broke: a line broke on which the request had been sent. Before that nobody can have submitted it.
        left: bytes that the cluster did not have when it was last asked; None: it was not asked yet.
        ended: when all of it was sent first, Unix seconds. Before that nobody can have submitted it; from
            then on the cluster is told, for another login node may see nothing of what this one did.
    """

    session: Session
    shipment: Shipment
    meter: Meter
    before_end: Callable[[], None]
    broke: bool = False
    left: int | None = None
    ended: float | None = None

    def go(self) -> Mapping[str, Any]:
        """Send it, as often as it takes; a line that breaks gets all attempts anew once more has come."""
        while True:
            before = self.shipment.size if self.left is None else self.left
            try:
                return self.session.again(self.attempt)
            except UnreachableError:
                if self.left is None or self.left >= before:
                    raise

    def attempt(self) -> Mapping[str, Any]:
        """Send it once."""
        eager = self.shipment.size <= EAGER_BYTES
        request = {**self.shipment.request, "eager": eager, **self._again()}
        with self.session.exchange(request) as exchange, self._watched():
            if eager:
                needed: Sequence[Sequence[int]] = [(index, 0) for index in range(len(self.shipment.files))]
            else:
                answer = exchange.get()
                if "result" in answer.fields:
                    done: Mapping[str, Any] = answer["result"]
                    return done
                needed = answer["need"]
                self.left = self._bytes(needed)
            # It may have answered without reading to the end; the answer says more than the broken line.
            with contextlib.suppress(LostConnection):
                self._send_files(exchange, needed)
            return exchange.result()

    def _again(self) -> Mapping[str, Any]:
        if self.ended is None or "again" in self.shipment.request:
            return {}
        return {"again": True, "age": max(0.0, time.time() - self.ended)}

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except LostConnection:
            self.broke = True
            if self.shipment.request.get("trial"):
                self.shipment = self.shipment.renewed()
            raise

    def _send_files(self, exchange: Exchange, needed: Sequence[Sequence[int]]) -> None:
        self.meter.expect(self._bytes(needed))
        for index, offset in needed:
            for data in self.shipment.files[index].read(offset):
                exchange.put({"file": index, "offset": offset}, data)
                offset += len(data)
                self.meter.add(len(data))
        if self.ended is None:
            self.before_end()
            self.ended = time.time()
        exchange.put({"end": True})

    def _bytes(self, needed: Sequence[Sequence[int]]) -> int:
        stated = self.shipment.request["files"]
        return sum(int(stated[index]["size"]) - offset for index, offset in needed)
