"""A submission's way to the cluster: sent as often as it takes, made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpctools.remote.session import Exchange, Session
from hpctools.remote.shipping import Shipment
from hpctools.remote.transport import LostConnection
from hpctools.remote.wire import CHUNK

EAGER_BYTES = CHUNK
"""So much is sent unasked, which saves a round trip; of more the cluster first says what it has already."""


def send(session: Session, shipment: Shipment) -> Mapping[str, Any]:
    """Submit; returns what the cluster says of it.

    Raises:
        Refusal: the cluster's hp-submit said no.
        UnreachableError: it did not get through; whether the job is there is not known.
        HpctoolsError: something else that the cluster says.
    """
    return session.again(lambda: _attempt(session, shipment))


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
        _send_files(exchange, shipment, needed)
        return exchange.result()


def _send_files(exchange: Exchange, shipment: Shipment, needed: Sequence[Sequence[int]]) -> None:
    try:
        for index, offset in needed:
            for data in shipment.files[index].read(offset):
                exchange.put({"file": index, "offset": offset}, data)
                offset += len(data)
        exchange.put({"end": True})
    except LostConnection:
        # It may have answered without reading to the end; the answer says more than the broken line.
        exchange.result()
        raise
