"""What a user may have, read from what slurmctld and slurmdbd really said (tests/recorded)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpctools.errors import CommandError, UnreachableError
from hpctools.slurm import limits_asked, limits_text, run
from hpctools.slurm.limits import Account, Bounds, PartitionTimes, Precedence
from hpctools.slurm.limits_asked import parse_limits, read_limits

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
WEIGHTS = {"cpu": 8.33, "gres/gpu": 100.0}
UNLIMITED = ("account nlp-lab-a", "account root")


def answers(release: str) -> dict[str, str]:
    text = (RECORDED / release / "limits.txt").read_text()
    return dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("release", ["22.05.8", "26.05.5"])
def test_what_the_reference_site_gives_nlp1(release):
    found = parse_limits("nlp1", answers(release))
    gpus = {"gres/gpu": 48}
    user = Bounds("user nlp1 in account nlp-lab-a", group=gpus, job=gpus, jobs=50)
    account = Bounds("account nlp", group={"cpu": 640, "gres/gpu": 48})
    assert (
        found.account(None)
        == found.account("nlp-lab-a")
        == Account(
            "nlp-lab-a",
            True,
            ("medium", "critical", "elastic", "high", "low", "preemptible"),
            (user, Bounds(UNLIMITED[0]), account, Bounds(UNLIMITED[1])),
            ("nlp", "root"),
        )
    )
    assert found.account("cv") is None
    assert found.enforced == {"associations", "limits", "qos", "safe"}
    assert found.grace["elastic"] == 8
    assert found.grace["low"] == 60
    assert found.qos["critical"] == Bounds("QoS critical", user={"gres/gpu": 16}, jobs=4, minutes=1440)
    assert found.qos["elastic"] == Bounds("QoS elastic")
    weights = WEIGHTS if release == "26.05.5" else {**WEIGHTS, "gres/shard": 25.0}
    assert found.partitions["nlp"] == PartitionTimes(240, 2880, weights, mode="cancel")
    assert found.partitions["dl"] == PartitionTimes(None, 1440, weights, mode="cancel")


@pytest.mark.parametrize(
    ("partition", "config", "whole"),
    [
        ("OverSubscribe=NO", "", False),
        ("OverSubscribe=EXCLUSIVE", "", True),
        ("OverSubscribe=NO Exclusive=NODE", "", True),
        ("OverSubscribe=NO Exclusive=TOPO", "", True),
        ("OverSubscribe=NO Exclusive=USER", "", False),
        ("OverSubscribe=NO", "SelectType = select/linear\n", True),
    ],
)
def test_which_partitions_give_whole_nodes(partition: str, config: str, whole: bool) -> None:
    said = dict.fromkeys(answers("22.05.8"), "")
    said |= {"partitions": f"PartitionName=dl MaxTime=1:00:00 {partition}\n", "config": config}
    assert parse_limits("x", said).partitions["dl"].whole is whole


def test_a_cluster_that_says_nothing_has_no_limits():
    found = parse_limits("x", dict.fromkeys(answers("22.05.8"), ""))
    assert (found.accounts, found.qos, found.partitions, found.account(None)) == ((), {}, {}, None)


def test_who_takes_nodes_from_whom_and_who_may_have_more_than_a_partition_allows():
    said = answers("22.05.8")
    said["qos"] = (
        "high|00:00:00|||||||||elastic,low|cluster|DenyOnLimit,PartitionMaxNodes,PartitionTimeLimit\n"
        "low|00:01:00||||||||||requeue|\n"
    )
    said["config"] += "PreemptType             = preempt/qos\n"
    said["qos"] += "long|00:00:00||||||||||cluster|DenyOnLimit,OverPartQOS,PartitionMinNodes\n"
    said["partitions"] = "PartitionName=a AllowQos=ALL QoS=part\nPartitionName=b QoS=N/A\nPartitionName=c\n"
    found = parse_limits("nlp1", said)
    assert found.over_partitions == {"long"}
    assert {name: each.qos for name, each in found.partitions.items()} == {"a": "part", "b": "", "c": ""}
    assert found.preempt_type == "qos"
    assert found.precedence == Precedence(
        {"high": frozenset({"elastic", "low"}), "low": frozenset(), "long": frozenset()},
        {"high": "cluster", "low": "requeue", "long": "cluster"},
    )
    assert found.beyond_partitions == found.beyond_times == {"high"}
    assert found.below_partitions == {"long"}
    assert found.denying == {"high", "long"}
    assert parse_limits("nlp1", answers("22.05.8")).precedence == Precedence()


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("PreemptParameters       = reorder_count=2,youngest_first", True),
        ("SchedulerParameters     = bf_continue,preempt_youngest_first", True),
        ("PreemptParameters       = reorder_count=2", False),
        ("PreemptParameters       = (null)", False),
    ],
)
def test_whether_the_youngest_is_preempted_first_is_told_by_either_setting(line: str, first: bool):
    said = answers("22.05.8") | {"config": line + "\n"}
    assert parse_limits("nlp1", said).youngest_first is first


def test_how_long_a_job_has_that_is_ended():
    said = answers("22.05.8")
    assert parse_limits("nlp1", {**said, "config": "KillWait                = 45 sec\n"}).kill_wait == 45
    assert parse_limits("nlp1", {**said, "config": ""}).kill_wait == 30


def test_minutes_that_may_be_used_come_with_those_that_were():
    said = answers("22.05.8")
    mine = "GrpTRESMins=cpu=N(358),billing=90000(2985.5),gres/gpu=6000(29)"
    pattern = r"^(ClusterName=\S+ Account=nlp UserName= .*?)GrpTRESMins=\S+"
    said["limits"] = re.sub(pattern, rf"\1{mine}", said["limits"], flags=re.MULTILINE)
    _, lab, account, root = parse_limits("nlp1", said).accounts[0].bounds
    assert (lab.used, root.used) == ({}, {})
    assert account.used == {"billing": (90000, 2985.5), "gres/gpu": (6000, 29.0)}


def test_minutes_of_one_job_and_types_of_gpus_are_read():
    said = answers("22.05.8")
    said["qos"] = (
        "high|00:00:00|gres/gpu:a100=8|||||||||cluster|DenyOnLimit|cpu=9,gres/gpu=6000\n"
        "low|00:01:00||||||||||off||\n"
    )
    mine = re.compile(r"^(ClusterName=\S+ Account=nlp-lab-a UserName=nlp1.*?)MaxTRESMinsPJ=", re.MULTILINE)
    said["limits"] = mine.sub(r"\1MaxTRESMinsPJ=gres/gpu=600,gres/gpu:a100=300", said["limits"])
    found = parse_limits("nlp1", said)
    assert found.qos == {
        "high": Bounds("QoS high", group={"gres/gpu:a100": 8}, job_minutes={"cpu": 9, "gres/gpu": 6000}),
        "low": Bounds("QoS low"),
    }
    user, *others = found.accounts[0].bounds
    assert user.job_minutes == {"gres/gpu": 600, "gres/gpu:a100": 300}
    assert all(each.job_minutes == {} for each in others)


def test_what_a_qos_says_of_accounts_and_of_nodes_is_read() -> None:
    said = answers("26.05.5")
    said["qos"] = (
        "high|00:00:00||||||||||cluster|DenyOnLimit||1.000000|cpu=9,mem=64G|5|6|gres/gpu=4|node=2|cpu=60|cpu=70|2.500000\n"
    )
    mine = re.compile(r"^(ClusterName=\S+ Account=nlp-lab-a UserName=nlp1.*?)MaxTRESPN=", re.MULTILINE)
    said["limits"] = mine.sub(r"\1MaxTRESPN=gres/gpu=2", said["limits"])
    said["config"] += "SLURM_VERSION           = 24.05.0\n"
    found = parse_limits("nlp1", said)
    assert found.qos["high"] == Bounds(
        "QoS high",
        in_account={"cpu": 9},
        on_node={"gres/gpu": 4},
        least={"node": 2},
        account_jobs=5,
        account_submitted=6,
        user_running={"cpu": 60},
        account_running={"cpu": 70},
        factor=2.5,
    )
    assert [each.on_node for each in found.accounts[0].bounds] == [{"gres/gpu": 2}, {}, {}, {}]
    said["config"] += "SLURM_VERSION           = 23.11.10\n"
    older = parse_limits("nlp1", said).qos["high"]
    assert (older.user_running, older.account_running, older.factor) == ({}, {}, 2.5)


def test_limits_of_a_relative_qos_are_percentages_and_slurmctld_tells_the_numbers() -> None:
    said = answers("26.05.5")
    percent = "cpu=50,gres/gpu=25"
    said["qos"] = (
        f"part|00:00:00|{percent}|{percent}|{percent}|7|||||cluster||DenyOnLimit,Relative|{percent}|1.000000"
        f"|{percent}||||node=10|{percent}|{percent}|\n"
    )
    said["limits"] += (
        "QOS=part(9) UsageRaw=0.0 GrpJobs=N(0) GrpWall=N(0.00) GrpTRES=cpu=96(2),gres/gpu=8(0) "
        "GrpTRESMins=cpu=N(0) GrpTRESRunMins=cpu=N(0) MaxWallPJ= MaxTRESPJ=cpu=96,gres/gpu=8 MaxTRESPN= "
        "MaxTRESMinsPJ=cpu=95 MinPrioThresh=  MinTRESPJ=node=2 PreemptMode=OFF Priority=0 Account Limits "
        "nlp={MaxJobsPA=N(0) MaxTRESPA=cpu=94(0) MaxTRESRunMinsPA=cpu=93(0)} User Limits "
        "nlp2(1003)={MaxJobsPU=N(0) MaxTRESPU=cpu=92(0) MaxTRESRunMinsPU=cpu=N(0),gres/gpu=91(0)}\n"
    )
    said["config"] += "SLURM_VERSION           = 26.05.5\n"
    assert parse_limits("nlp1", said).qos["part"] == Bounds(
        "QoS part",
        group={"cpu": 96, "gres/gpu": 8},
        job={"cpu": 96, "gres/gpu": 8},
        user={"cpu": 92},
        group_jobs=7,
        job_minutes={"cpu": 95},
        in_account={"cpu": 94},
        least={"node": 2},
        user_running={"gres/gpu": 91},
        account_running={"cpu": 93},
    )


def test_what_all_jobs_of_a_qos_or_an_account_may_use_over_time_is_read():
    said = answers("22.05.8")
    said["qos"] = "high|00:00:00||||||||||cluster|UsageFactorSafe||0.500000\nlow|00:01:00||||||||||off|||\n"
    said["limits"] += (
        "QOS Records\n"
        "QOS=high(7) UsageRaw=9.0 GrpJobs=N(1) GrpWall=600(12.50) GrpTRES=cpu=N(2) "
        "GrpTRESMins=cpu=N(358),gres/gpu=6000(29) GrpTRESRunMins=cpu=900(30),gres/gpu=N(0) MaxWallPJ= \n"
        "QOS=low(8) UsageRaw=0.0 GrpWall=N(0.00) GrpTRESMins=cpu=N(0) GrpTRESRunMins=cpu=N(0)\n"
    )
    pattern = r"^(ClusterName=\S+ Account=nlp UserName= .*?)GrpWall=\S+(.*?)GrpTRESRunMins=\S+"
    mine = r"\1GrpWall=90(1.00)\2GrpTRESRunMins=gres/gpu=12(3)"
    said["limits"] = re.sub(pattern, mine, said["limits"], flags=re.MULTILINE)
    found = parse_limits("nlp1", said)
    assert found.qos == {
        "high": Bounds(
            "QoS high", used={"gres/gpu": (6000, 29.0), "wall": (600, 12.5)}, running={"cpu": 900}
        ),
        "low": Bounds("QoS low"),
    }
    assert (found.usage_factors, found.asked_with_factor) == ({"high": 0.5}, {"high"})
    _, _, account, _ = found.accounts[0].bounds
    assert (account.used, account.running) == ({"wall": (90, 1.0)}, {"gres/gpu": 12})


def in_partition(said: dict[str, str], more: str) -> dict[str, str]:
    """As nlp1 would have it with an association for partition dl beside the one for all."""
    line = next(each for each in said["limits"].splitlines() if "UserName=nlp1" in each)
    there = line.replace("Partition=", "Partition=dl").replace("MaxJobs=50(0)", "MaxJobs=1(0)")
    there = there.replace("DefAssoc=Yes", "DefAssoc=No")  # so slurmctld has it: the other one is
    return said | {"limits": f"{said['limits']}{there}\n", "associations": said["associations"] + more}


def test_what_a_user_may_have_in_one_partition_holds_there_and_nowhere_else() -> None:
    """Slurm looks for an association with the job's partition, then for one without."""
    said = in_partition(answers("26.05.5"), "nlp-lab-a|debug,elastic|debug|uni-gpu|dl\n")
    found = parse_limits("nlp1", said)
    for name in (None, "nlp-lab-a"):
        for places, jobs, qos in (((), 50, "medium"), (("nlp", "dl"), 50, "medium"), (("dl",), 1, "debug")):
            account = found.account(name, places)
            assert account is not None
            assert (account.bounds[0].jobs, account.qos[0]) == (jobs, qos)
            assert found.qos_of(name, None, places) == qos
    assert found.account("nlp-lab-a", ("dl",)).bounds[0].of == (  # type: ignore[union-attr]
        "user nlp1 in account nlp-lab-a for partition dl"
    )


