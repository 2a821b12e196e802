"""`sacctmgr dump`, as the real one wrote it."""

from pathlib import Path

import pytest

from hpctools.conf.existing.dump import Dump, Row, parse_dump
from hpctools.errors import HpctoolsError

RECORDED = Path(__file__).parents[2] / "recorded"


def test_a_recorded_dump() -> None:
    dump = parse_dump((RECORDED / "22.05.8/sacctmgr-dump.txt").read_text())
    assert (dump.cluster, dump.defaults) == ("uni-gpu", {"Fairshare": "1", "QOS": "normal"})
    parents = {row.name: row.parent for row in dump.accounts}
    assert parents == {
        "cv": "root",
        "dl": "root",
        "nlp": "root",
        "cv-lab-a": "cv",
        "dl-lab-a": "dl",
        "nlp-lab-a": "nlp",
        "nlp-lab-b": "nlp",
        "weird": "nlp",
    }
    assert dump.users[0] == Row(
        "root", "root", {"DefaultAccount": "root", "AdminLevel": "Administrator", "Fairshare": "1"}
    )
    assert [row.name for row in dump.users if row.parent.startswith("nlp-lab")] == [
        "nlp-lead-a",
        "nlp1",
        "nlp2",
        "nlp-cv1",
        "nlp-lead-b",
        "nlp3",
    ]


@pytest.mark.parametrize("kind", ["a100", "tesla", "a100_3g.20gb"])
def test_limits_on_a_type_of_gpu_stand_without_quotes(kind: str) -> None:
    """As sacctmgr prints them: `:GrpTRES=%s` of cpu=64 and gres/gpu:a100=8."""
    limits = f"GrpTRES=cpu=64,gres/gpu:{kind}=8,node=2:GrpTRESMins=gres/gpu:{kind}=600:MaxTRESPerNode=cpu=4"
    text = f"Cluster - 'c':Fairshare=1\nAccount - 'ml':Fairshare=35:{limits}:MaxJobs=4:QOS='high'\n"
    (row,) = parse_dump(text).accounts
    assert row.settings == {
        "Fairshare": "35",
        "GrpTRES": f"cpu=64,gres/gpu:{kind}=8,node=2",
        "GrpTRESMins": f"gres/gpu:{kind}=600",
        "MaxTRESPerNode": "cpu=4",
        "MaxJobs": "4",
        "QOS": "high",
    }


def test_qos_among_the_lines_are_left_aside() -> None:
    """As 26.05 writes them."""
    text = "QOS - 'high':Description='a':Preempt='elastic,low':Priority=500\nCluster - 'c':Fairshare=1\n"
    assert parse_dump(text) == Dump("c", {"Fairshare": "1"}, (), ())


def test_values_with_everything_that_slurmdbd_keeps() -> None:
    dump = parse_dump((RECORDED / "22.05.8/sacctmgr-dump.txt").read_text())
    (weird,) = (row for row in dump.accounts if row.name == "weird")
    assert weird.settings == {
        "Description": "o`brien: the `lab`; a=b, 100%",
        "Organization": "x:y",
        "Fairshare": "2147483647",
        "GrpTRESRunMins": "cpu=88",
        "GrpSubmitJobs": "5",
        "GrpWall": "14400",
        "MaxTRESMinsPerJob": "cpu=99",
        "Priority": "7",
        "QOS": "+normal",
    }
    (zed,) = (row for row in dump.users if row.name == "zed")
    assert (zed.parent, zed.settings["Partition"], zed.settings["GrpTRESMins"]) == (
        "weird",
        "cv",
        "cpu=10,gres/gpu=6000",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the dump names no cluster"),
        ("Cluster - 'a'\nclusterName=a\n", "line 2 of the dump is not understood: 'clusterName=a'"),
        (
            "Cluster - 'a':Fair'share=1\n",
            "line 1 of the dump is not understood: \"Cluster - 'a':Fair'share=1\"",
        ),
    ],
)
def test_what_is_no_dump(text: str, message: str) -> None:
    with pytest.raises(HpctoolsError) as raised:
        parse_dump(text)
    assert raised.value.message == message
