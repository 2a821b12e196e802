"""What a run has used, where one of its files lacks a job."""

from __future__ import annotations

from hpctools.cli import run_accounting
from hpctools.slurm import accounting
from hpctools.slurm.accounting import JobRecord
from hpctools.testing.runs import make_run


def test_a_job_that_only_the_events_tell_of_is_counted(tmp_path, monkeypatch):
    folder = make_run(tmp_path)
    folder.append_job("baseline", 101)
    folder.append_event("submitted", role="replica", job_id=102)
    folder.append_event("submitted", role="replica", job_id="torn")
    asked: list[int] = []

    def sacct(ids, first):
        asked.extend(ids)
        return [record(each) for each in ids]

    monkeypatch.setattr(accounting, "read_ids", sacct)
    found = run_accounting.bill_of(folder, now=2_000_000_000.0)
    assert asked == [101, 102]
    assert {each.job_id: each.role for each in found.items} == {101: "baseline", 102: "replica"}
    assert found.gpu_seconds == 2 * 3600
    (folder.path / "events.jsonl").write_bytes(b"\xff")
    assert [each.job_id for each in run_accounting.bill_of(folder, now=2_000_000_000.0).items] == [101]


def record(job_id: int) -> JobRecord:
    begins = 1_900_000_000
    return JobRecord(
        "c", job_id, job_id, "nlp1", "nlp", "gpu", "normal", begins, begins, begins + 3600, 0, "COMPLETED",
        8, 1024, 1, 0, "n1", "",
    )  # fmt: skip
