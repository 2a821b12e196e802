"""A busy machine, Ctrl-C, and the exit codes that follow."""

from __future__ import annotations

import json
import os

import pytest

from bench.course import until_ctrl_c
from bench.report import Goal, report

MET, MISSED = Goal("a", 1.0, "s", "<=", 1.0), Goal("b", 0.9, "x", ">=", 1.0)


@pytest.mark.parametrize(("load", "lines"), [(2.0, 0), (2.1, 1)])
def test_a_busy_machine_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], load: float, lines: int
):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    with until_ctrl_c() as course:
        pass
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == err.count("the machine is busy (load 2.1)") == lines
    assert course.complete


def test_ctrl_c_ends_the_measuring_and_leaves_the_report(capsys: pytest.CaptureFixture[str]):
    with until_ctrl_c() as course:
        raise KeyboardInterrupt
    assert report("x", [{"what": "row", "s": 1.0}], [MET], check=True, complete=course.complete) == 130
    table, last = capsys.readouterr().out.rstrip("\n").rsplit("\n", 1)
    assert table == "what  s\nrow   1.000"
    assert json.loads(last)["complete"] is False


def test_another_error_is_not_taken_for_an_end():
    with pytest.raises(TimeoutError), until_ctrl_c():
        raise TimeoutError


@pytest.mark.parametrize(
    ("goals", "check", "code"), [([MET], True, 0), ([MET, MISSED], True, 1), ([MISSED], False, 0)]
)
def test_only_check_fails_a_bench_and_the_last_line_is_json(
    capsys: pytest.CaptureFixture[str], goals: list[Goal], check: bool, code: int
):
    assert report("x", [], goals, check=check) == code
    told = json.loads(capsys.readouterr().out)
    assert "complete" not in told
    assert [goal["met"] for goal in told["goals"]] == [goal.met for goal in goals]
