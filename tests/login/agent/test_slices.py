"""Where limits are kept: systemd's files, and folders of cgroup v2, a real one where the kernel has it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from hpctools.errors import CommandTimeout, HpctoolsError
from hpctools.login.agent.caring import Carer
from hpctools.login.agent.processes import Process, read_processes
from hpctools.login.agent.slices import CGROUPS, CgroupOne, CgroupTwo, SystemdSlices, find_slices
from hpctools.login.care import GIB, Limits
from hpctools.site.login_care import Care

FILES = ("cpu.max", "memory.high", "memory.max")


def test_what_is_set_is_in_the_last_of_all_files_until_it_is_lifted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd reads them in the order of their names; `systemctl edit` makes an override.conf."""
    ran: list[str] = []
    monkeypatch.setattr("hpctools.login.agent.slices.run", lambda words, timeout: ran.append(words[1]))
    folder, slices = tmp_path / "user-1001.slice.d", SystemdSlices(tmp_path)
    slices.limit(1001, Limits(1.5, GIB), ())
    (ours,) = folder.iterdir()
    assert max("50-CPUQuota.conf", "99-site.conf", "override.conf", ours.name) == ours.name
    assert ours.read_text().splitlines()[1:] == ["[Slice]", "CPUQuota=150%", f"MemoryHigh={GIB}"]
    slices.limit(1001, Limits(0.5), ())
    assert ours.read_text().splitlines()[1:] == ["[Slice]", "CPUQuota=50%"]
    slices.limit(1001, Limits(), ())
    assert list(folder.iterdir()) == []
    assert ran == ["set-property", "set-property", "daemon-reload"]


@pytest.mark.parametrize("then", [Limits(), Limits(None, GIB)])
def test_what_systemd_did_not_read_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: Limits
) -> None:
    """The files are gone when systemd is asked to read what is left: it does not answer in time."""
    ran: list[str] = []
    broken = [True]

    def run(words: list[str], timeout: float) -> None:
        ran.append(words[1])
        if words[1] == "daemon-reload" and broken:
            broken.pop()
            raise CommandTimeout("systemctl did not end within 60 s", argv=words, code=None)

    monkeypatch.setattr("hpctools.login.agent.slices.run", run)
    folder, slices = tmp_path / "user-1001.slice.d", SystemdSlices(tmp_path)
    slices.limit(1001, Limits(1.5, GIB), ())
    (folder / "50-CPUQuota.conf").write_text("as systemd writes it")
    with pytest.raises(CommandTimeout):
        slices.limit(1001, then, ())
    assert not (folder / "50-CPUQuota.conf").exists()
    for _ in range(2):
        slices.limit(1001, then, ())
    assert ran.count("daemon-reload") == 2, "and not again, once it has read them"
    assert [each for each in folder.iterdir() if each.name.startswith(".")] == []


def test_all_that_an_agent_leaves_behind_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where everybody is capped that is all who ever came: nothing is reported until it is done."""
    ran: list[str] = []
    monkeypatch.setattr("hpctools.login.agent.slices.run", lambda words, timeout: ran.append(words[1]))
    slices = SystemdSlices(tmp_path)
    memory, people = tmp_path / "limited.json", range(2000, 2100)
    memory.write_text(json.dumps(list(people)))
    for uid in people:
        slices.limit(uid, Limits(memory_most=GIB), ())
    ran.clear()
    Carer(Care(), slices, lambda user, words: None, lambda user: False, memory).release()
    assert ran == ["daemon-reload"]
    assert (memory.read_text(), [*tmp_path.glob("*/*")]) == ("[]\n", [])


def test_who_could_not_be_lifted_with_the_others_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = CommandTimeout("systemctl did not end within 60 s", argv=("systemctl",), code=None)

    def run(words: list[str], timeout: float) -> None:
        if words[1] == "daemon-reload":
            raise error

    monkeypatch.setattr("hpctools.login.agent.slices.run", run)
    slices = SystemdSlices(tmp_path)
    slices.limit(2000, Limits(1.5), ())
    assert slices.lift([2000, 2001]) == {2000: error}
    assert slices.lift([2000, 2001]) == {2000: error}, "systemd has still to read it"


def test_a_folder_that_is_read_only_keeps_no_limit_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The unit of an earlier release gives the agent no right to write there."""
    ran: list[str] = []
    monkeypatch.setattr("hpctools.login.agent.slices.run", lambda words, timeout: ran.append(words[1]))
    (tmp_path / "user-1001.slice.d").touch()  # root may write into any folder, but into none that is a file
    SystemdSlices(tmp_path).limit(1001, Limits(1.5), ())
    assert ran == ["set-property"]
    assert "Copy the new hp-login-agent.service" in caplog.text


