"""A submission's way to the cluster: sent as often as it takes, made once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpctools.errors import HpctoolsError, RemoteError, UnreachableError
from hpctools.remote.diary import NEVER, Earlier
from hpctools.remote.meter import Meter
from hpctools.remote.patience import Patience, passes
from hpctools.remote.session import Exchange, Refusal, Session
from hpctools.remote.shipping import Shipment
from hpctools.remote.transport import LostConnection
from hpctools.remote.wire import CHUNK

EAGER_BYTES = CHUNK
"""So much is sent unasked, which saves a round trip; of more the cluster first says what it has already."""


class Unfinished(UnreachableError):
    """The upload broke off before its end, with that failure's exit code: this command submitted nothing."""

    said = "the upload is not complete, so nothing was submitted now"
    again = "what has come there is kept"

    def __init__(self, cause: HpctoolsError, name: str) -> None:
        again = f"give the same line with --submission {name}: {self.again}"
        super().__init__(
            f"{cause.message}; {self.said}", f"{cause.remedy}; {again}" if cause.remedy else again
        )
        self.exit_code = cause.exit_code


class Unsure(Unfinished):
    """The whole request may have got through before something failed, with that failure's exit code."""

    said = "it is not known whether it was submitted"
    again = "it is submitted once"


def send(
    session: Session,
    shipment: Shipment,
    meter: Meter | None = None,
    note: Callable[..., None] = lambda **_: None,
    earlier: Earlier = NEVER,
) -> Mapping[str, Any]:
    """Submit; returns what the cluster says of it.

    Args:
        meter: shows how far the files are.
        note: called with `whole=True` before the first message after which it may be submitted, and with
            `unmade=True` once the cluster says that it was not.
        earlier: what is known of earlier commands with the same id.

    Raises:
        Refusal: the cluster's hp-submit said no.
        Unsure: whether the job is there is not known.
        Unfinished: a line broke while it was sent, and was waited for in vain.
        HpctoolsError: nothing was sent, or the cluster says what is wrong.
    """
    way = _Way(session, shipment, meter or Meter(), note, earlier)
    try:
        return way.go()
    except Refusal:
        raise
    except HpctoolsError as error:
        if not way.broke or shipment.request.get("trial"):
            raise
        raise (Unsure if way.ended else Unfinished)(error, shipment.id) from None
    finally:
        way.meter.clear()


@dataclass
class _Way:
    """A shipment that is on its way.

    Attributes:
        broke: a line broke on which the request was being sent: the cluster was there.
        ended: when the end of the request was sent first, Unix seconds. Before that nobody can have submitted
            it; from then on the cluster is told, for another login node may see nothing of what this one did.
        left: bytes that the cluster does not have, by what it last said and what was sent since.
        least: the fewest that were ever left. What was sent on a line that broke may be sent again.
    """

    session: Session
    shipment: Shipment
    meter: Meter
    note: Callable[..., None]
    earlier: Earlier = NEVER
    broke: bool = False
    ended: float | None = None
    left: int = 0
    least: int = -1

    def go(self) -> Mapping[str, Any]:
        """Send it, as often as it takes; once a line broke it is waited for, anew whenever more was sent."""
        patience, before = Patience(self.session), self.least
        while True:
            try:
                return self.session.again(self.attempt)
            except HpctoolsError as error:
                if self.least != before:
                    patience.renew()
                before = self.least
                if not (self.broke and passes(error) and patience.wait(error)):
                    raise

    def attempt(self) -> Mapping[str, Any]:
        """Send it once."""
        eager = self.shipment.size <= EAGER_BYTES
        self.left = self.shipment.size
        request = {**self.shipment.request, "eager": eager, **self._again()}
        with self.session.exchange(request) as exchange, self._watched(exchange):
            if eager:
                needed: Sequence[Sequence[int]] = [(index, 0) for index in range(len(self.shipment.files))]
            else:
                answer = exchange.get()
                if "result" in answer.fields:
                    done: Mapping[str, Any] = answer["result"]
                    return done
                needed = answer["need"]
                self._is_left(self._bytes(needed))
            # It may have answered without reading to the end; the answer says more than the broken line.
            with contextlib.suppress(LostConnection):
                self._send_files(exchange, needed)
            return exchange.result()

    def _is_unmade(self) -> None:
        """Nothing of what was sent was submitted, and no attempt before was sent to its end."""
        if self.ended is not None:
            self.ended = None
            with contextlib.suppress(RemoteError):  # a repetition waits a little, then
                self.note(unmade=True)

    def _again(self) -> Mapping[str, Any]:
        """What the cluster is told of what may have been submitted; how long ago as of now: days may lie
        between two attempts."""
        if self.ended is None and not self.earlier.again:
            return {}
        since = self.ended if self.earlier.since is None else self.earlier.since
        return {"again": True} if since is None else {"again": True, "age": max(0.0, time.time() - since)}

    @contextlib.contextmanager
    def _watched(self, exchange: Exchange) -> Iterator[None]:
        try:
            yield
        except LostConnection:
            self.broke = True
            if self.shipment.request.get("trial"):
                self.shipment = self.shipment.renewed()
            raise
        except HpctoolsError:
            if exchange.unmade:
                self._is_unmade()
            raise

    def _send_files(self, exchange: Exchange, needed: Sequence[Sequence[int]]) -> None:
        self.meter.expect(self._bytes(needed))
        for index, offset in needed:
            for data in self.shipment.files[index].read(offset):
                exchange.put({"file": index, "offset": offset}, data)
                offset += len(data)
                self._is_left(self.left - len(data))
                self.meter.add(len(data))
        if self.ended is None:
            self.note(whole=True)
            self.ended = time.time()
        exchange.put({"end": True})

    def _is_left(self, left: int) -> None:
        self.left = left
        self.least = left if self.least < 0 else min(self.least, left)

    def _bytes(self, needed: Sequence[Sequence[int]]) -> int:
        stated = self.shipment.request["files"]
        return sum(int(stated[index]["size"]) - offset for index, offset in needed)
