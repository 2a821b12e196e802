"""`--array` of an elastic run: a run for each index."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from hpctools.errors import SubmitError
from hpctools.slurm.sbatch_options import Option
from hpctools.submit.intent import Intent

MOST = 1000
_PART = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?")
_REMEDY = "write --array as sbatch does: 0-9, 1,3,7 or 0-20:5, and %N for at most N runs at a time"
_PATTERN = re.compile(r"%(?:%|(\d*)([aA]))")


@dataclass(frozen=True)
class Array:
    """Indices of an array of runs.

    Attributes:
        indices: ascending, each once.
        limit: how many of the runs may have started and not ended; None: all.
    """

    indices: tuple[int, ...]
    limit: int | None = None

    @property
    def at_once(self) -> int:
        """How many of the runs may go on at a time."""
        return len(self.indices) if self.limit is None else min(self.limit, len(self.indices))

    def before(self, place: int) -> int | None:
        """Place of the run that must have ended before the one at a place begins; None: it waits for none."""
        return place - self.limit if self.limit is not None and place >= self.limit else None

    def environment(self, place: int, run: str) -> dict[str, str]:
        """What a program of the run at a place expects to find, as in a job array of Slurm's.

        HPCTOOLS_ARRAY_RUN names all the runs; SLURM_ARRAY_JOB_ID comes when there is a job (`batch`).
        """
        steps = {high - low for low, high in pairwise(self.indices)}
        index = str(self.indices[place])
        return {
            "HPCTOOLS_ARRAY_INDEX": index,
            "HPCTOOLS_ARRAY_RUN": run,
            "SLURM_ARRAY_TASK_ID": index,
            "SLURM_ARRAY_TASK_COUNT": str(len(self.indices)),
            "SLURM_ARRAY_TASK_MIN": str(self.indices[0]),
            "SLURM_ARRAY_TASK_MAX": str(self.indices[-1]),
            "SLURM_ARRAY_TASK_STEP": str(steps.pop() if len(steps) == 1 else 1),
        }


def array_of(intent: Intent) -> Array | None:
    """The array that is asked for; None without one.

    Raises:
        SubmitError: as `parse_array`.
    """
    asked = next((option for option in reversed(intent.all_options) if option.name == "array"), None)
    return None if asked is None else parse_array(asked.value or "", asked.place)


def parse_array(value: str, place: str) -> Array:
    """Read the value of `--array`.

    Args:
        place: where it was given, for messages.

    Raises:
        SubmitError: it is none, or has too many indices.
    """
    said = f"{place}: --array={value}"
    written, percent, at_once = value.partition("%")
    if percent and not (re.fullmatch(r"[0-9]{1,7}", at_once) and int(at_once) > 0):
        raise SubmitError(f"{said}: %{at_once} is no number of runs", _REMEDY)
    indices: set[int] = set()
    for part in written.split(","):
        found = _PART.fullmatch(part) if part.isascii() else None
        if not found:
            raise SubmitError(f"{said}: {part!r} is no index and no range of them", _REMEDY)
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        if last < first or step < 1:
            raise SubmitError(f"{said}: {part} has no index in it", _REMEDY)
        indices.update(range(first, min(last, first + step * MOST) + 1, step))
    if len(indices) > MOST:
        raise SubmitError(f"{said} is more than {MOST} runs", f"submit them in parts of at most {MOST}")
    return Array(tuple(sorted(indices)), int(at_once) if percent else None)


def with_index(option: Option, index: int) -> Option:
    """A file name pattern for one run: `%a` is its index, `%A` its own job, since there is no job of all."""
    if option.name not in ("output", "error") or option.value is None:
        return option

    def meant(found: re.Match[str]) -> str:
        if found[2] is None:
            return found[0]
        return str(index).zfill(int(found[1] or 0)) if found[2] == "a" else f"%{found[1]}j"

    return Option(option.name, _PATTERN.sub(meant, option.value), option.place, option.index)
