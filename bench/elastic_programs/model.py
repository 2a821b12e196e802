"""What the trainings of the benches train, and the log of their steps.

BENCH_WIDTH and BENCH_SAMPLE_SECONDS change the size of the model and what a sample costs. To load one costs
BENCH_LOAD_SECONDS, in each of BENCH_LOADERS processes, or in the training where there are none. BENCH_DEVICE
is `cuda` for one on a GPU, and with BENCH_OWN_HOST workers pretend that it is their own (bench/one_gpu.py).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

SAMPLES = 24 * 400
EPOCHS = 1000
BATCH = 24
SHARDS = 24
WIDTH = int(os.environ.get("BENCH_WIDTH", "1118"))
"""Four layers of it; 1118: 5.0 million parameters, whose state with AdamW's is 60 MB."""
SAMPLE_SECONDS = float(os.environ.get("BENCH_SAMPLE_SECONDS", "0.008"))
"""Slept for each sample, where a GPU would compute: two cores cannot show that more workers are faster."""
LOAD_SECONDS = float(os.environ.get("BENCH_LOAD_SECONDS", "0"))
"""Slept for each sample that is loaded, where it would be read and decoded."""
LOADERS = int(os.environ.get("BENCH_LOADERS", "0"))
DEVICE = os.environ.get("BENCH_DEVICE", "cpu")


class Samples(torch.utils.data.Dataset[tuple[int, torch.Tensor, torch.Tensor]]):
    """An index, and vectors that follow from it."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        time.sleep(LOAD_SECONDS)
        inputs = torch.full((WIDTH,), 1.0 / (index + 1))
        return index, inputs, inputs


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model and its optimizer."""
    if "BENCH_OWN_HOST" in os.environ:
        from bench.one_gpu import pretend_own_host  # what benches of other libraries need not have

        pretend_own_host()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(4)]
    model = nn.Sequential(*layers).to(DEVICE)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4)


class StepLog:
    """A process's own files, a line for what it does; `at` is in seconds of the machine's clock.

    `.steps`: the end of each step, from rank 0; `.ledger`: which samples were fed, and which committed.
    """

    def __init__(self, folder: Path) -> None:
        name = f"{os.environ.get('SLURMD_NODENAME', '')}-{os.getpid()}"
        self._steps = (folder / f"{name}.steps").open("a", buffering=1)
        self._ledger = (folder / f"{name}.ledger").open("a", buffering=1)

    def fed(self, step: int, indices: Sequence[int], generation: int | None = None) -> None:
        """The loop was given these samples for a step, for the first time or again, in a generation."""
        line = {"fed": step, "indices": list(indices), "at": time.monotonic(), "in": generation}
        self._ledger.write(json.dumps(line) + "\n")

    def committed(self, step: int, indices: Sequence[int]) -> None:
        """A step is in the parameters with these samples."""
        self._ledger.write(json.dumps({"step": step, "indices": list(indices)}) + "\n")

    def step(self, step: int, world: int, over: str = "") -> None:
        """A step has ended; its gradients were added up over a library."""
        line = {"step": step, "world": world, "at": time.monotonic(), "over": over}
        self._steps.write(json.dumps(line) + "\n")
