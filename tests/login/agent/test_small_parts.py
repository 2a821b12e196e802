"""Where sessions come from, the load, what is remembered of a drain, what settings are read."""

from __future__ import annotations

import math
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from hpctools.errors import CommandTimeout, UsageError
from hpctools.login.agent import drained, sources
from hpctools.login.agent.daemon import _forget_service, make_agent
from hpctools.login.agent.drained import Drained, DrainFile, Word
from hpctools.login.agent.load import MEMORY_SECONDS, Counters, Load, eased, last_minute, load, parse_counters
from hpctools.login.agent.sample import Sampler
from hpctools.login.agent.settings import Settings, read_settings
from hpctools.login.agent.slices import set_property
from hpctools.login.agent.sources import Sources, parse_logind
from hpctools.login.care import GIB, Limits
from hpctools.slurm.run import Completed
from tests.login.agent.made_agent import FakeService

STAT = "cpu  100 0 50 800 40 0 10 0 5 0\ncpu0 1 2 3\nbtime 1700000000\n"
MEMINFO = "MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:    4000000 kB\n"
LOGIND = """\
Leader=4711
RemoteHost=192.0.2.7

Leader=812
RemoteHost=

Leader=0
RemoteHost=gone.example
"""


def test_a_drain_has_lasted_since_it_began_or_since_before_the_agent(tmp_path: Path) -> None:
    """Other words of the same drain do not begin it anew; the next one does."""
    clock = [100.0]
    file = DrainFile(tmp_path / "drain.json", lambda: clock[0])
    assert not file.has_lasted(0.0)
    file.hear(here=Word(True, "disk"))
    clock[0] += 89.0
    file.hear(service=Word(True, "kernel"))
    assert (file.has_lasted(89.0), file.has_lasted(90.0)) == (True, False)
    assert DrainFile(tmp_path / "drain.json", lambda: 0.0).has_lasted(90.0)
    file.hear(here=Word(), service=Word())
    file.hear(here=Word(True, "disk"))
    assert not file.has_lasted(1.0)


def test_the_load_is_what_happened_between_two_looks() -> None:
    before = parse_counters(STAT, MEMINFO, 4)
    assert before == Counters(4, 1000, 840, 16_000_000 * 1024, 4_000_000 * 1024)
    after = parse_counters(STAT.replace("100 0 50 800", "250 0 50 850"), MEMINFO, 4)
    assert load(before, after) == Load(4, 0.75, 0.75)
    assert load(before, before) == Load(4, 0.0, 0.75)
    with pytest.raises(ValueError, match="lacks a figure"):
        parse_counters(STAT, "MemTotal: 5 kB\n", 4)


def test_what_lasts_seconds_hardly_changes_a_nodes_load_and_what_lasts_minutes_does() -> None:
    idle, busy = Load(4, 0.0, 0.2), Load(4, 1.0, 0.3)
    assert eased(idle, busy, 15.0) == Load(4, pytest.approx(0.2212, abs=1e-4), 0.3)
    assert eased(idle, busy, MEMORY_SECONDS).cpu == pytest.approx(1 - 1 / math.e)
    assert eased(busy, idle, 5 * MEMORY_SECONDS).cpu < 0.01
    twice = eased(eased(idle, busy, 5.0), busy, 10.0)
    assert twice.cpu == pytest.approx(eased(idle, busy, 15.0).cpu), "looks may come as often as they like"


def test_what_the_kernel_knows_of_the_last_minute(tmp_path: Path) -> None:
    counters = parse_counters(STAT, MEMINFO, 4)
    for text, cpu in (("0.00 9 9 1/81 7\n", 0.0), ("1.40 0 0 3/81 7\n", 0.35), ("64.2 9 9 1/81 7\n", 1.0)):
        (tmp_path / "loadavg").write_text(text)
        assert last_minute(counters, tmp_path) == Load(4, cpu, 0.75)


