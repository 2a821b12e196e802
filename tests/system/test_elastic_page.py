"""The pages of elastic training as they are read: loops and commands, on the real Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch

from tests.system.harness import Cluster, until
from tests.system.page import DOCS, blocks
from tests.system.test_elastic import active, run_folder, submit

PAGE, SHARDED_PAGE = "elastic.md", "elastic-sharded.md"
FIRST = "From an ordinary loop to an elastic one"
SHARDED, READING = "A sharded training loop", "Read a sharded checkpoint"
AROUND = """
import argparse
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

HURRY = Path(__file__).with_name("hurry")


class Points:
    def __len__(self):
        return 240

    def __getitem__(self, index):
        if not HURRY.exists():
            time.sleep(0.05)
        return torch.sin(torch.arange(8.0) * (index + 1)), index % 3


torch.manual_seed(0)
args = argparse.Namespace(batch=48, epochs=30)
data = Points()
"""
PLAIN_MODEL = """
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(model.parameters())
"""
SHARDED_MODEL = """
class Transformer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, width), nn.Linear(width, 3)])

    def forward(self, inputs):
        return self.layers[1](torch.relu(self.layers[0](inputs)))


config = 16
"""
TOLD = '        if loader.rank == 0: print(f"loss {loader.loss:.4f} on {loader.world_size} workers")\n'
WRITTEN = """
if loader.rank == 0:
    torch.save(weights, "model.pt")
"""


def loops(page: str, section: str) -> list[str]:
    """The programs of a section, as a reader would copy them."""
    return [block.text for block in blocks(page) if block.kind == "python" and block.section == section]


@pytest.fixture
def person(cluster: Cluster) -> Iterator[str]:
    """Somebody of dl with an empty home; leaves no jobs to the next test."""
    (cluster.home("dl1") / "hurry").unlink(missing_ok=True)
    yield "dl1"
    cluster.inside("scancel", "--user=dl1", check=False)
    until(lambda: not active(cluster, "dl1") or None, 60)


def losses(printed: str) -> list[str]:
    return re.findall(r"^loss (\S+) on \d workers$", printed, re.MULTILINE)


def alone(cluster: Cluster, person: str, name: str) -> str:
    """What it prints as one process."""
    words = f"cd /home/{person} && touch hurry && python {name} && rm hurry"
    return cluster.inside("bash", "-c", words, user=person, timeout=120).stdout


def elastic(cluster: Cluster, person: str, command: str) -> str:
    """What the job of a command of the page prints; more than its least number of workers have trained."""
    least = int(re.search(r"--nodes (\d):", command)[1])  # type: ignore[index]
    folder = run_folder(cluster, person, submit(cluster, person, *command.split()[1:]))
    until(lambda: ((s := folder.status()) and s.world_size > least) or None, 90)
    listed = cluster.inside("hp-status", user=person).stdout
    assert folder.path.name in listed
    (cluster.home(person) / "hurry").touch()
    until(lambda: ((s := folder.status()) and s.state == "finished") or None, 90)
    shown = cluster.inside("hp-status", folder.path.name, user=person).stdout
    assert re.search(rf"^run {folder.path.name}  finished", shown), shown
    assert cluster.ended(folder.jobs()[0].job_id, person).state == "COMPLETED"
    return (cluster.home(person) / f"slurm-{folder.jobs()[0].job_id}.out").read_text()


@pytest.mark.slow
def test_the_first_loop_before_and_after(cluster: Cluster, person: str) -> None:
    """The job that grew on the way prints, to the last digit, the losses of one process."""
    before, after, each_epoch, writing = loops(PAGE, FIRST)
    assert "if loader.replays:" in each_epoch  # its loop: tests/elastic/test_passes.py
    cluster.give(person, "plain.py", AROUND + PLAIN_MODEL + before)
    cluster.give(person, "train.py", "\n".join([AROUND + PLAIN_MODEL + after, "import os", writing]))
    assert len(re.findall(r"^loss \d\.\d{4}$", alone(cluster, person, "plain.py"), re.MULTILINE)) == 150
    expected = losses(alone(cluster, person, "train.py"))
    assert len(expected) == 150
    command = re.search(r"`(hp-submit [^`]*-- python train\.py)` makes it elastic", (DOCS / PAGE).read_text())
    assert command
    written = cluster.home(person) / "model.pt"
    written.unlink()  # what the one process has written
    assert losses(elastic(cluster, person, command[1])) == expected
    assert torch.load(written)
    assert [each.name for each in written.parent.glob("model.pt*")] == ["model.pt"]


@pytest.mark.slow
def test_the_sharded_loop(cluster: Cluster, person: str) -> None:
    """Up to rounding, as the page says."""
    program, each_epoch, last = loops(SHARDED_PAGE, SHARDED)
    assert "if loader.replays:" in each_epoch  # its loop: tests/elastic/sharded/
    (reading,) = loops(SHARDED_PAGE, READING)  # a checkpoint of it: tests/elastic/test_export.py
    assert "dcp.load" in reading
    longer = re.sub(r"epochs=2|range\(2\)", lambda found: found[0].replace("2", "30"), program)
    cluster.give(person, "train.py", AROUND + SHARDED_MODEL + longer + TOLD + last + WRITTEN)
    expected = [float(each) for each in losses(alone(cluster, person, "train.py"))]
    assert len(expected) == 150
    written = cluster.home(person) / "model.pt"
    weights = torch.load(written)
    written.unlink()  # what the one process has written
    printed = elastic(cluster, person, "hp-submit --partition=dl --nodes 1:2 -- python train.py")
    assert [float(each) for each in losses(printed)] == pytest.approx(expected, abs=2e-4)
    torch.testing.assert_close(torch.load(written), weights, rtol=1e-3, atol=1e-3)
