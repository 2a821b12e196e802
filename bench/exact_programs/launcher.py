"""Stands for a worker that zygote.py forks: its signals go there, its end comes from there."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys

PR_SET_PDEATHSIG = 1

ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
connection.connect(sys.argv[1])
order = {"argv": sys.argv[2:], "environ": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109 - pathlib takes as long as the rest
socket.send_fds(connection, [json.dumps(order).encode()], [1, 2])
answers = connection.makefile("rb")
pid = int(answers.readline())
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
code = int(answers.readline() or -9)
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
sys.exit(code)
