from __future__ import annotations

import stat
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path

import pytest

from hpctools.errors import BudgetError, CommandError, UnreachableError
from hpctools.slurm.accounting import (
    FIELDS,
    JobRecord,
    arguments,
    duration,
    expand,
    parse,
    read_jobs,
    tres,
    without_mark,
)
from hpctools.slurm.accounting_table import read, to_records

RECORDED = Path(__file__).parents[1] / "recorded/22.05.8"
LINE = (
    "17|uni-gpu|4|nlp1|nlp-lab-a|nlp|medium|2026-11-21T12:00:00|2026-11-21T12:00:05|2026-11-21T12:01:05|"
    "00:00:00|COMPLETED|billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=2|reserved-[1-2]|"
)
RECORD = JobRecord(
    cluster="uni-gpu",
    dbindex=4,
    job_id=17,
    user="nlp1",
    account="nlp-lab-a",
    partition="nlp",
    qos="medium",
    submitted=1795262400,
    start=1795262405,
    end=1795262465,
    suspended_seconds=0,
    state="COMPLETED",
    cpus=8,
    memory_mb=65536,
    gpus=4,
    shards=0,
    nodes="reserved-[1-2]",
    reservation="",
)


def line(**changes: str) -> str:
    return "|".join((dict(zip(FIELDS, LINE.split("|"), strict=True)) | changes).values())


def test_a_line_is_a_record() -> None:
    assert parse(f"{LINE}\n") == (RECORD,)


def test_a_running_job_has_no_end() -> None:
    (job,) = parse(line(End="Unknown", State="RUNNING"))
    assert (job.end, job.state) == (None, "RUNNING")


def test_a_job_whose_end_slurmdbd_has_not_heard_of_yet_has_none() -> None:
    """Seen on 22.05.8 in the seconds after slurmdbd was back: such a job counts as one that runs."""
    (job,) = parse(line(End="Unknown", State="COMPLETED"))
    assert (job.end, job.state) == (None, "COMPLETED")


def test_a_pending_job_has_nothing_yet() -> None:
    (job,) = parse(
        line(Start="Unknown", End="Unknown", State="PENDING", AllocTRES="", NodeList="None assigned")
    )
    assert (job.start, job.end, job.nodes, job.cpus, job.gpus) == (None, None, "", 0, 0)


def test_who_cancelled_a_job_is_not_its_state() -> None:
    assert parse(line(State="CANCELLED by 1001"))[0].state == "CANCELLED"


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gres/gpu=4,gres/gpu:a100=4", 4),
        ("gres/gpu:a100=3,gres/gpu:h100=1", 4),
        ("gres/gpu_mem=4", 0),
        ("cpu=1", 0),
    ],
)
def test_typed_gpus_are_never_added_to_the_plain_count(text: str, gpus: int) -> None:
    assert parse(line(AllocTRES=text))[0].gpus == gpus


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:00", 0), ("01:02", 62), ("03:01:02", 10862), ("32-00:00:00", 2764800), ("05:00.999", 300)],
)
def test_durations_have_days_or_hours_or_neither(text: str, seconds: int) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "32", "1-00", "-1:00", "INVALID"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration(text)


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [("1000M", 1000), ("1.50G", 1536), ("2T", 2097152), ("512K", 0), ("2048K", 2), ("77", 77)],
)
def test_memory_is_in_megabytes(text: str, megabytes: int) -> None:
    assert tres(f"cpu=1,mem={text}")["mem"] == megabytes


