"""One change of a cluster, as it is remembered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any, Literal

from hpctools.conf.plan.model import Need, Step
from hpctools.errors import HpctoolsError

FORMAT = 1

Kind = Literal["as found", "apply", "rollback"]
Result = Literal["", "applied", "rolled back", "interrupted", "failed"]
Side = Literal["before", "after"]


class Phase(Enum):
    """How far a change has come; after a kill this is what is left of its intentions."""

    PREPARED = "prepared"
    """Recorded; nothing has changed."""
    ADDING = "adding accounts"
    """slurmdbd is told what the new files speak of; the old files are in force."""
    SWITCHING = "switching files"
    """Old or new files are in force: the link tells."""
    ACTING = "loading"
    """New files are in force; daemons are told."""
    VERIFYING = "verifying"
    REMOVING = "removing accounts"
    ROLLING_BACK = "rolling back"
    """Old or new files are in force: the link tells."""
    DONE = "done"


@dataclass(frozen=True)
class Record:
    """One change.

    Attributes:
        number: from 1; 0 is what was found before the first.
        cluster, release, folder: what was changed.
        who, host, source: the person, the host that the command ran on, the address that they came from.
        command: the command, as typed.
        began, ended: Unix seconds; None as long as it is under way, or when it was killed.
        phase: how far it came.
        result: "" as long as it is under way, or when it was killed.
        reason: why it was rolled back, interrupted or failed.
        in_force: which of its two file sets is the configuration now, as far as the change itself tells.
        steps: what must be done for new files to be in effect.
        owed: those of the steps that are still to be done, by the next change, whatever it is.
        drained: nodes that were drained for it and must be resumed.
        changes: how many differences it was to make.
        back_to: whose configuration a rollback brings back.
    """

    number: int
    kind: Kind
    cluster: str
    release: str
    folder: str
    who: str
    host: str
    source: str
    command: str
    began: float
    ended: float | None = None
    phase: Phase = Phase.PREPARED
    result: Result = ""
    reason: str = ""
    in_force: Side = "before"
    steps: tuple[Step, ...] = ()
    owed: tuple[Step, ...] = ()
    drained: tuple[str, ...] = ()
    changes: int = 0
    back_to: int | None = None

    @property
    def open(self) -> bool:
        """Whether it is under way, or was killed."""
        return not self.result

    def to_json(self) -> str:
        """One JSON object; `from_json` reads it back."""
        return json.dumps({"format": FORMAT, **self.plain()}, indent=2)

    def plain(self) -> dict[str, Any]:
        """The record in JSON's types."""
        steps, owed = _plain_steps(self.steps), _plain_steps(self.owed)
        return {**asdict(self), "phase": self.phase.value, "steps": steps, "owed": owed}

    @staticmethod
    def from_json(text: str) -> Record:
        """Read what `to_json` wrote.

        Raises:
            HpctoolsError: it is no record, or one of another version of hpctools.
        """
        try:
            data = json.loads(text)
            version = data.pop("format")
            known = {field.name for field in fields(Record)}
            if version != FORMAT or data.keys() - known:
                raise ValueError(f"it has format {version} instead of {FORMAT}")
            data["phase"] = Phase(data["phase"])
            data["steps"], data["owed"] = (_steps(data[key]) for key in ("steps", "owed"))
            data["drained"] = tuple(data["drained"])
            return Record(**data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise HpctoolsError(f"this is no record of a change: {error}") from None


def _plain_steps(steps: Iterable[Step]) -> list[dict[str, Any]]:
    return [{"need": step.need.value, "nodes": list(step.nodes)} for step in steps]


def _steps(rows: Sequence[dict[str, Any]]) -> tuple[Step, ...]:
    return tuple(Step(Need(row["need"]), tuple(row["nodes"])) for row in rows)
