"""Reading what sacctmgr shows (rows as 22.05.8 prints them)."""

from collections.abc import Sequence

import pytest

from hpctools.conf import Account, Association, Qos, live_queries, parse_live, read_live
from hpctools.errors import HpctoolsError

# Name|Priority|Preempt|PreemptMode|GraceTime|PreemptExemptTime|MaxWall|MaxTRESPU|MaxJobsPU|UsageFactor
QOS = """\
normal|0||cluster|00:00:00|||||1.000000
high|500|preemptible,elastic|cluster|00:01:08|00:10:00|1-00:00:00|gres/gpu=16,cpu=4|4|2.000000
"""
# Cluster|Account|User|Parent|Partition|Share|GrpTRES|GrpJobs|MaxTRES|MaxJobs|MaxSubmit|MaxWall|QOS|Def QOS
ASSOCIATIONS = """\
other|nlp||root||9|gres/gpu=1|||||||
uni|root||||1|||||||normal|
uni|nlp||root||40|gres/gpu=48,cpu=640|20|gres/gpu=48|50|100|1-12:30:00|medium,high|medium
uni|nlp-a|ada|||1|gres/gpu=16|||||||
uni|nlp-a|ada||special|7||||||||
"""
ACCOUNTS = "nlp|eve,ada\nroot|\n"
USERS = "ada|nlp-a\nroot|root\n"
CLUSTERS = "uni\nother\n"
ANSWERS = (QOS, ASSOCIATIONS, ACCOUNTS, USERS, CLUSTERS)

UNSET = dict.fromkeys(("GrpTRES", "GrpJobs", "MaxTRES", "MaxJobs", "MaxSubmitJobs", "MaxWall"), "")


def test_everything_is_read_in_canonical_spelling() -> None:
    tree = parse_live(*ANSWERS, cluster="uni")
    assert tree.clusters == ("uni", "other")
    assert tree.qos[1] == Qos(
        "high",
        {
            "Priority": "500",
            "Preempt": "elastic,preemptible",
            "PreemptMode": "cluster",
            "GraceTime": "68",
            "PreemptExemptTime": "600",
            "MaxWall": "86400",
            "MaxTRESPerUser": "cpu=4,gres/gpu=16",
            "MaxJobsPerUser": "4",
            "UsageFactor": "2.000000",
        },
    )
    assert tree.qos[0].settings["GraceTime"] == "0"
    assert tree.qos[0].settings["MaxWall"] == ""
    assert tree.accounts == (
        Account("root", "root", {"Fairshare": "1", **UNSET, "QOS": "normal", "DefaultQOS": ""}),
        Account(
            "nlp",
            "root",
            {
                "Fairshare": "40",
                "GrpTRES": "cpu=640,gres/gpu=48",
                "GrpJobs": "20",
                "MaxTRES": "gres/gpu=48",
                "MaxJobs": "50",
                "MaxSubmitJobs": "100",
                "MaxWall": "131400",
                "QOS": "high,medium",
                "DefaultQOS": "medium",
            },
            ("eve", "ada"),
        ),
    )
    assert tree.default_accounts == {"ada": "nlp-a", "root": "root"}
    settings = {"Fairshare": "1", **UNSET, "GrpTRES": "gres/gpu=16", "QOS": "", "DefaultQOS": ""}
    # The association of one partition only is somebody's special arrangement: not ours.
    assert tree.associations == (Association("ada", "nlp-a", settings),)


def test_without_a_cluster_all_count() -> None:
    assert [account.name for account in parse_live(*ANSWERS).accounts] == ["nlp", "root", "nlp"]


def test_asking_in_order() -> None:
    asked: list[Sequence[str]] = []

    def ask(query: Sequence[str]) -> str:
        asked.append(query)
        return ANSWERS[len(asked) - 1]

    assert read_live(ask, "uni") == parse_live(*ANSWERS, cluster="uni")
    assert tuple(asked) == live_queries()
    assert [query[1] for query in asked] == ["qos", "association", "account", "user", "cluster"]


@pytest.mark.parametrize("at", range(len(ANSWERS)))
def test_an_answer_of_another_shape_is_an_error_and_no_guess(at: int) -> None:
    answers = list(ANSWERS)
    answers[at] += "one|too|many" + "|x" * 20 + "\n"
    with pytest.raises(HpctoolsError, match=r"sacctmgr printed 23 columns instead of \d+"):
        parse_live(*answers)
