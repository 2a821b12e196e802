"""`elastic_event_detected` in real processes: what a call costs, who counts, and what SIGTERM does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from hpctools.elastic.restart.environment import SHIM
from hpctools.elastic.restart.events import VARIABLE, Slot

LIMIT = 90.0  # seconds, of any wait: starting Python takes some on a busy machine
ASKS = "from hpctools.elastic.restart.events import elastic_event_detected as asks\n"


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[Slot]:
    made = Slot.create(tmp_path / "slot")
    yield made
    made.close()


def start(code: str, tmp_path: Path, **environ: str) -> subprocess.Popen[str]:
    environment = {**os.environ, VARIABLE: str(tmp_path / "slot"), **environ}
    words = [code] if code.endswith(".py") else ["-c", code]
    process = subprocess.Popen([sys.executable, *words], env=environment, stdout=subprocess.PIPE, text=True)
    STARTED.append(process)
    return process


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def cleaned() -> Iterator[None]:
    """No process and no pipe is left behind."""
    yield
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.communicate(timeout=LIMIT)


def test_without_restart_mode_there_is_never_an_event(tmp_path: Path) -> None:
    code = ASKS + "print([asks() for _ in range(3)])"
    for environ in ({VARIABLE: ""}, {VARIABLE: str(tmp_path / "gone")}):
        process = start(code, tmp_path, **environ)
        assert process.communicate(timeout=LIMIT)[0] == "[False, False, False]\n"


def test_a_process_is_told_at_the_call_that_was_agreed_and_afterwards(slot: Slot, tmp_path: Path) -> None:
    assert slot.propose(3)
    process = start(ASKS + "print([asks() for _ in range(5)])", tmp_path)
    deadline = time.monotonic() + LIMIT
    while slot.count().calls < 3:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert process.poll() is None, "it waits for the decision"
    slot.commit(3)
    assert process.communicate(timeout=LIMIT)[0] == "[False, False, True, True, True]\n"
    assert (slot.count().calls, slot.count().told) == (5, 3)


def test_hyperpods_import_path_needs_no_hpctools(slot: Slot, tmp_path: Path) -> None:
    """The user's interpreter may be another one: `-I -S` hides our packages from this one."""
    code = (
        f"import sys; sys.path.insert(0, {str(SHIM)!r}); import signal\n"
        "from hyperpod_elastic_agent.elastic_event_handler import elastic_event_detected as asks\n"
        "try:\n    import hpctools.errors\nexcept ImportError: print('alone')\n"
        "print([asks(), asks(signal.SIGTERM), asks(sig=signal.SIGUSR1), asks()])"
    )
    slot.propose(2)
    slot.commit(2)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code],
        env={VARIABLE: str(tmp_path / "slot")},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.communicate(timeout=LIMIT)[0] == "alone\n[False, False, True, True]\n"
    assert slot.count().calls == 3, "another signal's event is no call"


def test_both_import_paths_are_one_function(slot: Slot, tmp_path: Path) -> None:
    code = (
        "from hyperpod_elastic_agent.elastic_event_handler import elastic_event_detected as one\n"
        "from hpctools.elastic import elastic_event_detected as other\n"
        "assert one is other; one(); other()"
    )
    process = start(code, tmp_path, PYTHONPATH=str(SHIM))
    assert process.wait(LIMIT) == 0
    assert slot.count().calls == 2


def test_calls_of_several_threads_all_count(slot: Slot, tmp_path: Path) -> None:
    """Ranks would be told at another call than was agreed, or go past it."""
    code = (
        ASKS + "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(4) as pool:\n    list(pool.map(lambda _: asks(), range(4000)))\n"
    )
    assert start(code, tmp_path).wait(LIMIT) == 0
    assert slot.count().calls == 4000


def test_only_the_training_process_counts(slot: Slot, tmp_path: Path) -> None:
    """A forked loader worker and a process that the training starts are not ranks."""
    code = (
        ASKS + "asks()\nimport os, subprocess, sys\n"
        "pid = os.fork()\n"
        "if pid == 0:\n    os._exit(asks())\n"
        "os.waitpid(pid, 0)\n"
        f"subprocess.run([sys.executable, '-c', {ASKS + 'asks()'!r}], check=True)\n"
        "asks()"
    )
    process = start(code, tmp_path)
    assert process.wait(LIMIT) == 0
    assert slot.count().calls == 2