def test_looks_at_a_node_average_its_load_from_that_of_the_minute_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of four CPUs was busy; then 100 ticks of which none, half and all are, a minute apart.

    A second in which the agent itself was started, and all else with it, is a sixtieth of a minute.
    """
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "loadavg").write_text("1.00 0.50 0.25 2/81 4711\n")
    busy = (0, 100, 0, 50, 100)
    times = iter((0.0, 1.0, 61.0, 121.0, 181.0))
    sampler = Sampler(lambda: next(times), lambda: 1_700_000_100.0, dict, tmp_path)
    seen, counted = [], [0, 0]
    for each in busy:
        counted = [counted[0] + each, counted[1] + 100 - each]
        stat = "cpu {} 0 0 {} 0 0 0 0 0 0\nbtime 1700000000\n".format(*counted)
        (tmp_path / "stat").write_text(stat)
        seen.append(sampler.look().load.cpu)
    second, minute = math.exp(-1 / 60), math.exp(-1)
    expected = [0.25]
    for now, stays in ((1.0, second), (0.0, minute), (0.5, minute), (1.0, minute)):
        expected.append(now + (expected[-1] - now) * stays)
    assert seen == pytest.approx(expected)
    assert seen[1] < 0.27


def test_sources_of_claims_and_utmp(tmp_path: Path) -> None:
    """Our PAM's claim of a connection, and utmp's record of a terminal; one that is over tells nothing."""
    record = struct.Struct("h2xi32s4s32s256s2h3i4i20s")
    rest = (0, 0, 0, 0, 0, 0, 0, 0, 0, b"")
    utmp = tmp_path / "utmp"
    utmp.write_bytes(
        record.pack(7, 1, b"pts/3", b"ts/3", b"nlp1", b"198.51.100.9", *rest)
        + record.pack(8, 1, b"pts/4", b"ts/4", b"nlp1", b"198.51.100.8", *rest)
    )
    (tmp_path / "claims/1001").mkdir(parents=True)
    (tmp_path / "claims/1001/4711-88123").write_text("Mon 09:00\t192.0.2.7\n")
    (tmp_path / "claims/lock").write_text("")
    wanted = {"pts/3": "198.51.100.9", "4711-88123": "192.0.2.7"}
    found = Sources(claims=tmp_path / "claims", utmp=utmp).read()
    assert {key: found[key] for key in wanted} == wanted
    assert "pts/4" not in found


def test_folders_of_claims_that_go_meanwhile_are_no_fault(tmp_path: Path) -> None:
    """PAM removes one when its person has left; the whole look failed."""
    for number in ("1000", "1001", "1002"):
        (tmp_path / number).mkdir()
        (tmp_path / number / "4711-88123").write_text("Mon 09:00\t192.0.2.7\n")
    found = sources._of_claims(tmp_path)
    first = next(found)
    for folder in tmp_path.iterdir():
        shutil.rmtree(folder)
    assert [first, *found] == [("4711-88123", "192.0.2.7")]


def test_a_logind_that_hangs_is_not_asked_at_each_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten seconds of a look each time, and the node's report came as late."""
    clock, asked, hangs = [0.0], list[float](), [True]

    def run(words: list[str], timeout: float) -> Completed:
        asked.append(clock[0])
        if hangs[0]:
            clock[0] += timeout
            raise CommandTimeout("loginctl did not end within 5 s", argv=words, code=None)
        return Completed(tuple(words), 0, LOGIND if words[1] == "show-session" else "1 1000\n", "")

    monkeypatch.setattr("hpctools.login.agent.sources.run", run)
    sources = Sources(lambda: clock[0], tmp_path, tmp_path / "utmp")
    for now in range(0, 3600, 10):
        clock[0] = max(clock[0], float(now))
        assert sources.read() == {}
    assert [round(at, -1) for at in asked[:5]] == [0, 70, 200, 450, 940]
    assert len(asked) == 9
    assert len(caplog.records) == 1
    assert "logind is asked again in 1 minute, and later each 10 minutes, until it answers" in caplog.text
    hangs[0] = False
    clock[0] += 600
    assert sources.read() == {"4711": "192.0.2.7"}
    asked.clear()
    sources.read()
    assert len(asked) == 2, "it is asked as ever again"


def test_what_logind_says() -> None:
    assert parse_logind(LOGIND) == {"4711": "192.0.2.7"}


