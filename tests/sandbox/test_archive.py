"""Archives of jobs, byte for byte as slurmdbd writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.sandbox.archive import pack

RECORDED = Path(__file__).parents[1] / "recorded/22.05.8"


def test_a_real_job_is_packed_as_slurmdbd_dumped_it() -> None:
    """`sbatch -pnlp --gpus=2 --wrap 'sleep 1'`, then `sacctmgr archive dump`."""
    job = {
        "account": "nlp-lab-a",
        "nodes_alloc": 1,
        "id_assoc": 12,
        "flags": 20,
        "timelimit": 240,
        "time_submit": 1795180179,
        "time_eligible": 1795180179,
        "time_start": 1795180180,
        "time_end": 1795180181,
        "mod_time": 1795266584,
        "id_user": 20003,
        "id_group": 20003,
        "job_db_inx": 480,
        "id_job": 6,
        "job_name": "wrap",
        "nodelist": "shared-1",
        "node_inx": "4",
        "partition": "nlp",
        "priority": 10596,
        "id_qos": 4,
        "cpus_req": 1,
        "mem_req": 9223372036854779699,
        "state": 3,
        "submit_line": "sbatch -pnlp --gpus=2 --wrap sleep 1",
        "tres_alloc": "1=24,2=93384,4=1,5=200,1001=2",
        "tres_req": "1=1,2=3891,4=1,5=200,1001=2",
        "work_dir": "/home/nlp1",
    }
    assert pack("uni-gpu", 1795266743, [job]) == (RECORDED / "archive-jobs").read_bytes()


def test_several_jobs_follow_each_other() -> None:
    one, other = pack("c", 7, [{"id_job": 1}]), pack("c", 7, [{"id_job": 2}])
    both = pack("c", 7, [{"id_job": 1}, {"id_job": 2}])
    header = 2 + 8 + 2 + (4 + 2) + 4
    assert both[header:] == one[header:] + other[header:]
    assert both[header - 4 : header] == bytes([0, 0, 0, 2])


def test_text_that_slurmdbd_would_take_for_sql_is_refused() -> None:
    for text in ("o'clock", "back\\slash", "nul\0"):
        with pytest.raises(ValueError, match="would misread"):
            pack("c", 7, [{"job_name": text}])


def test_a_misspelt_column_is_refused() -> None:
    with pytest.raises(ValueError, match="no column 'id_jobs'"):
        pack("c", 7, [{"id_jobs": 1}])
