"""A preflight touches nothing and leaves nothing, however it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpctools.conf.preflight import preflight
from hpctools.errors import UnreachableError
from tests.conf.preflight.deadly import DEADLY, GOOD

ROOT = Path(__file__).parents[3]
# 22.05 waits ten seconds for a node whose name is none: time enough to end it in the middle.
SLOW = DEADLY["bad host list"]

pytestmark = pytest.mark.system


def mounts() -> list[str]:
    """This machine's; other tests, at the same time, mount in their own folders."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if "/pytest-of-" not in line]


def test_mounts_files_and_processes_are_as_before() -> None:
    """Whatever it left under this process would be under a new child; other tests' daemons have theirs."""
    before = (
        mounts(),
        sorted(Path("/run").iterdir()),
        children(os.getpid()),
    )
    assert preflight(GOOD).ok
    after = (
        mounts(),
        sorted(Path("/run").iterdir()),
        children(os.getpid()),
    )
    assert after == before


def test_no_program_of_the_site_is_started_and_no_file_of_it_written(tmp_path: Path) -> None:
    program, written = tmp_path / "program", tmp_path / "written"
    program.write_text(f"#!/bin/sh\necho started >{written}\n")
    program.chmod(0o755)
    keys = ("ResumeProgram", "SuspendProgram", "SlurmctldPrimaryOnProg", "EpilogSlurmctld")
    lines = [f"{key}={program}" for key in keys] + ["SuspendTime=1", f"SlurmctldLogFile={written}"]
    lines += [f"JobCompLoc={written}", "JobCompType=jobcomp/filetxt", f"StateSaveLocation={tmp_path}"]
    text = GOOD["slurm.conf"].replace("StateSaveLocation=/var/spool/slurmctld\n", "")
    text = text.replace("SlurmUser=slurm", "SlurmUser=root")  # who may enter a test's folder
    files = {
        **GOOD,
        "slurm.conf": text + "\n".join(lines).replace("SlurmctldPrimaryOnProg", "MailProg") + "\n",
    }
    assert preflight(files).problems == ()
    assert sorted(tmp_path.iterdir()) == [program]


def test_others_than_root_may_ask_where_the_kernel_allows_user_namespaces(tmp_path: Path) -> None:
    code = "import sys, json; from hpctools.conf.preflight import preflight; "
    code += "v = preflight(json.load(sys.stdin)); print(v.problems, v.nodes, v.not_checked[0][:9])"
    argv = [sys.executable, "-c", code]
    done = subprocess.run(
        argv,
        input=json.dumps(GOOD),
        user="nobody",
        group="nogroup",
        extra_groups=[],
        cwd="/",
        env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("() 5 SlurmUser\n", "")


def test_a_machine_without_slurmctld_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="there is no slurmctld on this machine"):
        preflight(GOOD, root=tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_all_ends_with_the_one_who_asked(number: signal.Signals, tmp_path: Path) -> None:
    for path, text in SLOW.items():
        (tmp_path / path).write_text(text)
    argv = [sys.executable, "-m", "hpctools.cli.main", "preflight", str(tmp_path)]
    with subprocess.Popen(
        argv, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as asked:
        family = until(lambda: found if named(found := descendants(asked.pid), "slurmctld") else None)
        os.killpg(asked.pid, number) if number == signal.SIGINT else asked.send_signal(number)
        until(lambda: not (living() & family) or None)
    assert asked.returncode != 0


def living() -> set[tuple[int, str]]:
    """Every process, by its pid and the time at which it began."""
    return set(_processes())


def children(pid: int) -> set[tuple[int, str]]:
    return {(each, words[19]) for each, words in _stats() if int(words[1]) == pid}


def descendants(pid: int) -> set[tuple[int, str]]:
    parents = dict(_parents())
    found = {pid}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return {row for row in living() if row[0] in found - {pid}}


def named(rows: set[tuple[int, str]], name: str) -> bool:
    return any(_read(f"/proc/{pid}/comm").strip() == name for pid, _ in rows)


def _processes() -> Iterator[tuple[int, str]]:
    for pid, words in _stats():
        yield pid, words[19]


def _parents() -> Iterator[tuple[int, int]]:
    for pid, words in _stats():
        yield pid, int(words[1])


def _stats() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").iterdir():
        text = _read(f"{folder}/stat") if folder.name.isdecimal() else ""
        if text:
            yield int(folder.name), text.rpartition(") ")[2].split()


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def until(look: Callable[[], set[tuple[int, str]] | bool | None]) -> set[tuple[int, str]]:
    limit = time.monotonic() + 15
    while (seen := look()) is None:
        assert time.monotonic() < limit, "not seen within 15 s"
        time.sleep(0.01)
    return seen if isinstance(seen, set) else set()
