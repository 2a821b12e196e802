"""What the elastic runs of a submission will be called: by that they are found again, and no others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hpctools.remote.submissions import Record
from hpctools.slurm.sbatch_options import read_command_line
from hpctools.submit.intent import OUR_VALUES
from hpctools.submit.suffix import id_stem


def with_runs(record: Record, stated: Any, options: Sequence[str], environment: Mapping[str, str]) -> Record:
    """The record with what is known of its runs' ids.

    Args:
        stated: what the laptop says of them: `name`, their job's, and `count`; nothing in it: none is
            elastic. None, of an older laptop: any run with the suffix may be the submission's.
        options: as hp-submit is given them here.
        environment: of the login node; SBATCH_JOB_NAME goes before what a script says.
    """
    suffix = record.id.rpartition("-")[2]
    if not isinstance(stated, Mapping):
        return replace(record, suffix=suffix)
    if not stated.get("name"):
        return record
    name = str(stated["name"])
    given = any(option.name == "job-name" for option in read_command_line(options, more=OUR_VALUES).options)
    if not given:
        name = environment.get("SBATCH_JOB_NAME") or name
    count = stated.get("count")
    return replace(record, suffix=suffix, stem=id_stem(name), runs=count if type(count) is int else 0)


def is_fitting(record: Record, run: str) -> bool:
    """Whether a run may be the submission's, by its id."""
    return bool(record.suffix) and re.fullmatch(rf"{pattern(record)}(_\d+)?", run) is not None


def pattern(record: Record) -> str:
    """The ids of the submission's runs before an array's index, as a regular expression."""
    stem = re.escape(record.stem) if record.stem else r"[^/\s]*"
    return f"{stem}-{re.escape(record.suffix)}"
