"""What a training may say about its checkpoints, in Python or in the policy's YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpctools.errors import ElasticError

S3 = "s3://"
NAMES = {
    "folder": "folder",
    "every_seconds": "intervalInSeconds",
    "every_steps": "intervalInSteps",
    "keep": "keep",
    "resume_from": "resumeFrom",
    "snapshots": "snapshots",
    "snapshot_steps": "snapshotIntervalInSteps",
}


@dataclass(frozen=True)
class Checkpoint:
    """Where checkpoints go, how often, and how many are kept.

    Args:
        folder: a folder on a file system that all nodes share, or `s3://bucket/prefix` (needs boto3; its
            endpoint and credentials are boto3's). Empty: `checkpoints` in the run's folder; none without a
            run. A training that finds a whole checkpoint there goes on from it.
        every_seconds: seconds from one save to the next; 0: not by time.
        every_steps: the same in steps (global batches); 0: not by steps.
        keep: how many whole checkpoints stay, 1 or more; older ones are removed.
        resume_from: begin from the newest whole checkpoint of another folder, run folder or s3:// address,
            or from one checkpoint, when `folder` holds none yet. Empty: begin from the beginning.
        snapshots: copies of the state that every worker keeps in its node's memory to roll back to; each is
            as large as a checkpoint. 0: a roll back takes the newest checkpoint that is old enough.
        snapshot_steps: steps between two of them, 1 or more.

    Raises:
        ElasticError: a value makes no sense; names the field. A place that cannot be written or read is no
            matter of this object: see the loaders, and the events `save_failed` and `warning`.

    Sources: both loaders save what `torch.distributed.checkpoint` (DCP) defines and its `load` reads; an
    `elastic.ShardedLoader` the shards as they are, of which `python -m hpctools.elastic.export` makes whole
    tensors. In a policy file the names are those of docs/elastic-policy.md, "Checkpoints".
    """

    folder: str = ""
    every_seconds: float = 600.0
    every_steps: int = 0
    keep: int = 2
    resume_from: str = ""
    snapshots: int = 0
    snapshot_steps: int = 10

    def __post_init__(self) -> None:
        for name in ("folder", "resume_from"):
            self._check_place(name)
        for name in ("every_seconds", "every_steps", "snapshots"):
            self._check_number(name, 0, "0 or more (0: not at all)")
        for name in ("keep", "snapshot_steps"):
            self._check_number(name, 1, "1 or more")

    def _check_place(self, name: str) -> None:
        value = getattr(self, name)
        if not isinstance(value, str):
            raise _wrong(name, value, "a text: a path, or s3://bucket/prefix")
        scheme, found, rest = value.partition("://")
        if found and (scheme != "s3" or not rest.strip("/")):
            raise _wrong(name, value, "a path, or s3://bucket/prefix")

    def _check_number(self, name: str, least: int, wanted: str) -> None:
        value = getattr(self, name)
        kinds = (int, float) if name == "every_seconds" else (int,)
        # NaN is not less than anything, so the comparison is for what is right.
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value < float("inf"):
            raise _wrong(name, value, wanted)


def is_periodic(settings: Checkpoint) -> bool:
    """Whether anything is saved without being asked for."""
    return settings.every_seconds > 0 or settings.every_steps > 0


def to_json(settings: Checkpoint) -> dict[str, Any]:
    """The settings under the policy's names; the inverse of `parse`."""
    return {name: getattr(settings, field) for field, name in NAMES.items()}


def parse(values: Mapping[str, Any]) -> Checkpoint:
    """The settings of a policy's `checkpoint` part, as YAML or JSON gave it.

    Raises:
        ElasticError: an unknown name, or a value that makes no sense.
    """
    known = {name: field for field, name in NAMES.items()}
    unknown = sorted(set(map(str, values)) - set(known))
    if unknown:
        raise ElasticError(f"checkpoint has no option {unknown[0]!r}", f"it has {', '.join(known)}")
    return Checkpoint(**{known[name]: value for name, value in values.items()})


def _wrong(field: str, value: object, wanted: str) -> ElasticError:
    return ElasticError(f"checkpoint: {NAMES[field]} ({field}) is {value!r}", f"it has to be {wanted}")