@pytest.mark.parametrize("text", ["cpu", "cpu=", "cpu=x", "=3", "mem=1Q"])
def test_what_is_no_tres_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a TRES"):
        tres(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (LINE.rpartition("|")[0], "14 fields instead of 15"),
        (f"{LINE}|more", "16 fields instead of 15"),
        (line(DBIndex="x"), "invalid literal"),
        (line(Start="12:00"), "Invalid isoformat"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text: str, what: str) -> None:
    with pytest.raises(BudgetError, match=f"line 2 of sacct's output cannot be read.*{what}"):
        parse(f"{LINE}\n{text}\n")


def test_host_lists_unfold_and_nothing_else_is_understood() -> None:
    assert expand("b-[2,10],a-1") == ("a-1", "b-2", "b-10")
    assert expand("") == ()


def test_the_question_covers_one_utc_day() -> None:
    assert arguments(date(2026, 2, 28), date(2026, 3, 1)) == [
        "sacct",
        "--allusers",
        "--allocations",
        "--duplicates",
        "--parsable2",
        "--noheader",
        "--noconvert",
        "--starttime=2026-02-28T00:00:00",
        "--endtime=2026-03-01T00:00:00",
        "--format=JobIDRaw,Cluster,DBIndex,User,Account,Partition,QOS,Submit,Start,End,Suspended,State,AllocTRES,"
        "NodeList,Reservation",
    ]


def fake_sacct(folder: Path, script: str) -> Path:
    program = folder / "sacct"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_windows_grow_while_answers_are_small_and_shrink_after_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpctools.slurm.accounting.FEW_JOBS", 1)
    log = tmp_path / "log"
    busy = f"case $7 in *-12-08T*) echo '{LINE}'; echo '{LINE}' ;; esac"
    sacct = fake_sacct(tmp_path, f'echo "$7 $8" >>{log}; {busy}')
    assert list(read_jobs(date(2026, 12, 1), date(2026, 12, 21), sacct=sacct)) == [RECORD]
    days = [tuple(int(word[-11:-9]) for word in line.split()) for line in log.read_text().splitlines()]
    assert days == [(1, 2), (2, 4), (4, 8), (8, 16), (16, 17), (17, 19), (19, 21)]


def test_each_day_is_asked_for_in_utc_and_a_job_in_two_windows_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    log = tmp_path / "log"
    sacct = fake_sacct(tmp_path, f"echo \"$TZ $SLURM_TIME_FORMAT $8\" >>{log}; echo '{LINE}'")
    assert list(read_jobs(date(2026, 11, 20), date(2026, 11, 22), sacct=sacct)) == [RECORD]
    assert log.read_text().splitlines() == [
        "UTC standard --endtime=2026-11-21T00:00:00",
        "UTC standard --endtime=2026-11-22T00:00:00",
    ]


def test_slurmdbd_that_is_away_is_told_from_other_failures(tmp_path: Path) -> None:
    sacct = fake_sacct(tmp_path, f"cat {RECORDED / 'sacct-away.txt'} >&2; exit 1")
    with pytest.raises(UnreachableError, match="slurmdbd does not answer: sacct: error: Problem talking"):
        list(read_jobs(date(2026, 11, 20), date(2026, 11, 21), sacct=sacct))
    sacct.write_text("#!/bin/sh\necho 'sacct: fatal: bad option' >&2; exit 1\n")
    with pytest.raises(CommandError, match="bad option"):
        list(read_jobs(date(2026, 11, 20), date(2026, 11, 21), sacct=sacct))


def test_a_recorded_day_of_22_05_8_is_read_whole() -> None:
    jobs = parse((RECORDED / "sacct-day.txt").read_text())
    midnight = int(datetime(2026, 11, 21, tzinfo=timezone.utc).timestamp())
    clock = {
        job.dbindex: tuple(
            None if moment is None else moment - midnight - 12 * 3600 - 47 * 60
            for moment in (job.start, job.end)
        )
        for job in jobs
    }
    assert [(job.job_id, job.dbindex, job.user, job.state, job.nodes) for job in jobs] == [
        (1, 1, "nlp1", "COMPLETED", "shared-1"),
        (2, 2, "nlp1", "COMPLETED", "reserved-[1-2]"),
        (6, 12, "cv1", "COMPLETED", "shared-1"),
        (7, 6, "dl1", "REQUEUED", "shared-2"),
        (4, 3, "cv1", "FAILED", "shared-2"),
        (5, 4, "cv1", "FAILED", "shared-2"),
        (3, 5, "cv1", "FAILED", "shared-2"),
        (8, 14, "nlp2", "CANCELLED", "shared-2"),
        (9, 15, "nlp3", "PENDING", ""),
        (10, 16, "nlp1", "COMPLETED", "reserved-[1-4],shared-1"),
        (7, 17, "dl1", "PENDING", ""),
        (11, 18, "nlp1", "COMPLETED", "shared-1"),
        (12, 20, "nlp1", "RUNNING", "shared-1"),
    ]
    # A name with the separator in it, a requeue under the same id, five nodes of two kinds, shards.
    assert [clock[dbindex] for dbindex in (1, 6, 15, 16, 20)] == [
        (22, 25),
        (23, 28),
        (None, None),
        (28, 30),
        (99, None),
    ]
    assert [
        (job.cpus, job.memory_mb, job.gpus, job.shards) for job in jobs if job.dbindex in (2, 12, 15)
    ] == [
        (192, 747072, 16, 0),
        (2, 7600, 0, 2),
        (0, 0, 0, 0),
    ]


MARK = "<0123456789abcdef>"


def marked(*labels: str, values: str = LINE) -> str:
    """A line as sacct prints it with a delimiter of ours."""
    return MARK.join((*values.split("|"), *labels)) + "\n"


@pytest.mark.parametrize(
    ("labels", "name", "run"),
    [
        (("17", ""), "", ""),
        (("9_4", "hp-run:train-1a2b3c"), "9_4", "train-1a2b3c"),
        (("9+1", "hp-run:"), "9+1", ""),
        (("9_[1-3]", "a comment | with hp-run:x"), "", ""),
    ],
)
def test_names_and_runs_are_kept_and_nothing_else_that_a_user_may_write(
    labels: tuple[str, str], name: str, run: str
) -> None:
    text = without_mark(marked(*labels), MARK)
    assert text == f"{LINE}|{name}|{run}\n"
    assert parse(text) == (replace(RECORD, name=name, run=run),)
    assert to_records(read(text)) == [replace(RECORD, name=name, run=run)]


def test_a_comment_forges_no_job() -> None:
    """It has line breaks, and a line that looks like another account's job."""
    forged = LINE.replace("nlp-lab-a", "cv-lab-a").replace("|4|", "|5|", 1)
    text = marked("17", f"x\n{forged}\n{forged}|5|hp-run:y") + marked("17", "hp-run:z")
    assert parse(without_mark(text, MARK)) == (RECORD, replace(RECORD, run="z"))


def test_each_question_has_a_mark_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = f"""for word; do
case $word in --delimiter=*) mark=${{word#*=}} ;; --format=*) echo "$word" >>{log} ;; esac
done
echo "$mark" >>{log}
echo '{LINE}|9_4|hp-run:r' | sed "s/|/$mark/g" """
    sacct = fake_sacct(tmp_path, script)
    found = list(read_jobs(date(2026, 11, 20), date(2026, 11, 22), sacct=sacct))
    assert found == [replace(RECORD, name="9_4", run="r")]
    first, one, second, other = log.read_text().splitlines()
    assert first == second == f"--format={','.join(FIELDS)},JobID,Comment"
    assert one != other
    assert len(one) > 30