def test_a_drain_outlives_the_agent_and_either_side_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "state/drain.json"
    DrainFile(path).hear(here=Word(True, "disk"))
    before, now = DrainFile(path).hear(service=Word(True, "new kernel"))
    assert before == Drained(Word(), Word(True, "disk"))
    assert (now.draining, now.why) == (True, "disk")
    now = DrainFile(path).hear(here=Word())[1]
    assert (now.draining, now.why) == (True, "new kernel")
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_said_on_both_sides_at_the_same_time_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root drains the node in the moment in which the service's answer comes."""
    file, other_is_done = DrainFile(tmp_path / "drain.json"), Event()

    def say_here() -> None:
        file.hear(here=Word(True, "disk"))
        other_is_done.set()

    other = Thread(target=say_here)

    def interrupted(before: Drained, **words: Word) -> Drained:
        if not other.ident:
            other.start()
            other_is_done.wait(1)  # without a lock it gets through here, and its word is lost
        return replace(before, **words)

    monkeypatch.setattr(drained, "replace", interrupted)
    file.hear(service=Word(True, "new kernel"))
    other.join(20)
    assert file.now == Drained(Word(True, "new kernel"), Word(True, "disk"))
    assert DrainFile(tmp_path / "drain.json").now == file.now


@pytest.mark.parametrize("text", ["", "[]", '{"service": {}, "here": {}}', '{"service": 1, "here": 2}'])
def test_a_damaged_memory_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "drain.json").write_text(text)
    assert DrainFile(tmp_path / "drain.json").now == Drained()


@pytest.mark.parametrize("service", [FakeService({}), None])
def test_without_a_service_its_last_word_counts_no_more(tmp_path: Path, service: FakeService | None) -> None:
    """While it is silent it does; what the site took away could never lift the drain."""
    here = Word(draining=True, why="fans")
    DrainFile(tmp_path / "drain.json").hear(service=Word(draining=True, why="kernel"), here=here)
    agent = make_agent(Settings(node="login-1", state=str(tmp_path)), service)
    if service is None:
        _forget_service(agent)
    assert agent.drain_file.now.service.draining == (service is not None)
    agent.drain(draining=False, why="")
    assert DrainFile(tmp_path / "drain.json").now.draining == (service is not None)


def test_settings_of_a_later_release_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent that ends for a word that it does not know would leave its node without one."""
    path = tmp_path / "agent.yaml"
    path.write_text("node: login-1\nnews: [1]\ncare: {cpus: 2, patience: 00:05:00, mercy: 3}\n")
    found = read_settings(path)
    assert (found.node, found.care and found.care.cpus) == ("login-1", 2)
    assert [word in caplog.text for word in ("agent.yaml: news: ", "agent.yaml: care.mercy: ")] == [True] * 2
    path.write_text("news: 1\nevery: 0\n")
    with pytest.raises(UsageError, match=r"agent.yaml: every: "):
        read_settings(path)


def test_settings_are_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("node: login-1\ncare: {cpus: 2, patience: 00:05:00}\nbalance_on: [cpu]\n")
    found = read_settings(path)
    assert (found.node, found.balance_on, found.idle) == ("login-1", ("cpu",), None)
    assert found.care is not None
    assert (found.care.cpus, found.care.patience) == (2, 300)
    path.write_text("- login-1\n")
    with pytest.raises(UsageError, match=r"agent.yaml: all of it: "):
        read_settings(path)
    path.write_text("a: [")
    with pytest.raises(UsageError, match="is no YAML"):
        read_settings(path)
    with pytest.raises(UsageError, match="hpctools login render"):
        read_settings(tmp_path / "nowhere")
    assert Settings().most_sessions is None


def test_what_systemd_is_told() -> None:
    limited = set_property(1001, Limits(2.5, 8 * GIB, None))
    fixed = ["systemctl", "set-property", "--runtime", "user-1001.slice"]
    assert limited == [*fixed, "CPUQuota=250%", "MemoryHigh=8589934592"]  # the site's MemoryMax stays
    assert set_property(1001, Limits(memory_most=GIB)) == [*fixed, "MemoryMax=1073741824"]
