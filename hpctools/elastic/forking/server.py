"""Forks a node's workers from one process that has imported what they need.

    python FLAGS -m hpctools.elastic.forking.server MODULES KIND TARGET ARGUMENTS...

Its agent starts it, with a socket (unix(7), SOCK_SEQPACKET) as standard input. Each message on that is one
JSON object: `ready` or `refused` once the modules are imported; then for each order, which comes with the
worker's standard output and errors, `began` from the worker itself, or `failed`; and `ended` when it has.
It ends when the socket does, and with its agent; its workers end with it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from hpctools.elastic.channel import die_with_parent
from hpctools.elastic.forking.title import show_as
from hpctools.python_command import FILE

NEEDED = ("hpctools.elastic.loader", "hpctools.elastic.run_session")  # and with them torch
LARGEST_MESSAGE = 1 << 16
LONGEST_WORDS = 500
PASSED_OVER = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that Slurm sends to all processes of a step: they are for the workers."""


_MAIN_OF_OTHERS = "__mp_main__"


@dataclass(frozen=True)
class Order:
    """A worker to be forked.

    Attributes:
        environ: what its environment has besides ours.
        outputs: descriptors for its standard output and errors.
    """

    environ: dict[str, str]
    outputs: tuple[int, int]


class Server:
    """Takes orders, and tells what becomes of the workers."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._workers: set[int] = set()
        self._handlers: dict[signal.Signals, Any] = {}
        self._woken, self._waking = os.pipe()

    def listen_to_signals(self) -> None:
        """Pass over what is for the workers; the end of one wakes us."""
        self._handlers = {each: signal.signal(each, signal.SIG_IGN) for each in PASSED_OVER}
        self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        for end in (self._woken, self._waking):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)

    def tell(self, **message: object) -> None:
        """Send a message to the agent, which may have gone."""
        with contextlib.suppress(OSError):
            self._line.send(json.dumps(message).encode())

    def serve(self) -> Order | None:
        """Fork a worker for each order; returns its order in the worker, and None in ours at the end."""
        while True:
            readable, _, _ = select.select([self._line.fileno(), self._woken], [], [])
            if self._woken in readable:
                self._tell_ends()
            if self._line.fileno() in readable:
                data, descriptors, _, _ = socket.recv_fds(self._line, LARGEST_MESSAGE, 2)
                if not data:
                    return None
                order = Order(json.loads(data), (descriptors[0], descriptors[1]))
                if self._forks(order):
                    return order

    def _forks(self, order: Order) -> bool:
        """Whether this is the worker now."""
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self.tell(failed=error.strerror)
            pid = -1
        if pid == 0:
            self._become(order, server)
            return True
        self._workers |= {pid} - {-1}
        for descriptor in order.outputs:
            os.close(descriptor)
        return False

    def _become(self, order: Order, server: int) -> None:
        """Be a process as the agent would have started it: a session, signals and files of its own."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        die_with_parent(server)
        for descriptor, place in zip(order.outputs, (1, 2), strict=True):
            os.dup2(descriptor, place)
            os.close(descriptor)
        os.environ.update(order.environ)
        if "numpy" in sys.modules:  # Python's own generator is seeded anew by itself
            sys.modules["numpy"].random.seed()
        self.tell(began=os.getpid())
        self._line.close()
        os.close(self._woken)
        os.close(self._waking)

    def _tell_ends(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._woken, LARGEST_MESSAGE):
                pass
        for pid in list(self._workers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._workers.discard(pid)
                self.tell(ended=pid, code=os.waitstatus_to_exitcode(status))


def main(modules: str, kind: str, target: str, *arguments: str) -> None:
    """Serve to the end, or be a worker."""
    die_with_parent(os.getppid())
    server = Server(_line())
    server.listen_to_signals()
    _have_path_begin_with(kind, target)
    sys.argv = [target, *arguments]  # as modules find it that look
    if not import_all(NEEDED):
        _import_what_an_optimizer_needs()
    before = _native_threads()
    told = import_all([each for each in modules.split(",") if each])
    if refusal := _refusal(_native_threads() - before):
        server.tell(refused=refusal)
        return
    gc.freeze()  # a collection in a worker would otherwise copy all of it
    server.tell(ready=True, warnings=told)
    if server.serve() is not None:
        sys.orig_argv = _own_words(kind, target, arguments)
        show_as(sys.orig_argv)
        run_program(kind, target, arguments)


def _own_words(kind: str, target: str, arguments: Sequence[str]) -> list[str]:
    """The words with which the worker would have been started by itself."""
    python = sys.orig_argv[: -len(("-m", "us", "modules", kind, target, *arguments))]
    return [*python, *([] if kind == FILE else [f"-{kind}"]), target, *arguments]


def _line() -> socket.socket:
    """The socket that is our standard input; workers get an empty one."""
    line = socket.socket(fileno=os.dup(0))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return line


def _have_path_begin_with(kind: str, target: str) -> None:
    """Where Python finds modules first: beside a script; `-m` has put there where we are."""
    if kind == FILE and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[0] = str(Path(target).resolve().parent)


def import_all(modules: Sequence[str]) -> list[str]:
    """Import modules; returns what could not be imported and why, a text for each."""
    told = []
    for module in modules:
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - its user's worker will tell it, too
            told.append(f"{module}: {type(error).__name__}: {error}"[:LONGEST_WORDS])
    return told


def _import_what_an_optimizer_needs() -> None:
    """torch imports 800 modules more when the first optimizer is made: as long as `import torch`."""
    torch = sys.modules["torch"]
    torch.optim.SGD([torch.zeros(1)], lr=0.1)


def _native_threads() -> int:
    """Threads of this process, those that Python does not know of included."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - counted, not looked at


def _refusal(native: int) -> str:
    """Why nothing may be forked; empty when it may.

    Args:
        native: threads that were started while modules were imported. Those of numpy's own library, which
            torch's import brings along, are stopped and started again by it around a fork.
    """
    threads = [each.name for each in threading.enumerate() if each is not threading.main_thread()]
    if threads or native > 0:
        named = ", ".join(threads) or "a library's own"
        return f"a module has started threads ({named}), which a forked process does not have"
    torch = sys.modules.get("torch")
    if torch is not None and (torch.cuda.is_initialized() or _is_cuda_lost_in_a_child(torch)):
        return "a module uses the GPU while it is imported, and a forked process cannot go on with that"
    return ""


def _is_cuda_lost_in_a_child(torch: Any) -> bool:
    """Whether a forked process could not use GPUs: asking `torch.cuda.is_available()` is enough for that."""
    pid = os.fork()
    if pid == 0:
        os._exit(int(bool(torch.cuda._is_in_bad_fork())))
    return os.waitpid(pid, 0)[1] != 0


def run_program(kind: str, target: str, arguments: Sequence[str]) -> None:
    """Run a script or a module as the main program of this process, which it stays to the end."""
    sys.argv = [target, *arguments]
    sys.excepthook = _show_of_program
    sys.modules.pop(_MAIN_OF_OTHERS, None)  # was ours when `multiprocessing` was imported
    sys.meta_path.append(_MainOfOthers())
    if kind != FILE:
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return
    if not Path(target).is_file() or zipfile.is_zipfile(target):
        runpy.run_path(target, run_name="__main__")  # a folder or an archive with a __main__.py
        return
    main_module = ModuleType("__main__")
    path = os.path.abspath(target)  # noqa: PTH100 - as Python does it: links are kept
    main_module.__dict__.update(__file__=path, __builtins__=__builtins__)
    sys.modules["__main__"] = main_module
    with open(target, "rb") as file:  # noqa: PTH123 - as Python opens a script
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main_module.__dict__)  # noqa: S102 - it is the user's own program


class _MainOfOthers(Loader):
    """Finds the program's `__main__` by the name that it has in processes that `multiprocessing` spawns.

    What they send back is pickled under that name. With one that is not found a pool waits for ever.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == _MAIN_OF_OTHERS else None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[_MAIN_OF_OTHERS] = sys.modules["__main__"]


def _show_of_program(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an exception that ends the program, without what stands around that here."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (
        __file__,
        "<frozen runpy>",
        runpy.__file__,
    ):
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    main(*sys.argv[1:])
