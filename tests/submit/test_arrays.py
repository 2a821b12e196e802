"""`--array` of an elastic run, `--time`, and `--dependency` on runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.errors import SubmitError
from hpctools.slurm.sbatch_options import Option
from hpctools.submit.arrays import Array, parse_array, with_index
from hpctools.submit.dependencies import corresponding, names_runs, of_one_index, waiting_for, with_jobs
from hpctools.submit.times import is_unlimited, minutes_of


@pytest.mark.parametrize(
    ("value", "array"),
    [
        ("3", Array((3,))),
        ("0-3", Array((0, 1, 2, 3))),
        ("0-10:5", Array((0, 5, 10))),
        ("7,1-2,2", Array((1, 2, 7))),
        ("1-3%2", Array((1, 2, 3), 2)),
    ],
)
def test_sbatchs_forms(value, array):
    assert parse_array(value, "x") == array


@pytest.mark.parametrize(
    "value", ["", "a", "3-1", "1-2:0", "1,,2", "1%0", "1%", "1%x", "-1", "0-9999", "\u0663"]
)
def test_what_is_no_array_is_refused_with_the_forms(value):
    with pytest.raises(SubmitError, match=r"^job.sh line 2: --array="):
        parse_array(value, "job.sh line 2")


@given(st.sets(st.integers(0, 5000), min_size=1, max_size=30), st.none() | st.integers(1, 40))
def test_the_limit_holds_however_the_runs_end(indices, limit):
    """Each run waits for one `limit` places before it: never more than `limit` are between begin and end."""
    text = ",".join(map(str, indices)) + (f"%{limit}" if limit else "")
    array = parse_array(text, "x")
    assert array.indices == tuple(sorted(indices))
    waits = [array.before(place) for place in range(len(indices))]
    lanes = [wait for wait in waits if wait is not None]
    assert len(set(lanes)) == len(lanes)
    assert waits.count(None) == min(limit or len(indices), len(indices))


def test_a_program_finds_slurms_variables():
    assert Array((2, 5, 8)).environment(1, "train-1") == {
        "HPCTOOLS_ARRAY_INDEX": "5",
        "HPCTOOLS_ARRAY_RUN": "train-1",
        "SLURM_ARRAY_TASK_ID": "5",
        "SLURM_ARRAY_TASK_COUNT": "3",
        "SLURM_ARRAY_TASK_MIN": "2",
        "SLURM_ARRAY_TASK_MAX": "8",
        "SLURM_ARRAY_TASK_STEP": "3",
    }


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("o-%A_%a.txt", "o-%j_7.txt"),
        ("%4a", "0007"),
        ("100%%a", "100%%a"),
        ("%j", "%j"),
        ("%x-%5A", "%x-%5j"),
    ],
)
def test_file_name_patterns_get_the_index(pattern, meant):
    assert with_index(Option("output", pattern), 7) == Option("output", meant)
    assert with_index(Option("comment", pattern), 7) == Option("comment", pattern)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90), ("10:30", 11), ("2:00:00", 120), ("1-0", 1440), ("1-2:30", 1590), ("1-0:0:1", 1441),
        ("0", None), ("UNLIMITED", None), ("infinite", None), ("x", None), ("", None), ("1:2:3:4", None),
    ],
)  # fmt: skip
def test_time_limits_in_sbatchs_forms(text, minutes):
    assert minutes_of(text) == minutes


JOBS = {"train-3fa9c1": [70], "sweep-1": [1, 2, 3], "after-x": [9]}


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("afterok:train-3fa9c1", "afterok:70"),
        ("afterok:5:train-3fa9c1,afterany:sweep-1+10", "afterok:5:70,afterany:1+10:2+10:3+10"),
        ("after:after-x?afternotok:7_3", "after:9?afternotok:7_3"),
    ],
)
def test_runs_stand_for_their_baseline_jobs(value, meant):
    assert names_runs(value)
    assert with_jobs(value, JOBS.__getitem__) == meant


@pytest.mark.parametrize("value", ["singleton", "afterok:5:6_2,after:7+10", "aftercorr:8_*", "expand:4", ""])
def test_what_names_no_run_is_sbatchs_own(value):
    assert not names_runs(value)
    assert with_jobs(value, JOBS.__getitem__) == value


def test_of_what_corresponds_each_index_has_its_own():
    value = "AfterCorr:sweep-1:8+5,afterany:7?aftercorr:9_*"
    assert corresponding(value) == ["sweep-1", "8", "9_*"]
    assert of_one_index(value, lambda word: f"<{word}>") == "afterok:<sweep-1>:<8>+5,afterany:7?afterok:<9_*>"
    assert not corresponding("singleton,afterok:7,aftercorr,after:aftercorr")


def test_waiting_is_added_to_what_a_job_waits_for_already():
    assert waiting_for(("--hold",), "5") == ("--hold", "--dependency=afterany:5")
    own = ("--dependency=afterok:3", "--hold")
    assert waiting_for(own, "5") == (*own, "--dependency=afterok:3,afterany:5")


def test_a_time_limit_that_asks_for_none() -> None:
    asked = ("0", "0:00", "-1", "UNLIMITED", "infinite", "1", "0:01", "1-0", "", "soon")
    assert [each for each in asked if is_unlimited(each)] == ["0", "0:00", "-1", "UNLIMITED", "infinite"]