def looks_like_two(root: Path) -> Path:
    """Make a folder look like a kernel's with cgroup v2; the person's folder in it."""
    folder = root / "hpctools-login/user-1001"
    folder.mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (folder / "cgroup.procs").write_text("")
    return folder


def files_of(folder: Path) -> list[str]:
    return [(folder / name).read_text() for name in FILES]


@pytest.fixture
def sleeper() -> Iterator[Process]:
    """A process that is in no job."""
    with subprocess.Popen(["sleep", "600"]) as started:
        try:
            yield next(each for each in read_processes() if each.pid == started.pid)
        finally:
            started.kill()
            started.wait()


def test_two_is_told_what_is_limited_and_what_is_no_more(tmp_path: Path, sleeper: Process) -> None:
    folder = looks_like_two(tmp_path)
    slices = find_slices(tmp_path / "none", tmp_path)
    assert isinstance(slices, CgroupTwo)
    slices.limit(1001, Limits(1.5, 2 * GIB, 3 * GIB), [sleeper])
    assert files_of(folder) == ["150000 100000", str(2 * GIB), str(3 * GIB)]
    assert (folder / "cgroup.procs").read_text() == str(sleeper.pid)
    for parent in (tmp_path, folder.parent):
        assert (parent / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert not (folder / "cgroup.subtree_control").exists(), "where processes are no controllers go on"
    slices.limit(1001, Limits(None, None, 3 * GIB), [])
    assert files_of(folder) == ["max 100000", "max", str(3 * GIB)]
    slices.limit(1001, Limits(), [])
    assert files_of(folder) == ["max 100000", "max", "max"]


def test_two_leaves_who_is_there_already_and_jobs_alone(
    tmp_path: Path, sleeper: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = looks_like_two(tmp_path)
    (folder / "cgroup.procs").write_text(f"7\n{sleeper.pid}\n")
    CgroupTwo(tmp_path).limit(1001, Limits(1.5), [sleeper])
    assert (folder / "cgroup.procs").read_text() == f"7\n{sleeper.pid}\n"
    (folder / "cgroup.procs").write_text("7\n")
    monkeypatch.setattr("hpctools.login.agent.slices.in_job", lambda pid: pid == sleeper.pid)
    CgroupTwo(tmp_path).limit(1001, Limits(1.5), [sleeper])
    assert (folder / "cgroup.procs").read_text() == "7\n"


def test_the_smallest_quota_is_one_that_the_kernel_takes(tmp_path: Path) -> None:
    """A thousandth of a second: of less it says EINVAL."""
    folder = looks_like_two(tmp_path)
    CgroupTwo(tmp_path).limit(1001, Limits(0.001), [])
    assert (folder / "cpu.max").read_text() == "1000 100000"


def test_without_the_files_of_two_it_is_one(tmp_path: Path) -> None:
    assert isinstance(find_slices(tmp_path / "none", tmp_path), CgroupOne)


@pytest.fixture
def kernels_two() -> Iterator[Path]:
    """A branch of the kernel's own cgroup v2, which may have no controllers: v1 has them here."""
    tops = [top for top in (CGROUPS, CGROUPS / "unified") if (top / "cgroup.controllers").exists()]
    if not tops or not os.access(tops[0], os.W_OK):
        pytest.skip("this machine gives no cgroup v2")
    branch = tops[0] / f"hpctools-two-{uuid4().hex[:8]}"
    branch.mkdir()
    try:
        yield branch
    finally:
        for folder, _, _ in os.walk(branch, topdown=False):
            with suppress(FileNotFoundError):
                Path(folder).rmdir()


def test_a_kernel_that_does_not_give_the_controllers_is_an_error_and_nobody_is_moved(
    kernels_two: Path, sleeper: Process
) -> None:
    """So nobody is told of a limit that there is not (`test_caring.py`)."""
    if {"cpu", "memory"} <= set((kernels_two / "cgroup.controllers").read_text().split()):
        pytest.skip("this kernel gives them")
    before = Path(f"/proc/{sleeper.pid}/cgroup").read_text()
    with pytest.raises((HpctoolsError, OSError)):
        CgroupTwo(kernels_two).limit(1001, Limits(0.1), [sleeper])
    assert Path(f"/proc/{sleeper.pid}/cgroup").read_text() == before
