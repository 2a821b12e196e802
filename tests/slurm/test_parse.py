"""What Slurm's commands print, read into records."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.errors import ReleaseError
from hpctools.slurm.parse import FIELD, RECORD, dependencies, jobs, minutes, partitions, unfold
from hpctools.slurm.types import Job, Partition

ROW = ["7", "my job", "nlp1", "nlp-lab-a", "nlp", "medium", "RUNNING", "None", "reserved-[1-2]", "hp-run:x"]


RECORDED = Path(__file__).parents[1] / "recorded"
RELEASES = ("22.05.8", "24.11.5", "26.05.5")


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_says_the_same_of_the_same_jobs(release: str) -> None:
    seen = {job.id: job for job in jobs((RECORDED / release / "squeue-jobs.txt").read_text())}
    assert {number: job.state for number, job in seen.items()} == {
        **dict.fromkeys((1, 3, 4, 5), "COMPLETED"),
        **dict.fromkeys((6, 7), "RUNNING"),
        **dict.fromkeys((9, 10, 11), "PENDING"),
        2: "FAILED",
        8: "CANCELLED",
    }
    assert (seen[1].name, seen[1].comment) == ("with steps", "a comment, with: marks")
    assert (seen[6].nodes, seen[6].time_limit) == (("reserved-1", "reserved-2"), 60)
    assert [seen[number].started for number in (9, 10, 11)] == [None, None, None]
    assert (seen[11].reason, seen[11].time_limit) == ("JobHeldUser", 2 * 24 * 60)


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_says_the_same_of_the_same_partitions(release: str) -> None:
    every = (*(f"reserved-{n}" for n in range(1, 5)), "shared-1", "shared-2")
    tiers = ("critical", "high", "medium", "low", "preemptible", "elastic")
    labs = {"nlp": ("nlp-lab-a", "nlp-lab-b"), "cv": ("cv-lab-a",), "dl": ("dl-lab-a",)}
    assert partitions((RECORDED / release / "scontrol-show-partition.txt").read_text()) == [
        Partition(name, 6, None, False, "UP", every, (name, *below), tiers[name == "dl" :])
        for name, below in labs.items()
    ]


def test_what_jobs_wait_for() -> None:
    rows = {
        7: "afterok:5(unfulfilled),after:6+10(unfulfilled)",
        8: "(null)",
        9: "afterok:5(failed)?afterany:6(unfulfilled)",
        10: "singleton(unfulfilled)",
        11: "afterok:4(fulfilled),afterok:5_*(unfulfilled)",
        12: "afterok:4(fulfilled)",
    }
    text = "".join(f"{number}{FIELD}{value}{RECORD}\n" for number, value in rows.items())
    assert dependencies(text) == {
        7: "afterok:5,after:6+10",
        9: "afterok:5?afterany:6",
        10: "singleton",
        11: "afterok:5_*",
    }
    assert dependencies("") == {}


def test_a_queue_with_a_name_of_many_signs() -> None:
    seen = jobs((RECORDED / "22.05.8/squeue.txt").read_text())
    assert [(j.id, j.name, j.state, j.reason, j.started) for j in seen] == [
        (1, "odd|name, x", "PENDING", "Resources", None),
        (3, "wrap", "PENDING", "Priority", None),
        (2, "wrap", "RUNNING", "None", 1795263956),
    ]
    assert seen[0].comment == "hp-run:x"
    assert seen[2].nodes == (*(f"reserved-{n}" for n in range(1, 5)), "shared-1", "shared-2")
    found = partitions((RECORDED / "22.05.8/scontrol-partition.txt").read_text())
    assert [(p.name, p.total_nodes, p.max_nodes, p.is_default, p.state) for p in found] == [
        (name, 6, None, False, "UP") for name in ("nlp", "cv", "dl")
    ]
    assert {each.min_nodes for each in found} == {0}
    (wide,) = partitions("PartitionName=wide MaxNodes=8 MinNodes=4 TotalNodes=8\n")
    assert (wide.min_nodes, wide.max_nodes) == (4, 8)


def line(*fields: str) -> str:
    return FIELD.join(fields) + RECORD + "\n"


def test_a_running_job() -> None:
    assert jobs(line(*ROW, "1790000000", "1790000001", "1-02:03:04")) == [
        Job(
            id=7,
            name="my job",
            user="nlp1",
            account="nlp-lab-a",
            partition="nlp",
            qos="medium",
            state="RUNNING",
            reason="None",
            nodes=("reserved-1", "reserved-2"),
            comment="hp-run:x",
            submitted=1790000000,
            started=1790000001,
            time_limit=26 * 60 + 4,
        )
    ]


def test_a_pending_job_has_no_start_nodes_or_comment() -> None:
    (job,) = jobs(line(*ROW[:6], "PENDING", "Resources", "", "(null)", "1790000000", "N/A", "UNLIMITED"))
    assert (job.nodes, job.comment, job.started, job.time_limit) == ((), "", None, None)
    (held,) = jobs(line(*ROW[:6], "REQUEUE_HOLD", "x", "", "(null)", "1790000000", "1790000900", "UNLIMITED"))
    assert held.started is None  # a forecast, as of others that wait


def test_names_with_separators_of_other_tools_do_not_confuse() -> None:
    odd = "a|b c\n,d=e [1-2] %j"
    (job,) = jobs(line("7", odd, *ROW[2:], "1", "2", "5:00"))
    assert (job.name, job.time_limit) == (odd, 5)


OTHER = line("7", "t", *ROW[2:], "1", "2", "5:00")


@pytest.mark.parametrize(
    ("name", "comment"),
    [
        (f"a{FIELD}b", "hp-run:x"),
        ("my job", f"{FIELD}{FIELD}"),
        (f"{FIELD}RUN", f"x{FIELD}y"),
        (f"a{RECORD}b", RECORD),
    ],
)
def test_separators_in_a_name_or_comment_hide_no_job(name: str, comment: str) -> None:
    odd, other = jobs(line("8", name, *ROW[2:9], comment, "1", "2", "5:00") + OTHER)
    assert (odd.id, odd.name, odd.comment, odd.state) == (8, name, comment, "RUNNING")
    assert (odd.nodes, odd.started, other.id) == (("reserved-1", "reserved-2"), 2, 7)


@pytest.mark.parametrize(
    "odd",
    [
        line("8", f"{5 * FIELD}RUNNING{FIELD}", *ROW[2:], "1", "2", "5:00"),
        line("8", f"a{RECORD}\nb", *ROW[2:], "1", "2", "5:00"),
        line("8", *ROW[1:8], "gpu-[1", "", "1", "2", "5:00"),
        "slurmctld is restarted tonight\n" + line("8", *ROW[1:], "1", "2", "5:00"),
    ],
)
def test_a_record_that_is_none_is_named_and_hides_nobody_else(odd: str) -> None:
    """Of a person's own jobs none may be missed: it would be submitted again."""
    with pytest.raises(ReleaseError, match=r"what squeue printed cannot be read: '(8|slurmctld)"):
        jobs(odd + OTHER)
    assert [job.id for job in jobs(odd + OTHER, everybodys=True)] == [7]


