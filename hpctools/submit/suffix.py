"""How the id of the next elastic run ends, where that is not left to chance.

A submission that may come twice states it, so that its run is found again. It is no variable of the
environment: jobs would inherit it, and their own runs would all have the same name.
"""

from __future__ import annotations

import re
from contextvars import ContextVar

STATED: ContextVar[str] = ContextVar("run suffix", default="")
"""Empty: six random digits."""


def id_stem(name: str) -> str:
    """How the id of an elastic run begins, before the suffix: its job's name as far as it can be."""
    stem = re.sub(r"\.(py|sh|bash|sbatch|slurm|job)$", "", name)
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", stem)[:40].strip("-.") or "run"
