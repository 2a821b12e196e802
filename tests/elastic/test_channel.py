"""A worker's line to the coordinator, and to whoever started it."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pid_namespace import in_a_pid_namespace

from hpctools.elastic import channel
from hpctools.elastic.channel import Channel
from hpctools.elastic.folder import CoordinatorAddress, RunFolder, RunStatus
from hpctools.elastic.orders import Orders
from hpctools.elastic.protocol import EXPELLED, Message, encode
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError, UnreachableError

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 3, 1, ("true",), "/", (), "/r.sh", "now")
LIMIT = 20.0
BOUND = """
import os
from hpctools.elastic.channel import die_with_parent
die_with_parent({parent})
print("lives, its parent is", os.getppid(), flush=True)
"""


def test_a_worker_may_be_the_child_of_a_container_s_init() -> None:
    """As in `podman run --init` and `apptainer exec --pid`: its parent is process 1."""
    program = BOUND.format(parent="os.getppid()")
    done = in_a_pid_namespace(["sh", "-c", '"$@"; exit $?', "init", sys.executable, "-c", program])
    assert (done.returncode, done.stdout, done.stderr) == (0, "lives, its parent is 1\n", "")


def test_who_is_bound_is_ended_with_its_parent() -> None:
    child = f"{BOUND.format(parent='os.getppid()')}import time; time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("lives")
        process.kill()
        assert process.stdout.read() == "", "the child has the pipe open as long as it lives"


def test_a_parent_that_is_another_one_by_now_has_ended() -> None:
    program = BOUND.format(parent=4194305)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "the process that started this one (4194305) has ended\n"


FORKS = """
import multiprocessing, os, signal, threading, time
from hpctools.elastic.channel import Termination
{before}
termination = Termination()
def ends():
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
    child.start(); child.terminate(); child.join(60); return child.exitcode
found = {{ends() for _ in range(20)}}
thread = threading.Thread(target=lambda: found.add(ends()))
thread.start(); thread.join()
os.kill(os.getpid(), signal.SIGTERM)
print(found, termination.requested)
"""


@pytest.mark.parametrize(
    ("before", "code"),
    [("", -signal.SIGTERM), ("signal.signal(signal.SIGTERM, lambda *_: os._exit(7))", 7)],
)
def test_sigterm_is_noted_by_the_worker_and_means_what_it_did_to_what_it_forks(
    before: str, code: int
) -> None:
    """`multiprocessing.Process.terminate`, and the end of the program, which waits for daemons, hung."""
    program = [sys.executable, "-c", FORKS.format(before=before)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert done.stdout == f"{{{code}}} True\n", done.stderr


HELPERS = """
import multiprocessing, os, signal, subprocess, sys, threading, time
from multiprocessing.managers import SyncManager
from hpctools.elastic.channel import Termination
termination = Termination()
multiprocessing.set_start_method("fork")
all_here = multiprocessing.Barrier(9)
def meets(seconds):
    all_here.wait()
    time.sleep(seconds)
{page}
manager = SyncManager()
manager.start(end_with_parent)
pool.map_async(meets, [0] * 8, 1)
all_here.wait()
of_slurm = [os.getpid(), manager._process.pid, *(each.pid for each in pool._pool)]
subprocess.run(["kill", *map(str, of_slurm)], check=True)
print(termination.requested, sorted(pool.map(abs, range(-3, 0))), list(manager.list([7])))
assert [each.pid for each in pool._pool] == of_slurm[2:]
pool.map_async(meets, [60] * 8, 1)
all_here.wait()
pool.terminate()
pool.join()
manager.shutdown()
print("ended")
"""


def test_helpers_that_are_made_as_the_page_says_outlive_slurm_s_sigterm_and_not_their_parent_s() -> None:
    """The signal comes from another process; all helpers are busy when they are ended."""
    page = (Path(__file__).parents[2] / "docs" / "elastic.md").read_text()
    (block,) = [each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "sigwaitinfo" in each]
    program = [sys.executable, "-c", HELPERS.format(page=textwrap.dedent(f"  {block.lstrip()}"))]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert done.stdout == "True [1, 2, 3] [7]\nended\n", done.stderr


RAISES = """
import functools, os, signal, _thread
{imports}
def stops(*_):
    raise KeyError("of the script's handler")
