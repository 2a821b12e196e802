"""The process door."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hpctools.errors import CommandError, CommandTimeout
from hpctools.slurm import run


def test_a_program_that_ends_well() -> None:
    done = run.run(
        [sys.executable, "-c", "import sys; print(sys.stdin.read().upper())"], timeout=20, stdin="abc"
    )
    assert (done.code, done.stdout, done.stderr) == (0, "ABC\n", "")


def test_a_failure_carries_the_command_its_code_and_last_words() -> None:
    with pytest.raises(CommandError) as caught:
        run.run(["sh", "-c", "echo one >&2; echo two >&2; exit 3"], timeout=20)
    error = caught.value
    assert (error.code, error.stderr_tail) == (3, "one\ntwo")
    assert str(error) == "sh -c 'echo one >&2; echo two >&2; exit 3' failed with exit code 3: two"


@pytest.mark.parametrize("farewell", ["", "sacctmgr: error: Getting response to message type: DBD_FINI\n"])
def test_the_reason_of_a_refusal_is_not_hidden_behind_a_farewell(farewell: str) -> None:
    """26.05.5, word for word; the second line comes once in three or four times."""
    said = "sacctmgr: RC:2002 Your user doesn't have privilege to perform this action\n"
    error = run.failure(run.Completed(("sacctmgr", "show", "stats"), 1, "", said + farewell))
    assert error.stderr_tail == said.strip()
    assert error.message == f"sacctmgr show stats failed with exit code 1: {said.strip()}"


@pytest.mark.parametrize(
    ("reason", "farewell"),
    [
        (
            "sacctmgr: error: You gave a bad qos 'hihg'. Valid QOS's are normal,high",
            " Unknown option: QOS=hihg\n Use keyword 'where' to modify condition\n",
        ),
        (" Unknown option: bogus=1", " Use keyword 'where' to modify condition\n"),
        (" You must change the default account of these users.", " Changes Discarded\n"),
    ],
)
def test_what_sacctmgr_says_after_the_reason_is_no_reason(reason: str, farewell: str) -> None:
    """22.05.8, word for word, but for the third's end."""
    error = run.failure(run.Completed(("sacctmgr", "modify"), 1, "", f"{reason}\n{farewell}"))
    assert error.message == f"sacctmgr modify failed with exit code 1: {reason.strip()}"


def test_an_unchecked_failure_is_returned() -> None:
    assert run.run(["false"], timeout=20, check=False).code == 1


def test_a_program_that_does_not_end_is_killed() -> None:
    with pytest.raises(CommandTimeout, match=r"sleep 60 did not end within 0\.1 s"):
        run.run(["sleep", "60"], timeout=0.1)


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(
        CommandError, match=r"cannot start no-such-program.*install no-such-program or put it on PATH"
    ):
        run.run(["no-such-program"], timeout=1)


@pytest.mark.parametrize("start", [run.start, partial(run.run, timeout=20)])
def test_a_folder_that_is_not_there_is_no_missing_program(
    start: Callable[..., object], tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(CommandError) as caught:
        start(["true"], cwd=gone)
    said = f"cannot start true in the folder {gone}: No such file or directory on {os.uname().nodename}"
    assert caught.value.message == said
    assert caught.value.remedy.startswith("make or mount the folder there")
    with pytest.raises(CommandError, match=r"install no-such-program or put it on PATH"):
        start(["no-such-program"], cwd=tmp_path)


def test_much_output_on_both_pipes_does_not_block() -> None:
    text = "import sys; [(sys.stdout.write('o' * 1000), sys.stderr.write('e' * 1000)) for _ in range(500)]"
    done = run.run([sys.executable, "-c", text], timeout=30)
    assert (len(done.stdout), len(done.stderr)) == (500_000, 500_000)


def test_bytes_that_are_no_text_do_not_fail() -> None:
    assert run.run(["printf", r"\377x"], timeout=10).stdout == "\ufffdx"


def test_arguments_are_never_shell_text(tmp_path: Path) -> None:
    hostile = f"$(touch {tmp_path}/owned); `id` 'a' \"b\" \n\\"
    assert run.run(["printf", "%s", hostile], timeout=10).stdout == hostile
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_comes_while_a_program_is_being_started_reaches_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its start was asked for, and nobody knows its number yet."""
    start = subprocess.Popen

    def interrupted(*words: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return start(*words, **options)

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    assert run.relay(["sleep", "60"]).code == -signal.SIGTERM
