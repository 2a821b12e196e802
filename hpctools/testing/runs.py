"""Run folders for tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hpctools.elastic.folder import RunFolder
from hpctools.elastic.spec import RunSpec

SPEC = RunSpec(
    id="train-3fa9c1",
    name="train",
    user="nlp1",
    cluster="",
    min_nodes=2,
    max_nodes=6,
    workers_per_node=1,
    command=("python", "train.py"),
    workdir="/home/nlp1",
    replica_options=("--nodes=1", "--qos=elastic"),
    replica_script="/home/nlp1/.hpctools/runs/train-3fa9c1/replica.sh",
    created="2026-02-03T10:00:00.000+00:00",
)


def make_run(root: Path, run_id: str = SPEC.id, **changes: Any) -> RunFolder:
    """Make a run's folder below `root`; `changes` are fields of its RunSpec."""
    return RunFolder.create(root / run_id, replace(SPEC, id=run_id, **changes))
