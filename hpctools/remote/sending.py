"""A submission's way to the cluster: sent as often as it takes, made once."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from hpctools.errors import HpctoolsError, UnreachableError
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


def send(session: Session, shipment: Shipment) -> Mapping[str, Any]:
    """Submit; returns what the cluster says of it.

    Raises:
        Refusal: the cluster's hp-submit said no.
        Unsure: whether the job is there is not known.
        HpctoolsError: nothing was sent, or the cluster says what is wrong.
    """
    broke = False

    def attempt() -> Mapping[str, Any]:
        nonlocal broke
        try:
            return _attempt(session, shipment)
        except LostConnection:
            broke = True
            raise

    try:
        return session.again(attempt)
    except Refusal:
        raise
    except HpctoolsError as error:
        if broke:
            raise Unsure(error, shipment.id) from None
        raise


def _attempt(session: Session, shipment: Shipment) -> Mapping[str, Any]:
    eager = shipment.size <= EAGER_BYTES
    with session.exchange({**shipment.request, "eager": eager}) as exchange:
        if eager:
            needed: Sequence[Sequence[int]] = [(index, 0) for index in range(len(shipment.files))]
        else:
            answer = exchange.get()
            if "result" in answer.fields:
                done: Mapping[str, Any] = answer["result"]
                return done
            needed = answer["need"]
        # It may have answered without reading to the end; the answer says more than the broken line.
        with contextlib.suppress(LostConnection):
            _send_files(exchange, shipment, needed)
        return exchange.result()


def _send_files(exchange: Exchange, shipment: Shipment, needed: Sequence[Sequence[int]]) -> None:
    for index, offset in needed:
        for data in shipment.files[index].read(offset):
            exchange.put({"file": index, "offset": offset}, data)
            offset += len(data)
    exchange.put({"end": True})
