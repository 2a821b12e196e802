"""Workers that a node's fork server forks, beside the same program started by itself."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hpctools.elastic.forking import client
from hpctools.elastic.forking.client import ForkServer
from hpctools.elastic.proc_stat import stat_of
from hpctools.python_command import python_command
from hpctools.slurm import run

pytestmark = pytest.mark.timeout(180)
LIMIT = 60.0
TELLS = """\
    import json, os, signal, sys
    def mean(value: NotThere): ...
    print(json.dumps({
        "words": open("/proc/self/cmdline").read().rstrip("\\0"), "orig": sys.orig_argv,
        "argv": sys.argv, "path": sys.path[0], "folder": os.getcwd(), "name": __name__, "file": __file__,
        "main": sys.modules["__main__"].__dict__ is globals(), "worker": os.environ["HPCTOOLS_WORKER"],
        "leads": os.getpid() == os.getsid(0), "input": sys.stdin.read(), "future": "annotations" in globals(),
        "signals": [str(signal.getsignal(each)) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD,
                                                             signal.SIGUSR1, signal.SIGHUP)],
        "files": sorted(os.listdir("/proc/self/fd")), "unbuffered": sys.stdout.write_through,
    }))
    print("to errors", file=sys.stderr)
    sys.exit(7)
"""


class Rig:
    """Fork servers with one environment, and files that workers print to.

    Attributes:
        warned: what a person was told.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warned: list[str] = []
        self.environ = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}

    def script(self, text: str, name: str = "work.py") -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(text))
        return path

    @asynccontextmanager
    async def serving(self, *command: object, modules: tuple[str, ...] = ()) -> AsyncIterator[ForkServer]:
        words = python_command([sys.executable, *map(str, command)])
        assert words is not None
        server = ForkServer(words, modules, self.environ, self.folder, self.warned.append)
        try:
            await server.settled()
            yield server
        finally:
            await server.close()

    def fork(self, server: ForkServer, worker: str = "b0.0.0") -> tuple[int, Callable[[], Any]]:
        with (
            (self.folder / f"{worker}.out").open("wb") as out,
            (self.folder / f"{worker}.err").open("wb") as err,
        ):
            return server.fork({"HPCTOOLS_WORKER": worker}, out.fileno(), err.fileno())

    def code_of(self, *command: object) -> int:
        """The exit code of one worker that is forked."""

        async def fork() -> int:
            async with self.serving(*command) as server:
                return int(await asyncio.wait_for(self.fork(server)[1](), LIMIT))

        return asyncio.run(fork())

    def said(self, worker: str = "b0.0.0") -> tuple[str, str]:
        return (self.folder / f"{worker}.out").read_text(), (self.folder / f"{worker}.err").read_text()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def runs(pid: int) -> bool:
    """Whether a process has not ended."""
    stat = stat_of(pid)
    return (
        stat is not None and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    )


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("as_module", [False, True], ids=["script", "module"])
def test_a_forked_worker_finds_what_one_that_is_started_finds(rig: Rig, as_module: bool) -> None:
    """Its words, paths, module, session, signals, files and exit code; and annotations are its own matter."""
    script = rig.script(TELLS.replace(": NotThere", ""))
    what = ["-m", "work"] if as_module else [script.name]
    words = shlex.join(map(str, [sys.executable, *what, "--lr", "a b"]))
    # The descriptor that listdir has open, and nothing else, comes in addition to the three.
    own = run.run(
        ["setsid", "--wait", "sh", "-c", f"cd {rig.folder} && exec {words} </dev/null"],
        timeout=LIMIT,
        check=False,
        env={**rig.environ, "HPCTOOLS_WORKER": "b0.0.0"},
    )

    assert rig.code_of(*what, "--lr", "a b") == own.code == 7
    out, err = rig.said()
    assert json.loads(out) == json.loads(own.stdout)
    assert err == own.stderr == "to errors\n"
    assert rig.warned == []


