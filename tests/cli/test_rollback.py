"""`hpctools rollback`: which change it asks for, and when it looks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hpctools import conf
from hpctools.cli.rollback import rollback
from hpctools.conf.apply import History, LockedError, Request
from hpctools.conf.apply.lock import locked
from hpctools.conf.facts_file import dump_facts
from tests.cli.test_plan import applied, killed
from tests.conf.apply.stand_in import ADA
from tests.conf.plan.stage import REFERENCE, bundle

Asked = Callable[..., Request]


def hours(number: int) -> conf.Bundle:
    """The site of a change: a partition has another time limit."""
    return bundle(("max_time: 2-00", f"max_time: 1-0{number}"))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A history of the changes 0, 1 and 2."""
    for number in range(3):
        applied(tmp_path / "state", number, hours(number))
        History(tmp_path / "state").write(number, "site.yaml", REFERENCE.read_text())
        # A sandbox: the site itself is of HyperPod, where nothing is rolled back.
        History(tmp_path / "state").write(number, "facts.yaml", dump_facts(conf.Facts(made_up_gpus=True)))
    return tmp_path / "state"


@pytest.fixture
def asked(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Run `hpctools rollback`; return what it asks for."""
    found: list[Request] = []

    def carry_out(request: Request, *_: Any, **__: Any) -> int:
        found.append(request)
        return 0

    def run(*words: str) -> Request:
        monkeypatch.setattr(sys.modules["hpctools.cli.rollback"], "carry_out", carry_out)
        argv = [*words, "--state", str(state), "--folder", str(tmp_path)]
        done = CliRunner().invoke(rollback, argv, standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        return found.pop()

    return run


def test_it_goes_to_the_change_before_the_last(asked: Asked) -> None:
    assert (asked().back_to, asked().after) == (1, 2)
    assert (asked("0").back_to, asked("0").after) == (0, 2)


@pytest.mark.parametrize(("in_force", "back"), [(2, 1), (3, 2)])
def test_a_killed_change_counts_when_its_files_are_in_force(
    in_force: int, back: int, asked: Asked, state: Path, tmp_path: Path
) -> None:
    """Its record says that the old files are, until the next change closes it."""
    killed(state, 3, hours(3))
    for file in hours(in_force).files:
        (tmp_path / file.path).write_text(file.text)
    request = asked()
    assert (request.back_to, request.after) == (back, 3)
    assert {file.path: file.text for file in request.bundle.files} == {
        file.path: file.text for file in hours(back).files
    }


def test_it_looks_once_no_other_change_is_under_way(asked: Asked, state: Path) -> None:
    """What is before the last change hangs on what becomes of that."""
    with locked(History(state).lock, ADA, "hpctools apply"), pytest.raises(LockedError):
        asked("--wait", "0.01")
