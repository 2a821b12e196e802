"""Reading what sacctmgr shows (rows as 22.05.8 prints them)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hpctools.conf import Account, Association, Qos, live_queries, parse_live, read_live
from hpctools.conf.accounts import Beside
from hpctools.conf.vocabulary import ASSOCIATION_SETTINGS, QOS_SETTINGS, canonical_setting
from hpctools.errors import HpctoolsError, SiteError
from hpctools.slurm.account_questions import ASSOCIATION_WORDS, QOS_WORDS

OTHER_QOS = "|" * (len(QOS_SETTINGS) - 9)
OTHER = "|" * (len(ASSOCIATION_SETTINGS) - 9)
# Name|Priority|Preempt|PreemptMode|GraceTime|PreemptExemptTime|MaxWall|MaxTRESPU|MaxJobsPU|UsageFactor|...
QOS = f"""\
normal|0||cluster|00:00:00|||||1.000000{OTHER_QOS}
high|500|preemptible,elastic|cluster|00:01:08|00:10:00|1-00:00:00|gres/gpu=16,cpu=4|4|2.000000{OTHER_QOS}
"""
# Cluster|Account|User|Parent|Partition|Share|GrpTRES|GrpJobs|MaxTRES|MaxJobs|MaxSubmit|MaxWall|QOS|Def QOS
ASSOCIATIONS = f"""\
other|nlp||root||9|gres/gpu=1||||||theirs|{OTHER}
uni|root||||1|||||||normal|{OTHER}
uni|nlp||root||40|gres/gpu=48,cpu=640,mem=2T|20|gres/gpu=48|50|100|1-12:30:00|medium,high|medium{OTHER}
uni|nlp-a||nlp||1||||||||{OTHER}
uni|nlp-a|ada|||1|gres/gpu=16|||||||{OTHER}
uni|nlp-a|ada||special|7|||||||rare|{OTHER}
"""
# The accounts below those that somebody coordinates are shown as well.
USERS = "eve|nlp|nlp,nlp-a\nada|nlp-a|nlp,nlp-a\nbob|nlp-a|nlp-a\nroot|root|\n"
CLUSTERS = "uni\nother\n"
DESCRIPTIONS = "nlp|language | speech\nnlp-a|nlp-a\nroot|default root account\n"
TRES = "cpu|\nmem|\ngres|gpu\ngres|gpu:a100\n"
ANSWERS = (QOS, ASSOCIATIONS, USERS, CLUSTERS, TRES, DESCRIPTIONS)

UNSET = dict.fromkeys(ASSOCIATION_SETTINGS, "")


def test_everything_is_read_in_canonical_spelling() -> None:
    tree = parse_live(*ANSWERS, cluster="uni")
    assert tree.clusters == ("uni", "other")
    assert tree.qos[1] == Qos(
        "high",
        {
            **dict.fromkeys(QOS_SETTINGS, ""),
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
        Account("root", "root", {**UNSET, "Fairshare": "1", "QOS": "normal"}),
        Account(
            "nlp",
            "root",
            {
                **UNSET,
                "Fairshare": "40",
                "GrpTRES": "cpu=640,gres/gpu=48,mem=2097152",
                "GrpJobs": "20",
                "MaxTRES": "gres/gpu=48",
                "MaxJobs": "50",
                "MaxSubmitJobs": "100",
                "MaxWall": "131400",
                "QOS": "high,medium",
                "DefaultQOS": "medium",
            },
            ("ada", "eve"),
        ),
        Account("nlp-a", "nlp", {**UNSET, "Fairshare": "1"}, ("bob",)),
    )
    assert tree.default_accounts == {"eve": "nlp", "ada": "nlp-a", "bob": "nlp-a", "root": "root"}
    # The association of one partition only is somebody's special arrangement: not ours, but it is known.
    assert tree.associations == (
        Association("ada", "nlp-a", {**UNSET, "Fairshare": "1", "GrpTRES": "gres/gpu=16"}),
    )
    assert tree.beside == Beside(
        clusters=frozenset({"other"}),
        tres=("cpu", "mem", "gres/gpu", "gres/gpu:a100"),
        qos=frozenset({"theirs", "rare"}),
        accounts=frozenset({"nlp"}),
        partitioned=frozenset({("ada", "nlp-a")}),
        inherited=frozenset({("ada", "nlp-a"), ("eve", "nlp-a")}),
    )


def test_without_a_cluster_all_count() -> None:
    assert [account.name for account in parse_live(*ANSWERS).accounts] == ["nlp", "root", "nlp", "nlp-a"]


def test_all_settings_are_asked_for() -> None:
    assert (tuple(QOS_SETTINGS), tuple(ASSOCIATION_SETTINGS)) == (QOS_WORDS, ASSOCIATION_WORDS)


def test_asking_all_at_once() -> None:
    asked: dict[Sequence[str], str] = dict(zip(live_queries("uni"), ANSWERS, strict=True))
    assert read_live(asked.__getitem__, "uni") == parse_live(*ANSWERS, cluster="uni")
    kinds = ["qos", "association", "user", "cluster", "tres", "accounts"]
    assert [query[1] for query in asked] == kinds


@pytest.mark.parametrize("at", range(len(ANSWERS) - 1))
def test_an_answer_of_another_shape_is_an_error_and_no_guess(at: int) -> None:
    answers = list(ANSWERS)
    answers[at] = "one|too|many" + "|x" * 40 + "\n"
    with pytest.raises(HpctoolsError, match=r"sacctmgr printed 43 columns instead of \d+"):
        parse_live(*answers)


def test_names_that_cannot_be_told_apart_are_left_out_and_known() -> None:
    strange = "uni|pi|pe||nlp||1" + "|" * 8 + OTHER + "\n" + "uni|new\nline||nlp||1" + "|" * 8 + OTHER + "\n"
    tree = parse_live(QOS, ASSOCIATIONS + strange, USERS + "pi|pe||\n", *ANSWERS[3:], cluster="uni")
    assert tree == replace(parse_live(*ANSWERS, cluster="uni"), beside=tree.beside)
    assert [line.split("|")[1] for line in tree.beside.unread] == ["pi", "new", "", "pe"]


@pytest.mark.parametrize(
    ("shown", "text"),
    [("mem=1500M", "mem=1500"), ("mem=2.50T", "mem=2621440"), ("mem=1.50G", "mem=1536"),
     ("cpu=1K,node=3", "cpu=1024,node=3"),
     ("gres/gpu:a100=2,billing=7", "billing=7,gres/gpu:a100=2"), ("", "")],
)  # fmt: skip
def test_tres_in_plain_numbers(shown: str, text: str) -> None:
    assert QOS_SETTINGS["GrpTRES"].canonical(shown) == text


@pytest.mark.parametrize(
    ("told", "shown"),
    [("mem=1500", "mem=1500M"), ("mem=1049088", "mem=1.00T"), ("mem=1573376", "mem=1.50T"),
     ("mem=1049600", "mem=1025G"), ("cpu=7,mem=1610612736", "cpu=7,mem=1.50P"), ("gres/gpu=2", "gres/gpu=2")],
)  # fmt: skip
def test_what_sacctmgr_shows_of_what_it_was_told(told: str, shown: str) -> None:
    limits = QOS_SETTINGS["GrpTRES"]
    assert limits.shown(told) == limits.canonical(shown)


@pytest.mark.parametrize(
    ("word", "value", "canonical"),
    [("grptresmins", "gres/gpu=5,cpu=1k", ("GrpTRESMins", "cpu=1024,gres/gpu=5")),
     ("MaxTRESPerJob", "cpu=1", ("MaxTRES", "cpu=1")), ("MaxWall", "1-00:00:30", ("MaxWall", "86460")),
     ("GrpJobs", "-1", ("GrpJobs", "")), ("Fairshare", "parent", ("Fairshare", "parent"))],
)  # fmt: skip
def test_a_setting_in_sacctmgrs_words(word: str, value: str, canonical: tuple[str, str]) -> None:
    assert canonical_setting(ASSOCIATION_SETTINGS, word, value, "x") == canonical


@pytest.mark.parametrize(
    ("word", "value"),
    [("MaxWall", "60"), ("GrpJobs", "many"), ("GrpTRES", "cpu"), ("GrpTRES", "cpu=-4"), ("QOS", "a;b"),
     ("Nonsense", "1"), ("Description", "x"), ("Priority", "1:MaxJobs=9")],
)  # fmt: skip
def test_a_setting_that_sacctmgr_does_not_have(word: str, value: str) -> None:
    with pytest.raises(SiteError, match="account x"):
        canonical_setting(ASSOCIATION_SETTINGS, word, value, "account x")
