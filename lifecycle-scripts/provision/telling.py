"""Calls to slurmdbd that were made beforehand, from the site: they add and set, and take nothing away."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from provision.failures import Failure
from provision.processes import Done, call

SECONDS = 900.0  # tens of thousands of people at once
_DONE = re.compile(r"Nothing (new added|modified|deleted)|already exists?|Nothing new to add")
_SILENT = re.compile(
    r"Connection refused|Unable to (contact|establish)|failed to open persistent connection|"
    r"Unable to connect to database|timed out|Broken pipe|Zero Bytes|connection to slurmdbd"
)
_PAUSES = (1.0, 2.0, 4.0, 8.0)


def sacctmgr(*words: str, stdin: str = "", slurm_conf: Path | None = None, limit: float = 30.0) -> Done:
    """Run sacctmgr.

    Args:
        words: its arguments.
        stdin: what it reads.
        slurm_conf: its configuration, where the node's own does not tell of slurmdbd yet.
        limit: seconds.
    """
    env = {"SLURM_CONF": str(slurm_conf)} if slurm_conf else {}
    return call(["sacctmgr", *words], limit=limit, stdin=stdin, env=env)


def tell_all(calls: Sequence[Mapping[str, Any]], slurm_conf: Path | None = None) -> None:
    """Make the calls in their order; what is there already is no error.

    Raises:
        Failure: slurmdbd refuses one, or does not answer for a while; the message says which.
    """
    for place, each in enumerate(calls):
        _tell(each, slurm_conf, f"{place} of {len(calls)} calls were done")


def _tell(each: Mapping[str, Any], slurm_conf: Path | None, how_far: str) -> None:
    words = [str(word) for word in each["argv"]]
    print(f"sacctmgr {' '.join(words)[:200]}")
    for pause in (*_PAUSES, None):
        done = sacctmgr(
            "--immediate", *words, stdin=each.get("stdin", ""), slurm_conf=slurm_conf, limit=SECONDS
        )
        said = f"{done.out}\n{done.err}"
        if done.code == 0 or _DONE.search(said):
            return
        if pause is None or not _SILENT.search(said):
            shown = " ".join(words)[:200]
            raise Failure(f"slurmdbd refused `sacctmgr {shown}`: {done.last_words}; {how_far}")
        time.sleep(pause)