@pytest.mark.parametrize("everybodys", [False, True])
@pytest.mark.parametrize("cut", ["Maintenance until 6 pm\n", OTHER[:-30], OTHER + "Maintenance\n"])
def test_an_answer_that_is_cut_off_or_not_squeues_is_no_empty_queue(cut: str, *, everybodys: bool) -> None:
    with pytest.raises(ReleaseError, match="what squeue printed cannot be read"):
        jobs(cut, everybodys=everybodys)


@pytest.mark.parametrize("text", ["Maintenance\n", f"Maintenance\n7{FIELD}afterok:5{RECORD}\n"])
def test_what_jobs_wait_for_is_not_read_from_something_else(text: str) -> None:
    with pytest.raises(ReleaseError, match="what squeue printed cannot be read: 'Maintenance"):
        dependencies(text)


def test_a_partition_of_which_a_number_is_none_is_named() -> None:
    with pytest.raises(ReleaseError, match="what scontrol printed cannot be read: 'PartitionName=odd"):
        partitions("PartitionName=odd TotalNodes=many\n")
    with pytest.raises(ReleaseError, match="what Slurm printed cannot be read: 'r-"):
        partitions("PartitionName=odd TotalNodes=1 Nodes=r-[1\n")


def test_nothing_is_no_jobs() -> None:
    assert jobs("") == jobs("\n") == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("5:00", 5),
        ("0:30", 1),
        ("2:00:00", 120),
        ("32-00:00:00", 46080),
        ("UNLIMITED", None),
        ("INVALID", None),
    ],
)
def test_time_limits(text: str, wanted: int | None) -> None:
    assert minutes(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("", ()), ("(null)", ()), ("a", ("a",)), ("a,b", ("a", "b")), ("g[1-2,7]", ("g1", "g2", "g7"))],
)
def test_host_lists(text: str, wanted: tuple[str, ...]) -> None:
    assert unfold(text) == wanted


def test_partitions_as_scontrol_prints_them() -> None:
    text = (
        "PartitionName=nlp AllowGroups=ALL Default=YES MaxNodes=UNLIMITED Nodes=r-[1-2] State=UP TotalCPUs=8 "
        "TotalNodes=2 TRES=cpu=8,mem=1G\n"
        "PartitionName=cv AllocNodes=login-[1,3],ctl Default=NO MaxNodes=4 "
        "Nodes=(null) State=DRAIN TotalNodes=0\n"
    )
    assert partitions(text) == [
        Partition("nlp", 2, None, True, "UP", ("r-1", "r-2")),
        Partition("cv", 0, 4, False, "DRAIN", (), submit_hosts=("ctl", "login-1", "login-3")),
    ]
