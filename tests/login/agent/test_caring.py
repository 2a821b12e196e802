"""Care, carried out: with slices that only remember, and in the kernel's own cgroups."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from hpctools.errors import CommandError, CommandTimeout
from hpctools.login.agent.caring import Carer
from hpctools.login.agent.processes import TICKS, Process, read_processes
from hpctools.login.agent.slices import (
    CGROUPS,
    CgroupOne,
    CgroupTwo,
    SystemdSlices,
    find_slices,
    held,
    in_job,
)
from hpctools.login.care import GIB, Limits, Standing
from hpctools.site.login_care import Care
from tests.login.node_processes import process, sample

CARE = Care.model_validate({"cpus": 2.0, "memory_gib": 4.0, "patience": "00:05:00", "penalty": "00:10:00"})


class FakeSlices:
    """Remembers limits; refuses when told to."""

    def __init__(self) -> None:
        self.adopts = True
        self.holds_memory = True
        self.broken = self.hangs = False
        self.asked = 0
        self.told: list[tuple[int, Limits]] = []
        self.missed: set[int] = set()  # processes that limits do not reach

    def outside(self, uid: int, processes: Iterable[Process]) -> tuple[Process, ...]:
        return tuple(each for each in processes if each.pid in self.missed)

    def left(self) -> tuple[int, ...]:
        return ()

    def limit(self, uid: int, limits: Limits, processes: Iterable[Process]) -> None:
        self.asked += 1
        if self.hangs:
            raise CommandTimeout("systemctl did not end within 10 s", argv=("systemctl",), code=None)
        if self.broken:
            raise CommandError("systemctl failed", argv=("systemctl",), code=1)
        self.told.append((uid, limits))

    def lift(self, uids: Iterable[int]) -> Mapping[int, Exception]:
        failed: dict[int, Exception] = {}
        for uid in uids:
            try:
                self.limit(uid, Limits(), ())
            except CommandError as error:
                failed[uid] = error
        return failed


def work(carer: Carer, cpus: float, minutes: int, start: float = 0.0) -> float:
    """Somebody uses so many processors for some minutes, looked at each of them; the end."""
    begin = round(start * cpus * TICKS)
    before = sample(process(50, uid=1, ticks=begin), process(51, uid=54321, ticks=begin), at=start)
    for number in range(1, minutes + 1):
        ticks = begin + round(60 * number * cpus * TICKS)
        after = sample(process(50, uid=1), process(51, uid=54321, ticks=ticks), at=start + 60 * number)
        carer.look(before, after)
        before = after
    return start + 60 * minutes


def test_somebody_is_slowed_down_told_and_let_go() -> None:
    """Three processors where two are a part: 200 s of patience; then ten minutes at 80 %."""
    slices, told = FakeSlices(), list[tuple[str, str]]()
    carer = Carer(CARE, slices, lambda user, words: told.append((user, words)), lambda user: user == "root")
    end = work(carer, 3.0, 4)
    assert slices.told == [(54321, Limits(1.6, int(3.2 * GIB), None))]
    assert [(user, words[:32]) for user, words in told] == [("54321", "You have used 3.0 processors and")]
    assert carer.standings["54321"].level == 1
    work(carer, 0.0, 11, end)
    assert slices.told[1:] == [(54321, Limits())]
    assert told[1][1].startswith("This login node's limit on your programs is over.")
    assert carer.penalties == 1


def test_prometheus_may_ask_while_somebody_else_becomes_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names come from a directory: meanwhile the next look goes on, and the figures were answered by 500."""
    carer = Carer(CARE, FakeSlices(), lambda user, words: None, lambda user: False)
    work(carer, 3.0, 4)

    def slow(uid: int) -> str:
        carer._standings[uid + 1] = Standing(0.5)
        return str(uid)

    monkeypatch.setattr("hpctools.login.agent.caring.user_name", slow)
    assert [standing.level for standing in carer.standings.values()] == [1]


@pytest.mark.parametrize(("holds", "left"), [(True, "1.6 processors and 3.2 GiB"), (False, "1.6 processors")])
def test_a_limit_on_memory_is_told_where_the_kernel_has_one(holds: bool, left: str) -> None:
    """cgroup v1 has none that slows down: who was told of 3.2 GiB could hold all memory there is."""
    slices, told = FakeSlices(), list[str]()
    slices.holds_memory = holds
    carer = Carer(CARE, slices, lambda user, words: told.append(words), lambda user: user == "root")
    end = work(carer, 3.0, 4)
    assert f"Your programs go on with {left}; the limit eases" in told[0]
    assert f"are limited to {left} for the next" in carer.notices(end)["54321"].words


