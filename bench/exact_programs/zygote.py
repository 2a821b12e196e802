"""Worker processes without the seconds that importing torch takes: forked from a process that has done so.

    zygote.py SOCKET [MODULES...]   serves until its standard input ends, with these imported, too
    launcher.py SOCKET PROGRAM ARGUMENTS...   is, for who started it, the worker

The launcher hands over its environment, folder and output; the worker is forked here and ends with the
launcher.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import numpy
import torch

import hpctools.elastic.loader
import hpctools.elastic.run_session  # noqa: F401 - what every worker needs

assert numpy
assert torch
LIMIT = 1 << 16


def main(path: str, *modules: str) -> None:
    """Fork a worker for each launcher."""
    for module in modules:
        importlib.import_module(module)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    server.listen(64)
    threading.Thread(target=_end_with_input, daemon=True).start()
    while True:
        connection, _ = server.accept()
        message, descriptors, _, _ = socket.recv_fds(connection, LIMIT, 2)
        if len(descriptors) != 2:
            connection.close()  # the launcher was killed before it had said anything
            continue
        pid = os.fork()
        if pid == 0:
            server.close()
            _become(connection, json.loads(message), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(OSError):  # it was killed since; the worker notices by itself
            connection.sendall(b"%d\n" % pid)
        threading.Thread(target=_tell_end, args=(connection, pid), daemon=True).start()


def _become(connection: socket.socket, order: dict[str, Any], descriptors: list[int]) -> None:
    os.setsid()
    for descriptor, place in zip(descriptors, (1, 2), strict=True):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(order["environ"])
    os.chdir(order["folder"])
    # A copy of the connection: when the launcher is killed, so are we.
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    sys.argv = order["argv"]
    sys.path.insert(0, str(Path(order["argv"][0]).parent))
    code = 0
    try:
        runpy.run_path(order["argv"][0], run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - the interpreter would print it and end, too
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _end_with(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _tell_end(connection: socket.socket, pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):  # the launcher was killed first
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    connection.close()


def _end_with_input() -> None:
    os.read(0, 1)  # not through sys.stdin, whose lock every worker would inherit
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
