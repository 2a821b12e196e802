"""A line to a port on which each byte takes a while; it counts the round trips that are waited for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Line:
    """What came over it so far.

    Attributes:
        port: here.
        connections: of each, the round trips: one to make it, and then the longest chain of words and answers
            of which each was sent when the one before had come. Words that overlap are one.
    """

    port: int = 0
    connections: list[int] = field(default_factory=list)

    @property
    def round_trips(self) -> int:
        """Of all connections, which are made one after the other."""
        return sum(self.connections)


@dataclass
class _Chain:
    """How long the chain is at each end of a connection: Lamport's clock, which ticks where it leaves us."""

    line: Line
    number: int
    here: int = 0
    there: int = 0

    def sent(self) -> Callable[[], None]:
        """Something is on its way there; to be called when it arrives."""
        depth = self.here + 1

        def arrives() -> None:
            self.there = max(self.there, depth)

        return arrives

    def answered(self) -> Callable[[], None]:
        """The same of something on its way back."""
        depth = self.there

        def arrives() -> None:
            self.here = max(self.here, depth)
            self.line.connections[self.number] = 1 + self.here

        return arrives


@contextmanager
def delayed(target: int, seconds: float, connecting: float | None = None) -> Iterator[Line]:
    """A line that leads to another port; every byte takes so long, in each direction.

    Round trips are told apart where this is longer than what both ends need to answer.

    Args:
        connecting: what a connection takes before its first byte; None: a round trip.
    """
    first = 2 * seconds if connecting is None else connecting
    loop = asyncio.new_event_loop()
    line = Line()
    servers: list[asyncio.Server] = []
    sinks: list[asyncio.StreamWriter] = []
    begun = threading.Event()

    async def begin() -> None:
        server = await asyncio.start_server(
            lambda r, w: _pass_on(line, sinks, r, w, target, seconds, first), "127.0.0.1", 0
        )
        servers.append(server)
        line.port = server.sockets[0].getsockname()[1]
        begun.set()

    loop.create_task(begin())  # noqa: RUF006 - the loop holds it until it has run
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    assert begun.wait(10)
    try:
        yield line
    finally:
        asyncio.run_coroutine_threadsafe(_end_all(servers, sinks), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _end_all(servers: Sequence[asyncio.Server], sinks: Sequence[asyncio.StreamWriter]) -> None:
    for server in servers:
        server.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for sink in sinks:
        sink.close()
        with contextlib.suppress(OSError):
            await sink.wait_closed()


async def _pass_on(
    line: Line,
    sinks: list[asyncio.StreamWriter],
    near_in: asyncio.StreamReader,
    near_out: asyncio.StreamWriter,
    target: int,
    seconds: float,
    connecting: float,
) -> None:
    chain = _Chain(line, len(line.connections))
    line.connections.append(1)
    sinks.append(near_out)
    await asyncio.sleep(connecting)
    far_in, far_out = await asyncio.open_connection("127.0.0.1", target)
    sinks.append(far_out)
    await asyncio.gather(
        _carry(near_in, far_out, seconds, chain.sent), _carry(far_in, near_out, seconds, chain.answered)
    )


async def _carry(
    source: asyncio.StreamReader,
    sink: asyncio.StreamWriter,
    seconds: float,
    leaves: Callable[[], Callable[[], None]],
) -> None:
    loop = asyncio.get_running_loop()

    def deliver(data: bytes, arrives: Callable[[], None]) -> None:
        arrives()
        if not sink.is_closing():
            sink.write(data)

    with contextlib.suppress(OSError):  # who hangs up first, does
        while data := await source.read(65536):
            loop.call_later(seconds, deliver, data, leaves())
    loop.call_later(seconds, sink.close)
