"""The ways into the agent: HAProxy's question over TCP, those of this node over a Unix socket."""

from __future__ import annotations

import json
import logging
import os
import socket
import socketserver
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

_log = logging.getLogger("hpctools.login")
_LONGEST = 65_536
_SECONDS = 5.0
_PEER = struct.Struct("3i")

Answer = Callable[[Mapping[str, Any], int], Mapping[str, Any]]
"""What a question from this node is answered, given who asks: their uid."""


class _CheckServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


def serve_checks(listen: tuple[str, int], answer: Callable[[], str]) -> socketserver.TCPServer:
    """Answer each connection with a line and hang up, for HAProxy's `agent-check`.

    Args:
        listen: address and port; port 0 takes a free one.

    Raises:
        OSError: the port cannot be had.
    """

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.settimeout(_SECONDS)
                self.request.sendall(answer().encode())
                self.request.shutdown(socket.SHUT_WR)

    server = _CheckServer(listen, Handler)
    _start(server)
    return server


class _DoorServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 256


def serve_door(path: Path, answer: Answer) -> socketserver.BaseServer:
    """Answer programs of this node: a line of JSON in, a line of JSON out.

    Everybody may connect; the kernel tells who it is.

    Raises:
        OSError: the socket cannot be made.
    """

    class Handler(socketserver.StreamRequestHandler):
        timeout = _SECONDS

        def handle(self) -> None:
            with suppress(OSError):
                self.wfile.write(json.dumps(_answered(self.rfile.readline(_LONGEST), self._asker())).encode())
                self.wfile.write(b"\n")

        def _asker(self) -> int:
            packed = self.request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            return int(_PEER.unpack(packed)[1])

    def _answered(line: bytes, uid: int) -> Mapping[str, Any]:
        try:
            question = json.loads(line)
            if not isinstance(question, dict):
                raise ValueError("no object")
            return answer(question, uid)
        except (ValueError, KeyError, TypeError) as error:
            return {"error": f"not understood: {error}"}
        except Exception:  # noqa: BLE001
            _log.exception("a question could not be answered")
            return {"error": "the agent failed; its log says why"}

    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    server = _DoorServer(os.fspath(path), Handler)
    path.chmod(0o666)
    _start(server)
    return server


def _start(server: socketserver.BaseServer) -> None:
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()


def ask_door(path: Path, question: Mapping[str, Any], seconds: float = _SECONDS) -> Mapping[str, Any]:
    """Ask the agent of this node.

    Raises:
        OSError: nobody answers there.
        ValueError: what is answered is no JSON.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        connection.connect(os.fspath(path))
        connection.sendall(json.dumps(dict(question)).encode() + b"\n")
        with connection.makefile("rb") as answers:
            found = json.loads(answers.readline(_LONGEST))
    if not isinstance(found, dict):
        raise ValueError("the agent answered no object")
    return found