def test_where_the_kernel_limits_memory(tmp_path: Path) -> None:
    systemd = tmp_path / "systemd"
    (one := tmp_path / "one").mkdir()
    (two := tmp_path / "two").mkdir()
    (two / "cgroup.controllers").touch()
    for there in (False, True):
        assert [find_slices(systemd, each).holds_memory for each in (one, two)] == [False, True]
        systemd.mkdir(exist_ok=there)


def test_a_penalty_ends_for_who_has_left_and_comes_back() -> None:
    """systemd keeps a slice's limit when its person leaves: it is lifted in time nevertheless."""
    slices = FakeSlices()
    carer = Carer(CARE, slices, lambda user, words: None, lambda user: False)
    end = work(carer, 3.0, 4)
    for minute in range(30):
        at = end + 60 * minute
        carer.look(sample(process(50, uid=1), at=at), sample(process(50, uid=1), at=at + 60))
    assert slices.told[-1] == (54321, Limits())
    work(carer, 0.1, 2, end + 1800)
    assert slices.told[-1] == (54321, Limits())


@pytest.mark.parametrize(("known", "penalties"), [(4 << 28, 0), (None, 1)])
def test_memory_that_workers_share_counts_once(known: int | None, penalties: int) -> None:
    """Sixteen of them have the same gigabyte; the slice holds little more than one."""
    carer = Carer(CARE, FakeSlices(), lambda u, w: None, lambda u: False, held=lambda uid: known)
    workers = [process(60 + each, uid=54321, memory=GIB) for each in range(16)]
    for minute in range(8):
        carer.look(sample(*workers, at=60 * minute), sample(*workers, at=60 * (minute + 1)))
    assert carer.penalties == penalties


def test_memory_outside_the_slice_counts_too() -> None:
    """A shell of Session Manager's runs in that service: only what somebody had by ssh counted beside it."""
    slices = FakeSlices()
    slices.missed = {70, 71}
    carer = Carer(CARE, slices, lambda u, w: None, lambda u: False, held=lambda uid: GIB)
    there = [
        process(60, uid=54321, memory=2 * GIB),
        process(70, uid=54321, memory=5 * GIB),
        process(71, uid=54321, memory=9 * GIB, name="rsync"),
    ]
    used = []
    for minute in range(8):
        carer.look(sample(*there, at=60 * minute), sample(*there, at=60 * (minute + 1)))
        used += [reason[1] for reason in carer._reasons.values()]
    assert (carer.penalties, set(used)) == (1, {6 * GIB})


@pytest.mark.parametrize(("shell", "words"), [(False, "cannot slow down what"), (True, "but for those that")])
def test_nobody_is_told_of_a_limit_that_does_not_reach_them(shell: bool, words: str) -> None:
    """systemd has the slice of somebody who came by Session Manager limited, and nothing in it."""
    slices, told = FakeSlices(), list[str]()
    slices.missed = {51}
    carer = Carer(CARE, slices, lambda user, said: told.append(said), lambda user: user == "root")
    there = [process(52, uid=54321, name="bash")] if shell else []
    for minute in range(5):
        ticks = [round(60 * (minute + past) * 3.0 * TICKS) for past in (0, 1)]
        first, then = (sample(process(51, uid=54321, ticks=each), *there) for each in ticks)
        carer.look(replace(first, at=60.0 * minute), replace(then, at=60.0 * minute + 60))
    assert len(told) == 1
    assert words in told[0]
    assert "such as python3 (process 51)" in told[0]
    assert words in carer.notices(300.0)["54321"].words