@pytest.mark.parametrize(("kind", "target"), [("file", "work.py"), ("m", "work")])
def test_what_processes_that_the_program_spawns_send_back_is_of_its_own_classes(
    rig: Rig, kind: str, target: str
) -> None:
    """They know `__main__` by another name; a pool whose results cannot be read waits for ever."""
    rig.script(
        r"""
        import pickle
        class Result: pass
        print(pickle.loads(b"c__mp_main__\nResult\n.") is Result)
        """
    )
    server = "import multiprocessing; from hpctools.elastic.forking.server import run_program"
    words = [sys.executable, "-c", f"{server}; run_program({kind!r}, {target!r}, ())"]
    path = os.pathsep.join([str(rig.folder), *sys.path])
    told = run.run(words, timeout=LIMIT, cwd=rig.folder, env={**rig.environ, "PYTHONPATH": path})
    assert told.stdout == "True\n"


def test_our_own_future_imports_are_not_the_programs(rig: Rig) -> None:
    script = rig.script("def mean(value: not_there): ...\n")

    assert rig.code_of(script) == 1
    assert rig.said()[1].endswith("NameError: name 'not_there' is not defined\n")


def test_an_exception_is_shown_as_of_a_program_that_runs_alone(rig: Rig) -> None:
    script = rig.script("def train():\n    raise ValueError('no such corpus')\ntrain()\n")

    assert rig.code_of(script) == 1
    assert rig.said()[1] == run.run([sys.executable, str(script)], timeout=LIMIT, check=False).stderr


def test_torch_and_what_is_named_is_imported_before_and_once(rig: Rig) -> None:
    """Beside the script, as Python finds it; a module that is not there is told, and hinders nobody."""
    rig.script("import os\nopen('imported', 'a').write('x')\n", "mine.py")
    script = rig.script(
        "import sys\n"
        "before = set(sys.modules)\n"
        "import torch\n"
        "from hpctools import elastic\n"
        "elastic.Loader, torch.optim.AdamW([torch.zeros(1, requires_grad=True)])\n"
        "print('mine' in before, len(set(sys.modules) - before) < 10)"
    )

    async def fork() -> list[int]:
        async with rig.serving(script, modules=("mine", "nobody.knows")) as server:
            waits = [rig.fork(server, f"b0.{number}.0")[1] for number in range(3)]
            return [int(await asyncio.wait_for(wait(), LIMIT)) for wait in waits]

    assert asyncio.run(fork()) == [0, 0, 0]
    assert [rig.said(f"b0.{number}.0") for number in range(3)] == [("True True\n", "")] * 3
    assert (rig.folder / "imported").read_text() == "x"
    assert rig.warned == [
        "cannot import beforehand: nobody.knows: ModuleNotFoundError: No module named 'nobody'; "
        "workers try it themselves"
    ]


def test_workers_draw_random_numbers_of_their_own(rig: Rig) -> None:
    script = rig.script("import random, numpy\nprint(random.random(), numpy.random.rand())\n")

    async def fork() -> None:
        async with rig.serving(script) as server:
            for worker in ("b0.0.0", "b0.0.1"):
                await asyncio.wait_for(rig.fork(server, worker)[1](), LIMIT)

    asyncio.run(fork())
    one, other = (rig.said(worker)[0].split() for worker in ("b0.0.0", "b0.0.1"))
    assert not set(one) & set(other)


def test_signals_for_the_workers_do_not_end_the_server_and_signals_of_workers_are_told(rig: Rig) -> None:
    """Slurm sends SIGTERM to every process of a step; who is killed is told by its signal."""
    script = rig.script("import time\nprint('here')\ntime.sleep(60)\n")

    async def fork() -> list[int]:
        async with rig.serving(script) as server:
            pid, wait = rig.fork(server)
            await until(lambda: rig.said()[0])
            os.killpg(server._process.pid, signal.SIGTERM)
            os.killpg(pid, signal.SIGTERM)
            codes = [int(await asyncio.wait_for(wait(), LIMIT))]
            pid, wait = rig.fork(server, "b0.0.1")
            os.kill(pid, signal.SIGKILL)
            return [*codes, int(await asyncio.wait_for(wait(), LIMIT))]

    assert asyncio.run(fork()) == [-signal.SIGTERM, -signal.SIGKILL]
    assert rig.warned == []


