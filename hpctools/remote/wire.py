"""Messages over two byte streams: a line of JSON, then as many raw bytes as it says.

Both sides of `hp-submit --cluster` speak it, so that no name and no argument ever passes through a shell.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

VERSION = 1
GREETING = b"\n@hpctools-remote 1\n"
"""What the cluster's side says first; what a shell's startup files print before it is skipped."""
CHUNK = 256 * 1024
LARGEST_LINE = 8 << 20
"""Bytes that every line may have. Longer ones the other side may not take, and it hangs up in the middle."""
_LARGEST_PREFACE = 1 << 20


class WireError(Exception):
    """The other side said something that is no message."""


class WireClosed(WireError):
    """The stream ended, or nothing came for too long."""


def line_of(fields: Mapping[str, Any]) -> bytes:
    """A message as it is sent, without its line end.

    Letters stay letters: escaped, one of three bytes takes six. Names that are no UTF-8 come through as well.
    """
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")  # as json.loads reads bytes


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
        fields: what it says.
        data: raw bytes that go with it.
    """

    fields: Mapping[str, Any]
    data: bytes = b""

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or something else where it is missing."""
        return self.fields.get(name, default)


@dataclass
class Wire:
    """Two streams.

    Attributes:
        receive: returns at least one byte and at most so many; b"" at the end.
        send: writes all of it.
    """

    receive: Callable[[int], bytes]
    send: Callable[[bytes], None]
    _buffer: bytearray = field(default_factory=bytearray)

    def put(self, fields: Mapping[str, Any], data: bytes = b"") -> None:
        """Send a message."""
        stated = {**fields, "bytes": len(data)} if data else fields
        self.send(line_of(stated) + b"\n" + data)

    def get(self) -> Message:
        """The next message.

        Raises:
            WireClosed: the stream ended.
            WireError: it is no message.
        """
        try:
            fields = json.loads(self._line())
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise WireError("a line that is no message")
        size = fields.pop("bytes", 0)
        if not isinstance(size, int) or not 0 <= size <= 4 * CHUNK:
            raise WireError("a message of an impossible size")
        return Message(fields, self._exactly(size))

    def greet(self) -> None:
        """Say that it is us who speak from here on."""
        self.send(GREETING)

    def find_greeting(self) -> bytes:
        """Skip what is said before the greeting, and return it.

        Raises:
            WireClosed: the stream ended before it came.
            WireError: it did not come for a megabyte.
        """
        # The first line break may be missing: it is there for those who print no whole line before.
        wanted = GREETING[1:]
        while (place := self._buffer.find(wanted)) < 0:
            if len(self._buffer) > _LARGEST_PREFACE:
                raise WireError("a megabyte of something else")
            self._more()
        before = bytes(self._buffer[:place])
        del self._buffer[: place + len(wanted)]
        return before.removesuffix(b"\n")

    @property
    def pending(self) -> bytes:
        """What has come and was not read."""
        return bytes(self._buffer)

    def _line(self) -> bytes:
        start = 0
        while (end := self._buffer.find(b"\n", start)) < 0:
            start = len(self._buffer)
            if start > LARGEST_LINE:
                raise WireError("a line without end")
            self._more()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._more()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def _more(self) -> None:
        data = self.receive(CHUNK)
        if not data:
            raise WireClosed("the stream ended")
        self._buffer += data
