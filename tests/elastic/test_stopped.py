"""What an agent sees of its workers' processes: who computes and who is stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from types import SimpleNamespace

from hpctools.elastic.proc_stat import Stat, stat_of
from hpctools.elastic.stopped import BusyWatch, is_stopped

LIMIT = 20.0
# A name of 15 bytes at most, cut in the middle of a letter, as setproctitle's may be.
NAMED = (
    "import ctypes, time; ctypes.CDLL(None).prctl(15, 'aaaaaaaaaaaaaa\\u00fc'.encode()); print(flush=True); "
)
HOLDS = "print(flush=True); sum(range(10**12))"


def started(program: str) -> subprocess.Popen[bytes]:
    """A Python that has come as far as its first line of output."""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_name_that_is_no_text_hides_nobody() -> None:
    with started(NAMED + "time.sleep(60)") as process:
        try:
            assert not is_stopped(process.pid)
            process.send_signal(signal.SIGSTOP)
            deadline = time.monotonic() + LIMIT
            while not is_stopped(process.pid):
                assert time.monotonic() < deadline
                time.sleep(0.001)
        finally:
            process.kill()


def test_a_process_that_holds_the_lock_computes_and_one_that_sleeps_does_not() -> None:
    with started(HOLDS) as holds, started(NAMED + "time.sleep(60)") as sleeps:
        try:
            pids = {"r7.0.0": holds.pid, "r8.0.0": sleeps.pid, "r9.0.0": 1 << 30}
            watch = BusyWatch(SimpleNamespace(pids=pids))
            assert watch.look() == [], "nothing is known yet"
            deadline = time.monotonic() + LIMIT
            while not (busy := watch.look()):
                assert time.monotonic() < deadline
                time.sleep(0.5)
            assert busy == ["r7.0.0"]
        finally:
            for each in (holds, sleeps):
                each.kill()


def test_who_is_stopped_or_computes_only_now_and_then_is_not_vouched_for() -> None:
    now, seconds, state = [0.0], [0.0], ["R"]
    workers = SimpleNamespace(pids={"r7.0.0": 1})
    watch = BusyWatch(workers, lambda: now[0], lambda pid: Stat(state[0], seconds[0]))

    def after(passed: float, computed: float) -> list[str]:
        now[0], seconds[0] = now[0] + passed, seconds[0] + computed
        return watch.look()

    assert after(0.5, 0.5) == [], "the first look"
    assert after(0.5, 0.5) == ["r7.0.0"]
    assert after(0.5, 0.06) == ["r7.0.0"], "the machine is busy"
    assert after(0.5, 0.04) == [], "a library's thread that looks around"
    assert after(0.0, 0.01) == [], "two looks at once"
    state[0] = "T"
    assert after(0.5, 0.4) == []
    state[0] = "R"
    assert after(0.5, 0.4) == ["r7.0.0"]
    assert after(30.0, 1.0) == [], "of a long time a longer part"


def test_a_process_that_is_gone_has_no_state() -> None:
    assert stat_of(1 << 30) is None
    assert not is_stopped(1 << 30)