def test_when_the_server_is_killed_its_workers_end_and_that_is_told(rig: Rig) -> None:
    script = rig.script("import time\ntime.sleep(60)\n")

    async def fork() -> tuple[int, int]:
        async with rig.serving(script) as server:
            pid, wait = rig.fork(server)
            server._process.kill()
            code = int(await asyncio.wait_for(wait(), LIMIT))
            assert not server.serves
            with pytest.raises(OSError, match="no worker could be forked"):
                rig.fork(server)
            return pid, code

    pid, code = asyncio.run(fork())
    assert code == -signal.SIGKILL
    asyncio.run(until(lambda: not runs(pid)))
    assert rig.warned == ["workers are started without preload: the fork server has ended"]


def test_a_server_that_stands_still_is_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.2)
    script = rig.script("import time\ntime.sleep(60)\n")

    async def fork() -> None:
        async with rig.serving(script) as server:
            os.kill(server._process.pid, signal.SIGSTOP)
            with pytest.raises(OSError, match="no worker could be forked: no answer"):
                rig.fork(server)
            assert not server.serves

    asyncio.run(fork())
    assert rig.warned == ["workers are started without preload: the fork server did not answer for 0.2 s"]


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (
            "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(60,), name='logger', daemon=True).start()",
            "a module has started threads (logger), which a forked process does not have",
        ),
        (
            "import torch\ntorch.set_num_threads(2)\ntorch.ones(1 << 20).add(1).sum()",
            "a module has started threads (a library's own), which a forked process does not have",
        ),
        (
            "import torch\ntorch.cuda.is_initialized = lambda: True",
            "a module uses the GPU while it is imported, and a forked process cannot go on with that",
        ),
        (
            "import os, torch\ntorch.cuda._is_in_bad_fork = lambda own=os.getpid(): os.getpid() != own",
            "a module uses the GPU while it is imported, and a forked process cannot go on with that",
        ),
    ],
)
def test_what_no_fork_would_survive_is_not_forked(rig: Rig, module: str, why: str) -> None:
    rig.script(module, "mine.py")

    async def serves() -> bool:
        async with rig.serving(rig.script(""), modules=("mine",)) as server:
            return server.serves

    assert not asyncio.run(serves())
    assert rig.warned == [f"workers are started without preload: {why}"]


def test_nothing_is_left_when_the_agent_ends(rig: Rig) -> None:
    """Killed or not: the kernel ends the server with it, and the worker with the server."""
    script = rig.script("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    agent = rig.script(
        f"""
        import asyncio, os
        from pathlib import Path
        from hpctools.elastic.forking.client import ForkServer
        from hpctools.python_command import python_command
        async def main():
            server = ForkServer(python_command([{sys.executable!r}, {str(script)!r}]), (), os.environ,
                                Path({str(rig.folder)!r}), print)
            await server.settled()
            pid, _ = server.fork({{}}, 1, 2)
            Path("pids").write_text(f"{{server._process.pid}} {{pid}}")
            await asyncio.sleep(60)
        asyncio.run(main())
        """,
        "agent.py",
    )
    process = run.start([sys.executable, str(agent)], cwd=rig.folder, stdout=run.PIPE, stderr=run.PIPE)
    pids: list[int] = []
    try:
        asyncio.run(until((rig.folder / "pids").exists))
        asyncio.run(until(lambda: len((rig.folder / "pids").read_text().split()) == 2))
        pids = list(map(int, (rig.folder / "pids").read_text().split()))
        assert all(map(runs, pids))
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)
    asyncio.run(until(lambda: not any(map(runs, pids))))


def test_memory_of_ended_workers_is_let_go(rig: Rig) -> None:
    """A pid may come again: what was told of its first process is not told of the next."""
    script = rig.script("import sys\nsys.exit(3)\n")

    async def fork() -> tuple[int, dict[int, Any]]:
        async with rig.serving(script) as server:
            code = int(await asyncio.wait_for(rig.fork(server)[1](), LIMIT))
            return code, dict(server._ended)

    assert asyncio.run(fork()) == (3, {})


def test_the_agent_is_not_held_up_by_what_somebody_else_has_read(rig: Rig) -> None:
    """Who waits for an answer reads all that there is; the loop is told of it all the same."""
    script = rig.script("import sys\nsys.exit(3)\n")

    async def fork() -> bool:
        async with rig.serving(script) as server:
            server._on_readable()
            began = time.monotonic()
            server._on_readable()
            return server.serves and time.monotonic() - began < client.ANSWER_SECONDS

    assert asyncio.run(fork())
    assert rig.warned == []
