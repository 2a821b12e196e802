"""The real planner, before a slurmctld that is down or a queue that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpctools.conf.apply import live_planner
from hpctools.conf.apply.live_planner import LivePlanner
from hpctools.conf.plan import Live
from hpctools.conf.plan.read import read
from hpctools.conf.preflight import Verdict
from hpctools.errors import CommandError
from tests.conf.plan.stage import bundle, job, live

LOST = (7, 9)
DOWN = replace(live(bundle()), shown=None, jobs=(), queue_read=False, unknown=("slurmctld is down",))

Booted = Callable[[Live], tuple[tuple[int, ...], Path | None]]


@pytest.fixture
def booted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Booted:
    """Plan before what there is, and boot; return the lost jobs, and the state that it was booted with."""
    seen: list[Path | None] = []

    def preflight(_: object, *, state: Path | None, **__: Any) -> Verdict:
        seen.append(state)
        return Verdict("22.05.8", (), lost_jobs=LOST)

    def run(there: Live) -> tuple[tuple[int, ...], Path | None]:
        monkeypatch.setattr("hpctools.conf.preflight.preflight", preflight)
        monkeypatch.setattr(live_planner, "read_for", lambda *_, **__: there)
        planner = LivePlanner(tmp_path / "slurm", (22, 5, 8), lambda argv: "")
        planner.plan(bundle(), prune=False)
        return planner.preflight(bundle()).lost_jobs, seen.pop()

    (tmp_path / "slurm").mkdir()
    return run


def test_of_a_slurmctld_that_is_down_the_files_say_where_its_state_is(booted: Booted, tmp_path: Path) -> None:
    """It was booted without the jobs there are, and whichever a new configuration loses were not found."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state/assoc_mgr_state").touch()
    conf = f"ClusterName=c\nStateSaveLocation={tmp_path}/state\n"
    (tmp_path / "slurm/slurm.conf").write_text(conf)
    assert booted(DOWN) == (LOST, tmp_path / "state")


def test_a_first_start_has_no_state(booted: Booted, tmp_path: Path) -> None:
    assert booted(DOWN)[1] is None
    (tmp_path / "slurm").rmdir()
    assert booted(DOWN)[1] is None


def test_lost_jobs_that_are_over_are_left_out_where_the_queue_tells(booted: Booted) -> None:
    there = live(bundle(), job(9, "dl1", "dl"))
    assert there.running is not None
    state = Path(there.running.settings["statesavelocation"].value)
    assert booted(there) == ((9,), state)
    assert booted(replace(there, jobs=(), queue_read=False)) == (LOST, state)


@pytest.mark.parametrize(
    ("answering", "queue_read"), [(("scontrol", "squeue"), True), (("scontrol",), False), ((), False)]
)
def test_an_empty_queue_is_told_from_one_that_nobody_tells(
    answering: tuple[str, ...], queue_read: bool, tmp_path: Path
) -> None:
    def ask(argv: Sequence[str]) -> str:
        if argv[0] not in answering:
            raise CommandError(f"{argv[0]} does not answer", argv=argv, code=1)
        return "Slurmctld(primary) at c is UP\n" if argv[1] == "ping" else ""

    found = read(tmp_path, "c", ask=ask)
    assert (found.jobs, found.queue_read) == ((), queue_read)
