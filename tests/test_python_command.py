"""Commands that start Python, taken apart."""

from __future__ import annotations

import sys

import pytest

from hpctools.python_command import PythonCommand, python_command
from hpctools.slurm.run import run

PARTS = "import sys; print(sys.argv, sys.flags.dev_mode, sys.warnoptions)"


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("python train.py --lr 1", ("python", (), "file", "train.py", ("--lr", "1"))),
        (
            "/opt/x/bin/python3.11 -u -X dev a.py",
            ("/opt/x/bin/python3.11", ("-u", "-X", "dev"), "file", "a.py", ()),
        ),
        ("python3 -W error -m pkg.train -m x", ("python3", ("-W", "error"), "m", "pkg.train", ("-m", "x"))),
        ("python -um train", ("python", ("-u",), "m", "train", ())),
        ("python -c code", ("python", (), "c", "code", ())),
        ("python -mtrain 7", ("python", (), "m", "train", ("7",))),
        ("python -Ximporttime -Wd a.py", ("python", ("-Ximporttime", "-Wd"), "file", "a.py", ())),
        ("python -B - x.py", ("python", ("-B",), "", "", ())),
        ("python", ("python", (), "", "", ())),
        ("python -u", ("python", ("-u",), "", "", ())),
        ("python -m", ("python", (), "m", "", ())),
    ],
)
def test_the_parts_of_a_python_command(command: str, parts: tuple[object, ...]) -> None:
    assert python_command(command.split()) == PythonCommand(*parts)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["", "bash python", "./train.py", "torchrun train.py", "pythonic a.py"])
def test_what_is_none(command: str) -> None:
    assert python_command(command.split()) is None


def test_python_itself_takes_it_apart_so() -> None:
    words = [sys.executable, "-Xdev", "-W", "ignore", "-c", PARTS, "-u", "x"]
    found = python_command(words)
    assert found is not None
    assert (found.kind, found.target) == ("c", PARTS)
    expected = [["-c", *found.arguments], True, ["default", "ignore"]]
    assert run(words, timeout=30).stdout.split("\n")[0] == " ".join(map(str, expected))