def test_who_may_have_something_in_one_partition_only_has_no_known_account_elsewhere() -> None:
    said = answers("26.05.5")
    only = in_partition(said | {"associations": ""}, "nlp-lab-a|debug|debug|uni-gpu|dl\n")
    found = parse_limits("nlp1", only)
    assert found.account("nlp-lab-a", ("nlp",)) is None
    assert found.account("nlp-lab-a", ("dl",)) == found.account("nlp-lab-a") is not None


def test_what_somebody_wrote_of_an_association_is_no_limit() -> None:
    said = answers("26.05.5")
    assert "Comment=(null)" in said["limits"]
    written = said["limits"].replace("Comment=(null)", "Comment=was MaxJobs=1 GrpTRES=cpu=1 DefAssoc=No")
    assert parse_limits("nlp1", said | {"limits": written}) == parse_limits("nlp1", said)


def test_what_a_user_has_on_another_cluster_of_the_same_slurmdbd_does_not_count() -> None:
    """sacctmgr shows associations of all clusters."""
    said = answers("26.05.5")
    other = "nlp-lab-a|tiny|tiny|cold|\n"
    here = "".join(f"{line}|uni-gpu|\n" for line in said["associations"].splitlines())
    config = said["config"] + "ClusterName             = uni-gpu\n"
    found = parse_limits("nlp1", said | {"associations": other + here, "config": config})
    assert found.accounts == parse_limits("nlp1", said).accounts


