"""In a growth, what each worker is fed first has been loaded before the step in between ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledger_run import LedgerRun, training

STEP_SECONDS = 0.3


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("forked_workers")
def test_what_all_are_fed_first_after_a_growth_is_loaded_before_it(
    tmp_path: Path,
) -> None:
    """Of the only epoch, in which each sample comes once."""
    hurry, delay = tmp_path / "hurry", STEP_SECONDS / 48
    options = ("--samples", "2400", "--epochs", "1", "--num-workers", "2", "--note-loads")
    command = training(tmp_path / "out", *options, "--delay", str(delay), "--hurry", str(hurry))
    with LedgerRun(tmp_path, command, (1, 2)) as run:
        run.wait_for_steps(6)  # how long a step takes is told twice a second
        run.capacity = 1
        run.wait_for_world(2)
        hurry.touch()
        assert run.end() == 0
    committed = run.committed()
    grown = next(line["step"] for line in committed if line["world"] == 2)
    (ended,) = [line["at"] for line in committed if line["step"] == grown - 1]
    loaded = loads(tmp_path / "out" / "loads")
    first = first_fed(run, grown)
    assert set(first) == {0, 1}
    for rank, indices in first.items():
        late = {index: loaded[index] - ended for index in indices if loaded[index] >= ended}
        assert not late, f"rank {rank} waits for samples: {late}"


def first_fed(run: LedgerRun, step: int) -> dict[int, list[int]]:
    """The first samples of each rank in a step."""
    first: dict[int, list[int]] = {}
    for line in run.ledger():
        if "fed" in line and line["step"] + 1 == step and line["of"] == 2:
            first.setdefault(line["rank"], line["fed"])
    return first


def loads(file: Path) -> dict[int, float]:
    """When each sample was first loaded, on the machine's clock."""
    first: dict[int, float] = {}
    for line in file.read_text().splitlines():
        index, at = line.split()
        first.setdefault(int(index), float(at))
    return first
