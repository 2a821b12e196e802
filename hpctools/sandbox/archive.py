"""slurmdbd's archive of jobs, the file that `sacctmgr archive load` puts back into the job table.

The form is that of Slurm 22.05 (as_mysql_archive.c, _pack_archive_jobs), checked against a file that
`sacctmgr archive dump` of 22.05.8 wrote. sacctmgr(1): archives of the current or any prior release are taken.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

PROTOCOL = 38 << 8
DBD_GOT_JOBS = 1421
NO_VAL = 4294967294

# Every column of a record, in its order, with the value that an ordinary job has. A database index of 0 lets
# MariaDB take the next free one.
_COLUMNS: Mapping[str, str | int | None] = {
    "account": None,
    "admin_comment": None,
    "nodes_alloc": 0,
    "id_assoc": 0,
    "id_array_job": 0,
    "array_max_tasks": 0,
    "id_array_task": NO_VAL,
    "array_task_pending": 0,
    "array_task_str": None,
    "script_hash_inx": 0,
    "id_block": None,
    "constraints": "",
    "container": None,
    "deleted": 0,
    "derived_ec": 0,
    "derived_es": None,
    "env_hash_inx": 0,
    "exit_code": 0,
    "flags": 0,
    "timelimit": 0,
    "time_eligible": 0,
    "time_end": 0,
    "id_group": 0,
    "gres_used": "",
    "job_db_inx": 0,
    "id_job": 0,
    "kill_requid": None,
    "mcs_label": "",
    "mod_time": 0,
    "job_name": "",
    "nodelist": None,
    "node_inx": None,
    "het_job_id": 0,
    "het_job_offset": NO_VAL,
    "partition": "",
    "priority": 0,
    "id_qos": 0,
    "cpus_req": 0,
    "mem_req": 0,
    "id_resv": 0,
    "time_start": 0,
    "state": 0,
    "state_reason_prev": 0,
    "time_submit": 0,
    "time_suspended": 0,
    "submit_line": None,
    "system_comment": None,
    "tres_alloc": "",
    "tres_req": "",
    "id_user": 0,
    "wckey": "",
    "id_wckey": 0,
    "work_dir": "",
}


def pack(cluster: str, written: int, jobs: Sequence[Mapping[str, str | int | None]]) -> bytes:
    """An archive of jobs.

    Args:
        cluster: whose job table they belong in.
        written: Unix seconds of the archive itself.
        jobs: columns of the job table that differ from an ordinary job's; None is NULL. slurmdbd does not
            quote: values must not contain `'` or a backslash.

    Raises:
        ValueError: a column that the archive does not have, or a value that slurmdbd would misread.
    """
    header = struct.pack(">HQH", PROTOCOL, written, DBD_GOT_JOBS) + _text(cluster)
    return header + struct.pack(">I", len(jobs)) + b"".join(map(_record, jobs))


def _record(job: Mapping[str, str | int | None]) -> bytes:
    strangers = sorted(set(job) - set(_COLUMNS))
    if strangers:
        raise ValueError(f"an archive of jobs has no column {strangers[0]!r}")
    return b"".join(_text(job.get(name, usual)) for name, usual in _COLUMNS.items())


def _text(value: str | int | None) -> bytes:
    """A string as Slurm packs it: length with the closing zero byte, in network order; NULL has length 0."""
    if value is None:
        return struct.pack(">I", 0)
    text = str(value)
    if set(text) & set("'\\\0"):
        raise ValueError(f"slurmdbd would misread {text!r}")
    raw = text.encode() + b"\0"
    return struct.pack(">I", len(raw)) + raw