signal.signal(signal.SIGUSR1, stops)
arrives = functools.partial(_thread.interrupt_main, signal.SIGUSR1)
masks = signal.pthread_sigmask
def blocks(how, signals):
    before = masks(how, signals)
    if how == signal.SIG_BLOCK and signals:
        signal.raise_signal(signal.SIGUSR1)
    return before
{before}
{notes}
{after}
for _ in range(2):
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
print(signal.SIGTERM in masks(signal.SIG_BLOCK, []))
"""
ARRIVES = [
    ("", "signal.pthread_sigmask = blocks"),
    ("os.register_at_fork(after_in_parent=arrives)", ""),
    ("", "os.register_at_fork(before=arrives)"),
]
IMPORTS = "from hpctools.elastic.channel import Termination\nfrom hpctools.elastic.restart import events"
SLOT = "events.Slot.create(events.Path({path!r})).note_term"
NOTES = ["Termination()", f"events.give_back_to_forked({SLOT}, signal.SIG_DFL)"]


@pytest.mark.parametrize("notes", NOTES, ids=["channel", "restart"])
@pytest.mark.parametrize(("before", "after"), ARRIVES, ids=["held", "let go", "before"])
def test_a_handler_that_raises_while_the_script_forks_leaves_sigterm_as_it_is(
    tmp_path: Path, notes: str, before: str, after: str
) -> None:
    """It stayed blocked in the worker, which then never heard that it has to go."""
    words = {"notes": notes.format(path=str(tmp_path / "slot")), "before": before, "after": after}
    program = [sys.executable, "-c", RAISES.format(imports=IMPORTS, **words)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert done.stdout == "False\n", done.stderr


def test_a_status_that_cannot_be_read_just_now_ends_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for the coordinator as long as it would have; a run that has ended is told at once."""
    monkeypatch.setattr(channel, "FIRST_SECONDS", 0.3)
    folder = RunFolder.create(tmp_path / "run", SPEC)

    def admitted() -> None:
        Channel(folder, dict, lambda message: None, lambda term: None, dict)

    (folder.path / "status.json").mkdir()
    with pytest.raises(UnreachableError, match=r"no coordinator of .* answers"):
        admitted()
    (folder.path / "status.json").rmdir()
    folder.write_status(RunStatus("finished"))
    with pytest.raises(ElasticError, match="has ended"):
        admitted()


# Who was given up


class Answers:
    """A coordinator that answers one hello after the other, and then hangs up."""

    def __init__(self, folder: RunFolder, *kinds: str) -> None:
        self._kinds = kinds
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(LIMIT)
        folder.write_coordinator(
            CoordinatorAddress("127.0.0.1", self._listening.getsockname()[1], "secret", 1, 1)
        )
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._thread.join(LIMIT)
        self._listening.close()

    def _serve(self) -> None:
        for kind in self._kinds:
            line, _ = self._listening.accept()
            with line, line.makefile("rb") as reading:
                reading.readline()
                line.sendall(encode(kind, term=1))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", SPEC)


@pytest.fixture
def answering(folder: RunFolder) -> Iterator[list[Answers]]:
    made: list[Answers] = []
    yield made
    for each in made:
        each.close()


def test_a_worker_that_was_given_up_hears_so_and_comes_no_more(
    folder: RunFolder, answering: list[Answers]
) -> None:
    answering.append(Answers(folder, "welcome", "expelled"))
    heard: list[Message] = []
    told = threading.Event()

    def hear(message: Message) -> None:
        heard.append(message)
        told.set()

    Channel(folder, dict, hear, lambda term: None, dict)
    assert told.wait(LIMIT)
    assert heard == [{"kind": "expelled"}]


def test_one_that_was_given_up_before_it_came_does_not_begin(
    folder: RunFolder, answering: list[Answers]
) -> None:
    answering.append(Answers(folder, "expelled"))
    with pytest.raises(ElasticError, match=EXPELLED):
        Channel(folder, dict, lambda message: None, lambda term: None, dict)


def test_it_ends_with_that_reason_and_saves_nothing_any_more() -> None:
    orders = Orders()
    orders.note({"kind": "save", "why": "cancelled", "urgent": True, "seconds": 6.5})
    orders.note({"kind": "expelled"})
    assert (orders.end, orders.save) == (EXPELLED, None)
