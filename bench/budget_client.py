"""Requests at a steady rate, in a process of its own: what they took, and what asking cost.

    python -m bench.budget_client QUESTIONS ANSWER

Plain sockets that stay open and answers that are only counted, so that it takes little of the processors that
the service is measured on.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ANSWER_SECONDS = 90.0
"""How long one answer is waited for: longer than the service itself takes to say that there is none."""

_WARNING_SECONDS = 0.2


@dataclass(frozen=True)
class Questions:
    """What is asked.

    Attributes:
        header: one line for every request, for example `Authorization: Bearer ...`.
        rate: requests a second, each at its own moment whatever became of those before.
        clients: connections.
        bodies: JSON that is sent with each path, by POST; when empty, it is GET.
        limit: seconds for all of it; what was not asked by then is not asked any more.
    """

    port: int
    header: str
    paths: tuple[str, ...]
    rate: int
    clients: int
    bodies: tuple[str, ...] = ()
    limit: float = 240.0


@dataclass(frozen=True)
class Took:
    """What became of it.

    Attributes:
        seconds: of each request, from the moment at which it was due; ANSWER_SECONDS at least for one that
            had no answer of success, so that a percentile over all of them is never better for it.
        processor_seconds: of this client.
        failed: what became of these.
    """

    seconds: tuple[float, ...]
    processor_seconds: float
    failed: tuple[str, ...] = ()


def ask(questions: Questions) -> Took:
    """Ask all of it; what goes wrong is counted, and the rest is asked all the same."""
    busy = time.process_time()
    asking = _Asking(questions)
    asyncio.run(asking.all())
    return Took(tuple(asking.took), time.process_time() - busy, tuple(asking.failed))


class _Asking:
    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._begin = 0.0
        self.took: list[float] = []
        self.failed: list[str] = []

    async def all(self) -> None:
        """Ask with as many connections as it says, at once."""
        self._begin = time.monotonic() + _WARNING_SECONDS
        await asyncio.gather(*(self._client(place) for place in range(self._questions.clients)))

    async def _client(self, place: int) -> None:
        connection: _Connection | None = None
        for number in range(place, len(self._questions.paths), self._questions.clients):
            due = self._begin + number / self._questions.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            path = self._questions.paths[number]
            if time.monotonic() > self._begin + self._questions.limit:
                self._fail(path, f"not asked within {self._questions.limit:g} s", due)
                continue
            try:
                connection = connection or await _Connection.to(self._questions.port)
                await asyncio.wait_for(connection.ask(_request(self._questions, number)), ANSWER_SECONDS)
                self.took.append(time.monotonic() - due)
            except (OSError, EOFError, ValueError, asyncio.TimeoutError) as error:
                self._fail(path, f"{error}" or type(error).__name__, due)
                # Whatever comes on it yet belongs to the question that was given up.
                if connection:
                    connection.close()
                connection = None
        if connection:
            connection.close()

    def _fail(self, path: str, why: str, due: float) -> None:
        self.took.append(max(ANSWER_SECONDS, time.monotonic() - due))
        self.failed.append(f"{path}: {why}")


@dataclass(frozen=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def to(cls, port: int) -> _Connection:
        """Open one."""
        opening = asyncio.open_connection("127.0.0.1", port)
        return cls(*await asyncio.wait_for(opening, ANSWER_SECONDS))

    async def ask(self, request: bytes) -> None:
        """Send a request and read its answer.

        Raises:
            ValueError: it is no success. asyncio.IncompleteReadError, an EOFError: it ended in the middle.
        """
        self.writer.write(request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        await self.reader.readexactly(int(length))
        if not head.startswith(b"http/1.1 20"):
            raise ValueError(f"answered {head[:40]!r}")

    def close(self) -> None:
        """Hang up."""
        self.writer.close()


def _request(questions: Questions, number: int) -> bytes:
    body = questions.bodies[number] if questions.bodies else ""
    told = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    head = f"{'POST' if body else 'GET'} {questions.paths[number]} HTTP/1.1\r\nHost: localhost\r\n"
    return f"{head}{told}{questions.header}\r\n\r\n{body}".encode()


def main(questions: str, answer: str) -> None:
    """Ask what one file says, and tell in another."""
    stated: dict[str, Any] = json.loads(Path(questions).read_text())
    given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in stated.items()}
    took = ask(Questions(**given))
    Path(answer).write_text(json.dumps(asdict(took)))


if __name__ == "__main__":
    main(*sys.argv[1:3])