def asking(tmp_path: Path, first: str = "") -> subprocess.Popen[str]:
    """A process that asks and asks."""
    loop = "print('ready', flush=True)\nfor _ in range(1000):\n    asks(); time.sleep(0.01)"
    process = start(f"{ASKS}import os, signal, time\n{first}\n{loop}", tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def goes_on(process: subprocess.Popen[str], slot: Slot) -> None:
    """Until it has asked for a while."""
    before, deadline = slot.count().calls, time.monotonic() + LIMIT
    while slot.count().calls < before + 20:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_sigterm_is_noted_for_the_agent_and_leaves_the_script_time(slot: Slot, tmp_path: Path) -> None:
    """The handler sets a flag, whoever sent the signal: what follows is the agent's to say."""
    process = asking(tmp_path)
    assert not slot.only_notes_term
    process.send_signal(signal.SIGTERM)
    goes_on(process, slot)
    assert slot.only_notes_term
    slot.forget_term()
    assert not slot.only_notes_term
    assert slot.propose(slot.count().calls + 1_000_000), "the flag and the order are not in each other's way"
    slot.withdraw()
    goes_on(process, slot)


def test_a_handler_of_the_script_s_own_stays(slot: Slot, tmp_path: Path) -> None:
    process = asking(tmp_path, "signal.signal(signal.SIGTERM, lambda *_: os._exit(7))")
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 7
    assert not slot.only_notes_term


def test_a_forked_process_dies_of_sigterm_as_ever(slot: Slot, tmp_path: Path) -> None:
    """Loader workers are ended by it (`multiprocessing.Process.terminate`)."""
    code = (
        f"{ASKS}import multiprocessing, time\n"
        "def ends():\n"
        "    fork = multiprocessing.get_context('fork')\n"
        "    child = fork.Process(target=time.sleep, args=(60,), daemon=True)\n"
        "    child.start(); child.terminate(); child.join(60); return child.exitcode\n"
        "print({ends() for _ in range(20)})"
    )
    process = start(code, tmp_path)
    assert process.communicate(timeout=LIMIT)[0] == f"{{{-signal.SIGTERM}}}\n"
    assert not slot.only_notes_term


def spawning(tmp_path: Path, does: str) -> subprocess.Popen[str]:
    """A training with a handler of its own, whose loader's process imports the script once more."""
    script = tmp_path / "train.py"
    script.write_text(
        f"{ASKS}import multiprocessing, signal, time\n"
        "def work(up):\n"
        f"    {does}\n"
        "    up.set(); time.sleep(3)\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "    spawn = multiprocessing.get_context('spawn')\n"
        "    up = spawn.Event()\n"
        "    child = spawn.Process(target=work, args=(up,), daemon=True)\n"
        "    child.start(); up.wait(); child.terminate(); child.join(60); print(child.exitcode)\n"
    )
    return start(str(script), tmp_path)


@pytest.mark.parametrize("asks", [False, True])
def test_a_spawned_process_dies_of_sigterm_as_ever_unless_it_is_the_one_that_trains(
    asks: bool, slot: Slot, tmp_path: Path
) -> None:
    """It could not be ended, and its flag had the agent kill a training that saves at SIGTERM."""
    process = spawning(tmp_path, "asks()" if asks else "pass")
    said = "0" if asks else str(-signal.SIGTERM)
    assert process.communicate(timeout=LIMIT)[0] == f"{said}\n"
    assert slot.only_notes_term is asks


def test_a_handler_of_the_script_s_own_that_passes_the_signal_on_stays(slot: Slot, tmp_path: Path) -> None:
    """To who had it before, as libraries do; it would be killed in the middle of its checkpoint."""
    chain = (
        "before = signal.getsignal(signal.SIGTERM)\n"
        "signal.signal(signal.SIGTERM, lambda *given: (before(*given), os._exit(7)))"
    )
    process = asking(tmp_path, chain)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 7
    assert not slot.only_notes_term


def test_a_stopped_process_does_not_stop_its_agent(slot: Slot, tmp_path: Path) -> None:
    """Wherever SIGSTOP hits it, also with the slot's lock in its hands."""
    process = start(ASKS + "print('ready', flush=True)\nwhile True: asks()", tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    with ThreadPoolExecutor(1) as agent:
        for _ in range(30):
            process.send_signal(signal.SIGSTOP)
            proposing = agent.submit(slot.propose, slot.count().calls + 1_000_000)
            returned = wait([proposing], LIMIT).done
            process.send_signal(signal.SIGCONT)  # else the thread could not end
            assert returned, "it does not wait for a process that is stopped"
    slot.withdraw()
    process.kill()
    process.wait(LIMIT)


def test_a_call_costs_microseconds(slot: Slot, tmp_path: Path) -> None:
    """HyperPod's all_reduce and `.item()` each step cost some hundred of them on one node already.

    Processor time of the process that asks: it waits for nobody.
    """
    code = (
        ASKS + "import time\nbest = 1.0\n"
        "for _ in range(20):\n"
        "    began = time.process_time()\n"
        "    for _ in range(500): asks()\n"
        "    best = min(best, (time.process_time() - began) / 500)\n"
        "print(best)"
    )
    process = start(code, tmp_path)
    assert float(process.communicate(timeout=LIMIT)[0]) < 100e-6
