"""Slurm's files as slurmctld reads them."""

import pytest

from hpctools.conf.plan.meaning import read_meaning
from hpctools.conf.plan.slurmfile import included_paths, parse_lines
from hpctools.errors import HpctoolsError

TEXT = r"""
# a comment, KillWait=9
clustername=c KillWait=30   # two settings
SlurmctldHost=a
SlurmctldHost=b(10.0.0.2)
Include parts-%c.conf
InteractiveStepOptions="--pty $SHELL -x a=b"
MailDomain=a\#b
NodeName=DEFAULT CPUs=8 RealMemory=100 \
   Feature=x
NodeName=n[1-2] NodeAddr=10.0.0.[1-2] Port=[7001-7002] Gres=gpu:2
NodeName=big Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 CPUs=16 Procs=16 state=cloud
NodeSet=fat Feature=x
PartitionName=DEFAULT MaxTime=60
PartitionName=p nodes=n1,n2 Shared=YES
PartitionName=q Nodes=fat MaxTime=30
"""


def test_a_file_means_what_slurmctld_reads() -> None:
    meaning = read_meaning({"slurm.conf": TEXT, "parts-c.conf": "KILLWAIT=40\n"}, cluster="c")
    assert {key: setting.value for key, setting in meaning.settings.items()} == {
        "clustername": "c",
        "killwait": "40",
        "slurmctldhost": "a,b(10.0.0.2)",
        "interactivestepoptions": "--pty $SHELL -x a=b",
        "maildomain": "a#b",
    }
    first, second, big = (meaning.nodes[name] for name in ("n1", "n2", "big"))
    assert first.shape is second.shape
    assert (first.address, first.port, second.address, second.port) == (
        "10.0.0.1",
        "7001",
        "10.0.0.2",
        "7002",
    )
    assert first.shape == {
        "cpus": "8",
        "realmemory": "100",
        "features": "x",
        "gres": "gpu:2",
        "boards": "1",
        "sockets": "8",
        "corespersocket": "1",
        "threadspercore": "1",
        "state": "",
    }
    assert (big.shape["sockets"], big.shape["cpus"], big.shape["state"]) == ("2", "16", "CLOUD")
    assert dict(meaning.partitions) == {
        "p": {"maxtime": "60", "nodes": "n1,n2", "oversubscribe": "YES"},
        "q": {"maxtime": "30", "nodes": "fat"},
    }
    assert meaning.node_sets == {"fat": {"features": "x"}}


def test_includes_are_named_and_missing_or_endless_ones_refused() -> None:
    assert included_paths("include a.conf\nInclude /etc/b.%c\n# Include c\n", "u") == ("a.conf", "/etc/b.u")
    with pytest.raises(HpctoolsError, match=r"a\.conf is included and does not exist"):
        list(parse_lines({"slurm.conf": "Include a.conf\n"}, "slurm.conf"))
    with pytest.raises(HpctoolsError, match="is included by itself"):
        list(parse_lines({"slurm.conf": "Include slurm.conf\n"}, "slurm.conf"))


def test_a_broken_host_list_is_no_traceback() -> None:
    with pytest.raises(HpctoolsError, match="is no host list"):
        read_meaning({"slurm.conf": "NodeName=n[1-\n"})
