"""A whole run that comes to the end of its `--time`: what it had by then is saved, and is gone on from."""

from __future__ import annotations

import json
import subprocess
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from ledger_run import LedgerRun, training

from hpctools.elastic.last_save import LAST_SECONDS
from hpctools.elastic.replicas import QUEUE_SECONDS

OPTIONS = ("--samples", "2526", "--epochs", "2")
MARGIN = 20.0  # so long before the last minute the coordinator knows when it begins, on a busy machine, too
pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("forked_workers")]


def lone(out: Path, *options: str) -> list[dict[str, Any]]:
    """The ledger of the training as one ordinary process."""
    out.mkdir()
    subprocess.run(training(out, *OPTIONS, *options), check=True, stdout=subprocess.DEVNULL, timeout=120)
    return [json.loads(line) for line in (out / "lone.jsonl").read_text().splitlines()]


def final(ledger: list[dict[str, Any]]) -> tuple[Any, Any]:
    (last,) = [line for line in ledger if "final" in line]
    return last["final"], last["lr"]


@pytest.mark.slow
def test_a_minute_before_its_time_is_up_a_run_is_saved_and_another_goes_on_from_there(tmp_path: Path) -> None:
    """An hour's job with a little more than a minute left, that is then gone at once, as its node.

    No interval has passed by then, and no limit of earlier is left behind: nothing else saves.
    """
    command = training(tmp_path / "out", *OPTIONS, "--delay", "0.02")
    with LedgerRun(tmp_path, command, (1, 1)) as run:
        run.wait_for_steps(2)
        end = run.limit_time(LAST_SECONDS + QUEUE_SECONDS + MARGIN)
        run.wait(lambda: (known := run.folder.time_limit()) is not None and known.end == end)
        assert time.time() < end - LAST_SECONDS
        assert run.events("save_ordered", "saved") == [], "not before"
        (saved,) = run.wait(lambda: run.events("saved"))
        (ordered,) = run.events("save_ordered")
        run.lose_baseline("TIMEOUT")
        committed = run.committed()[-1]["step"]
    assert (ordered.detail["why"], saved.detail["why"]) == ("the run's time is nearly up",) * 2
    left = end - datetime.fromisoformat(ordered.time).timestamp()
    assert LAST_SECONDS - 5 - run.stood_still < left <= LAST_SECONDS
    assert 2 <= saved.detail["step"] <= committed

    again = lone(
        tmp_path / "again", "--save-every", "1000", "--checkpoints", str(Path(saved.detail["where"]).parent)
    )
    first = next(line["step"] for line in again if "committed" in line)
    assert first == saved.detail["step"] + 1
    assert final(again) == final(lone(tmp_path / "plain"))