NODES = """\
NodeName=a-1 CPUTot=64 Gres=gpu:a100:4,gpu:h100:4 State=IDLE RealMemory=1000 Partitions=dl,all
NodeName=a-2 CPUTot=96 Gres=(null) State=DOWN RealMemory=900 Partitions=dl
"""


def test_nodes_are_asked_for_where_a_qos_wants_what_they_have(monkeypatch) -> None:
    """Of thousands of nodes that takes time; MinTRES of nodes alone does not need it."""
    said, asked = answers("26.05.5"), []

    def answer(words, user):
        asked.append(words)
        known = {words: said[what] for what, words in limits_asked._QUESTIONS.items()}
        return known.get(words, NODES)

    monkeypatch.setattr(limits_asked, "_ask", answer)
    qos = "high|00:00:00||||||||||cluster|||1.000000|||||{}|||\n"
    said["qos"] = qos.format("node=2")
    assert (read_limits("nlp1").largest, limits_asked._NODES in asked) == ({}, False)
    said["qos"] = qos.format("cpu=70,mem=100G,node=2")
    found = read_limits("nlp1")
    assert found.qos["high"].least == {"cpu": 70, "mem": 102400, "node": 2}
    types = {"gres/gpu": 8, "gres/gpu:a100": 4, "gres/gpu:h100": 4}
    assert found.largest == {
        "dl": {"cpu": 96, "mem": 1000, **types},
        "all": {"cpu": 64, "mem": 1000, **types},
    }