def test_what_systemd_has_elsewhere_is_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a job, or ended: nothing is to be said of it."""
    where = {
        7: "0::/user.slice/user-1001.slice/session-3.scope",
        8: "0::/system.slice/amazon-ssm-agent.service",
        9: "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0",
        10: "5:cpu,cpuacct:/\n1:name=systemd:/user.slice/user-1001.slice/user@1001.service/app.slice",
        13: "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0",  # from 26.05 on
        11: "0::/user.slice/user-10011.slice/session-4.scope",
    }
    for pid, line in where.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"{line}\n")
    monkeypatch.setattr("hpctools.login.agent.slices.PROC", tmp_path)
    theirs = [process(pid, uid=1001) for pid in (*where, 12)]
    assert [each.pid for each in SystemdSlices().outside(1001, theirs)] == [8, 11]
    assert CgroupTwo().outside(1001, theirs) == CgroupOne().outside(1001, theirs) == ()


def test_what_a_slice_holds_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "user.slice/user-1001.slice"
    folder.mkdir(parents=True)
    (folder / "memory.stat").write_text("anon 100\nfile 5000\nkernel 7\nshmem 20\n")
    assert (held(1001, tmp_path), held(1002, tmp_path)) == (120, None)


def test_who_is_away_stays_in_the_note_until_the_limit_is_lifted(tmp_path: Path) -> None:
    memory = tmp_path / "limited.json"
    carer = Carer(CARE, FakeSlices(), lambda user, words: None, lambda user: False, memory)
    end = work(carer, 3.0, 4)
    carer.look(sample(process(50, uid=1), at=end), sample(process(50, uid=1), at=end + 60))
    assert memory.read_text() == "[54321]\n"


def test_lifting_takes_back_what_was_set_and_leaves_the_sites_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr("hpctools.login.agent.slices.run", lambda words, timeout: ran.append(words))
    folder = tmp_path / "user-1001.slice.d"
    folder.mkdir()
    for name in ("50-CPUQuota.conf", "50-MemoryHigh.conf", "50-TasksMax.conf"):
        (folder / name).touch()
    SystemdSlices(tmp_path).limit(1001, Limits(), ())
    SystemdSlices(tmp_path).limit(1001, Limits(), ())
    assert [file.name for file in folder.iterdir()] == ["50-TasksMax.conf"]
    assert ran == [["systemctl", "daemon-reload"]]


def test_nobody_is_told_of_a_limit_that_cannot_be_set() -> None:
    slices, told = FakeSlices(), list[str]()
    slices.broken = True
    carer = Carer(CARE, slices, lambda user, words: told.append(words), lambda user: False)
    end = work(carer, 3.0, 6)
    assert (told, carer.penalties) == ([], 0)
    slices.broken = False
    work(carer, 3.0, 1, end)
    assert len(told) == 1


def test_a_systemd_that_hangs_is_not_asked_at_each_look(caplog: pytest.LogCaptureFixture) -> None:
    """Ten seconds for each person and look, after which the node's next report came."""
    slices, clock = FakeSlices(), [0.0]
    slices.hangs = True
    carer = Carer(CARE, slices, lambda u, w: None, lambda u: False, monotonic=lambda: clock[0])
    end = work(carer, 3.0, 20)
    assert slices.asked == 1
    assert [each.message.partition(": ")[0] for each in caplog.records] == [
        "systemctl did not end within 10 s"
    ]
    clock[0] = 61.0
    end = work(carer, 3.0, 20, end)
    assert (slices.asked, len(caplog.records)) == (2, 1)
    slices.hangs, clock[0] = False, 200.0
    work(carer, 3.0, 1, end)
    assert [uid for uid, _ in slices.told] == [54321]


def test_limits_are_lifted_at_the_end_also_by_what_hung_a_moment_ago() -> None:
    """Nobody stays limited by an agent that no longer runs."""
    slices, clock = FakeSlices(), [0.0]
    carer = Carer(CARE, slices, lambda u, w: None, lambda u: False, monotonic=lambda: clock[0])
    end = work(carer, 3.0, 4)
    slices.hangs = True
    work(carer, 0.0, 20, end)
    slices.hangs = False
    carer.release()
    assert slices.told[-1] == (54321, Limits())


def test_administrators_and_the_system_are_left_alone() -> None:
    slices = FakeSlices()
    work(Carer(CARE, slices, lambda user, words: None, lambda user: True), 9.0, 20)
    assert slices.told == []


def test_a_cap_counts_for_everybody_from_the_start() -> None:
    slices = FakeSlices()
    capped = CARE.model_copy(update={"most_cpus": 3.0})
    work(Carer(capped, slices, lambda user, words: None, lambda user: False), 0.1, 3)
    assert slices.told == [(54321, Limits(3.0))]


def test_a_cap_for_hundreds_of_people_is_set_over_several_looks() -> None:
    """By a systemd that takes 0.1 s for each: a look of half a minute made the node silent."""
    slices, now = FakeSlices(), [0.0]

    def takes_its_time(uid: int, limits: Limits, processes: Iterable[Process]) -> None:
        now[0] += 0.1
        slices.told.append((uid, limits))

    slices.limit = takes_its_time  # type: ignore[method-assign]
    care = CARE.model_copy(update={"most_memory_gib": 8.0})
    carer = Carer(care, slices, lambda user, words: None, lambda user: False, monotonic=lambda: now[0])
    there = [process(1000 + n, uid=100_000 + n) for n in range(300)]
    for number in range(7):
        begun = now[0]
        carer.look(sample(*there, at=10.0 * number), sample(*there, at=10.0 * number + 10))
        assert now[0] - begun < 6
    assert sorted(uid for uid, _ in slices.told) == [100_000 + n for n in range(300)]


def test_nobody_stays_limited_by_an_agent_that_is_gone(tmp_path: Path) -> None:
    """Killed, it leaves its limits and a note; the next one lifts them, and its own when it ends."""
    slices, memory = FakeSlices(), tmp_path / "state/limited.json"
    killed = Carer(CARE, slices, lambda user, words: None, lambda user: False, memory)
    work(killed, 3.0, 4)
    assert memory.read_text() == "[54321]\n"
    following = Carer(CARE, slices, lambda user, words: None, lambda user: False, memory)
    following.release()
    assert slices.told[1:] == [(54321, Limits())]
    assert memory.read_text() == "[]\n"
    work(following, 3.0, 4)
    following.release()
    assert slices.told[-1] == (54321, Limits())


