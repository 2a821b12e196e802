"""The ways into the agent: HAProxy's question over TCP, those of this node over Unix sockets.

Everybody on the node may connect to the socket of people, and any address that the firewall lets through to
the TCP ports: they are served with a limit (`hpctools.login.agent.capped`). PAM's questions come by a socket
of their own that only root opens, so that nobody else is in their way.

What is made here has its port or socket, and whoever connects waits; it answers once it is
`hpctools.login.agent.capped.started`.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import socketserver
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpctools.login.agent.capped import Cap, CappedServer, peer

_log = logging.getLogger("hpctools.login")
_LONGEST = 65_536
_LONGEST_ANSWER = 64 << 20
"""It tells of each session of the node."""
_SECONDS = 5.0

CHECKS = Cap(seconds=_SECONDS, most=64)
PEOPLE = Cap(seconds=_SECONDS, most=64, most_of_one=8)
ROOT = Cap(seconds=_SECONDS)

Answer = Callable[[Mapping[str, Any], int], Mapping[str, Any]]
"""What a question from this node is answered, given who asks: their uid."""


class _CheckServer(CappedServer, socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = 128
    cap = CHECKS


def checks_server(listen: tuple[str, int], answer: Callable[[], str]) -> socketserver.TCPServer:
    """Answers each connection with a line and hangs up, for HAProxy's `agent-check`.

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

    return _CheckServer(listen, Handler)


class _DoorServer(CappedServer, socketserver.UnixStreamServer):
    request_queue_size = 256
    cap = ROOT
    refusal = b'{"error": "too many connections to the agent are open: close yours, or try again"}\n'


class _PeopleServer(_DoorServer):
    cap = PEOPLE


def door_server(path: Path, answer: Answer) -> socketserver.BaseServer:
    """Answers root's programs, PAM's among them: a line of JSON in, a line of JSON out.

    Raises:
        OSError: the socket cannot be made, or another agent answers on it.
    """
    return _made(_DoorServer, path, answer, 0o600)


def people_server(path: Path, answer: Answer) -> socketserver.BaseServer:
    """The same for everybody; the kernel tells who it is. Nobody has more than a few connections.

    Raises:
        OSError: the socket cannot be made, or another agent answers on it.
    """
    return _made(_PeopleServer, path, answer, 0o666)


def _made(kind: type[_DoorServer], path: Path, answer: Answer, mode: int) -> socketserver.BaseServer:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                line = self.rfile.readline(_LONGEST)
                self.wfile.write(json.dumps(_answered(line, peer(self.request), answer)).encode())
                self.wfile.write(b"\n")

    path.parent.mkdir(parents=True, exist_ok=True)
    if _is_answered(path):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    path.unlink(missing_ok=True)
    before = os.umask(0o177)  # nobody gets in between the socket's making and its mode
    try:
        server = kind(os.fspath(path), Handler)
    finally:
        os.umask(before)
    path.chmod(mode)
    return server


def _is_answered(path: Path) -> bool:
    """Whether somebody listens on a socket: what an agent left behind that is gone is no more than a file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)  # one whose queue is full is answered, too
        try:
            connection.connect(os.fspath(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except BlockingIOError:
            return True
    return True


def _answered(line: bytes, uid: int, answer: Answer) -> Mapping[str, Any]:
    try:
        question = json.loads(line)
        if not isinstance(question, dict):
            raise ValueError("no object")
        return answer(question, uid)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        # Anybody may ask nonsense, brackets in brackets too: it is not to fill the log.
        return {"error": f"not understood: {error}"}
    except Exception:  # noqa: BLE001
        _log.exception("a question could not be answered")
        return {"error": "the agent failed; its log says why"}


def people_socket(path: Path) -> Path:
    """The socket of people beside that of root."""
    return path.with_name("people.sock")


def ask_door(path: Path, question: Mapping[str, Any], seconds: float = _SECONDS) -> Mapping[str, Any]:
    """Ask the agent of this node.

    Raises:
        OSError: nobody answers there.
        ValueError: what is answered is no JSON.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        connection.connect(os.fspath(path))
        with suppress(BrokenPipeError):  # it has said why, and hung up
            connection.sendall(json.dumps(dict(question)).encode() + b"\n")
        with connection.makefile("rb") as answers:
            found = json.loads(answers.readline(_LONGEST_ANSWER))
    if not isinstance(found, dict):
        raise ValueError("the agent answered no object")
    return found
