"""Workers find what any program of a Slurm job does, though their agent is started without it."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger_run import LedgerRun

from hpctools.elastic import exits

PROGRAM = """
import json, os, signal, sys
states = {each.name: signal.getsignal(each) is signal.SIG_IGN for each in (signal.SIGINT, signal.SIGQUIT)}
with open(sys.argv[1], "w") as file:
    names = ("SLURM_CPUS_PER_TASK", "SLURM_LOCALID", "LOCAL_RANK", "PWD", "OLDPWD")
    told = {name: os.environ.get(name) for name in names}
    json.dump({"ignored": states, **told}, file)
"""


@pytest.fixture
def _as_bash_starts_in_the_background() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGQUIT)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("_as_bash_starts_in_the_background")
@pytest.mark.parametrize("mode", ["live", "restart"])
@pytest.mark.parametrize("cpus", ["12", None])
def test_signals_the_cpus_of_a_task_and_the_folder_where_it_starts(
    mode: str, cpus: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCTOOLS_CPUS_PER_TASK", cpus or "")
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    monkeypatch.setenv("PWD", "/runs/r-1")  # by the batch script's `cd`
    monkeypatch.setenv("OLDPWD", str(tmp_path))
    out = tmp_path / "seen.json"
    with LedgerRun(tmp_path, [sys.executable, "-c", PROGRAM, str(out)], (1, 1), mode=mode) as run:
        assert run.end() == 0, run.story()
    seen = json.loads(out.read_text())
    assert seen["ignored"] == {"SIGINT": False, "SIGQUIT": False}
    assert seen["SLURM_CPUS_PER_TASK"] == cpus
    assert seen["LOCAL_RANK"] == "0"
    assert (seen["PWD"], seen["OLDPWD"]) == (run.spec.workdir, None)
    warned = [event.detail["message"] for event in run.events("warning")]
    if mode == "live":
        assert seen["SLURM_LOCALID"] == "0"
        assert warned == [exits.NOBODY_CAME]
    else:
        assert warned == []