@pytest.mark.parametrize(
    ("said", "mib"), [("102400", 102400), ("500M", 500), ("2T", 2 << 20), ("3G(7)", 3072)]
)
def test_memory_is_read_in_mib(said: str, mib: int) -> None:
    assert limits_text.amounts(f"cpu=4,mem={said},gres/gpu=1") == {"cpu": 4, "mem": mib, "gres/gpu": 1}
    assert limits_text.amounts("cpu=4,mem=N") == {"cpu": 4}


def test_a_slurmdbd_that_does_not_answer_is_an_error_and_no_wait(monkeypatch):
    def refuse(argv, **_):
        if argv[0] == "sacctmgr":
            raise CommandError(
                "sacctmgr failed", argv=argv, code=1, stderr="Unable to contact slurm database"
            )
        return run.Completed(tuple(argv), 0, "", "")

    monkeypatch.setattr(limits_asked.run, "run", refuse)
    with pytest.raises((CommandError, UnreachableError), match="sacctmgr"):
        read_limits("nlp1")


@pytest.mark.parametrize(
    ("allowed", "default", "gets"),
    [
        ("debug,elastic,normal", "elastic", "elastic"),
        ("debug,elastic,normal", "", "normal"),
        ("debug", "", "debug"),
        ("debug,elastic", "", ""),
    ],
)
def test_which_qos_a_job_gets_that_asks_for_none(allowed, default, gets):
    """As slurmctld decides it: the default, the only one, `normal`; else it is not known here."""
    said = answers("22.05.8")
    said["associations"] = f"nlp-lab-a|{allowed}|{default}\n"
    assert parse_limits("nlp1", said).qos_of(None, None) == gets


def test_a_partition_s_time_to_leave_counts_where_partitions_preempt():
    said = answers("22.05.8")
    said["partitions"] = said["partitions"].replace("GraceTime=0", "GraceTime=45")
    assert parse_limits("nlp1", said).grace_of("elastic", ("nlp",)) == (8, "the QoS elastic")
    said["config"] += "PreemptType             = preempt/partition_prio\n"
    assert parse_limits("nlp1", said).grace_of("elastic", ("nlp",)) == (45, "partition nlp")
