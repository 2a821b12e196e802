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

_LIMIT = 60.0
_WARNING_SECONDS = 0.2


@dataclass(frozen=True)
class Questions:
    """What is asked.

    Attributes:
        header: one line for every request, for example `Authorization: Bearer ...`.
        rate: requests a second, each at its own moment whatever became of those before.
        clients: connections.
        bodies: JSON that is sent with each path, by POST; when empty, it is GET.
    """

    port: int
    header: str
    paths: tuple[str, ...]
    rate: int
    clients: int
    bodies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Took:
    """What became of it.

    Attributes:
        seconds: of each request, from the moment at which it was due.
        processor_seconds: of this client.
    """

    seconds: tuple[float, ...]
    processor_seconds: float


def ask(questions: Questions) -> Took:
    """Ask all of it.

    Raises:
        AssertionError: an answer was no success.
    """
    busy = time.process_time()
    seconds = asyncio.run(_ask(questions))
    return Took(tuple(seconds), time.process_time() - busy)


async def _ask(questions: Questions) -> list[float]:
    took: list[float] = []
    begin = time.monotonic() + _WARNING_SECONDS
    clients = (_client(questions, place, begin, took) for place in range(questions.clients))
    await asyncio.gather(*clients)
    assert len(took) == len(questions.paths)
    return took


async def _client(questions: Questions, place: int, begin: float, took: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", questions.port)
    for number in range(place, len(questions.paths), questions.clients):
        due = begin + number / questions.rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        path = questions.paths[number]
        writer.write(_request(questions, number))
        await asyncio.wait_for(_answer(reader, path), _LIMIT)
        took.append(time.monotonic() - due)
    writer.close()


def _request(questions: Questions, number: int) -> bytes:
    body = questions.bodies[number] if questions.bodies else ""
    told = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    head = f"{'POST' if body else 'GET'} {questions.paths[number]} HTTP/1.1\r\nHost: localhost\r\n"
    return f"{head}{told}{questions.header}\r\n\r\n{body}".encode()


async def _answer(reader: asyncio.StreamReader, path: str) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 20"), f"{path} answered {head[:40]!r}"
    length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length))


def main(questions: str, answer: str) -> None:
    """Ask what one file says, and tell in another."""
    stated: dict[str, Any] = json.loads(Path(questions).read_text())
    given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in stated.items()}
    took = ask(Questions(**given))
    Path(answer).write_text(json.dumps(asdict(took)))


if __name__ == "__main__":
    main(*sys.argv[1:3])