def test_a_full_disk_ends_neither_the_agent_nor_its_look(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent that could not note down that nobody is limited did not start, again and again."""
    (tmp_path / "state").write_text("")
    slices, told = FakeSlices(), list[str]()
    note = tmp_path / "state" / "limited.json"
    carer = Carer(CARE, slices, lambda user, words: told.append(user), lambda user: False, note)
    work(carer, 3.0, 4)
    assert (told, carer.standings["54321"].level) == (["54321"], 1)
    carer.release()
    assert slices.told[1:] == [(54321, Limits())]
    assert caplog.messages[0].startswith("should this agent be killed, nobody will know whom")


def test_a_limit_that_could_not_be_lifted_is_lifted_later(tmp_path: Path) -> None:
    """By whoever looks next, or by the next agent: its person has left, and uses nothing."""
    slices, memory = FakeSlices(), tmp_path / "limited.json"
    work(Carer(CARE, slices, lambda user, words: None, lambda user: False, memory), 3.0, 4)
    slices.told.clear()
    slices.broken = True
    for _ in range(2):
        Carer(CARE, slices, lambda user, words: None, lambda user: False, memory).release()
        assert memory.read_text() == "[54321]\n", "the next one is to know"
    carer = Carer(CARE, slices, lambda user, words: None, lambda user: False, memory)
    carer.release()
    for minute, broken in enumerate((True, False, False)):
        slices.broken = broken
        carer.look(
            sample(process(50, uid=1), at=60.0 * minute), sample(process(50, uid=1), at=60.0 * minute + 60)
        )
    assert slices.told == [(54321, Limits())], "once"
    carer.release()
    assert memory.read_text() == "[]\n"


@pytest.mark.parametrize("text", ["", "{}", "[true, null]", "7"])
def test_a_damaged_note_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "limited.json").write_text(text.replace("true", '"x"'))
    slices = FakeSlices()
    Carer(CARE, slices, lambda u, w: None, lambda u: False, tmp_path / "limited.json").release()
    assert slices.told == []


def test_what_is_in_a_job_stays_there(tmp_path: Path) -> None:
    lines = {
        6: "0::/hpc.slice/n1_slurmstepd.scope/sEKNKTV3WPV500/step_extern/user",
        7: "4:memory:/slurm/uid_1001/job_42/step_0/task_0",
        8: "4:memory:/user.slice",
    }
    for pid, line in lines.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"1:cpu:/\n{line}\n")
    assert [in_job(pid, tmp_path) for pid in (6, 7, 8, 9)] == [True, True, False, False]


def test_systemd_is_asked_where_it_is_in_charge(tmp_path: Path) -> None:
    assert isinstance(find_slices(tmp_path), SystemdSlices)
    assert not isinstance(find_slices(tmp_path / "none"), SystemdSlices)


@pytest.fixture
def cgroups(tmp_path: Path) -> Iterator[Path]:
    """The kernel's own folders of cgroup v1, a branch of them for this test."""
    name = f"hpctools-care-{uuid4().hex[:8]}"
    if not (CGROUPS / "cpu/cpu.cfs_quota_us").parent.is_dir() or not os.access(CGROUPS / "cpu", os.W_OK):
        pytest.skip("this machine gives no cgroups of v1")
    for controller in ("cpu", "memory"):
        (CGROUPS / controller / name).mkdir()
        (tmp_path / controller).symlink_to(CGROUPS / controller / name)
    try:
        yield tmp_path
    finally:
        for controller in ("cpu", "memory"):
            for folder, _, _ in os.walk(CGROUPS / controller / name, topdown=False):
                Path(folder).rmdir()


def test_the_kernel_slows_somebody_down(cgroups: Path) -> None:
    """A tenth of a processor: whoever wants all of one gets no more than that."""
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as busy:
        try:
            (found,) = [each for each in read_processes() if each.pid == busy.pid]
            CgroupOne(cgroups).limit(found.uid, Limits(0.1, 2 * GIB, 3 * GIB), [found])
            begin, before = time.monotonic(), ticks_of(busy.pid)
            time.sleep(1.0)
            used = (ticks_of(busy.pid) - before) / TICKS / (time.monotonic() - begin)
        finally:
            busy.kill()
            busy.wait()
    folder = cgroups / f"memory/hpctools-login/user-{found.uid}"
    assert (folder / "memory.limit_in_bytes").read_text().strip() == str(3 * GIB)
    assert used < 0.3


def ticks_of(pid: int) -> int:
    return next(each.cpu_ticks for each in read_processes() if each.pid == pid)
