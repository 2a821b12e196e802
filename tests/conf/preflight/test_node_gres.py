"""Which slurmds a preflight asks, with what, and what their words come to."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hpctools.conf.preflight.expected import Expected
from hpctools.conf.preflight.judge import judge, unasked
from hpctools.conf.preflight.node_gres import DEVICES, MOST, tries
from hpctools.slurm.throwaway.seen import Booted
from tests.conf.preflight.deadly import GOOD, changed

MERGE = "fatal: failed to merge SHARED and SHARING configuration"


def asked(files: Mapping[str, str]) -> dict[str, str]:
    """The nodes that are asked, each for all that are like it, and their gres.conf."""
    return {f"{each.node} for {each.nodes}": each.gres for each in tries(files, "/etc/slurm")[0]}


def test_one_node_of_each_kind_is_asked_with_its_own_records() -> None:
    found, silent = tries(GOOD, "/etc/slurm")
    a, b = found
    assert silent == ()
    assert (a.node, a.nodes) == ("a-1", "a-[1-4]")
    assert a.gres == f"autodetect=off\nname=gpu type=a100 file={DEVICES}/dev/nvidia[0-1]\n"
    assert a.devices == (f"{DEVICES}/dev/nvidia0", f"{DEVICES}/dev/nvidia1")
    assert "NodeName=a-1 NodeAddr=127.0.0.1 cpus=8 realmemory=1000 gres=gpu:a100:2\n" in a.conf
    assert "AuthType=auth/munge\nSlurmUser=slurm\nGresTypes=gpu,shard\n" in a.conf
    assert b.gres == f"autodetect=off\nname=gpu type=a10g file={DEVICES}/dev/nvidia0\nname=shard count=4\n"


def test_nodes_that_differ_in_their_records_are_asked_each() -> None:
    lines = "NodeName=a-[1-2] Name=gpu Type=a100 File=/dev/x0,/dev/y[1-2]\nNodeName=a-[3-4] Name=gpu Count=2"
    files = changed("gres.conf", "NodeName=a-[1-4] Name=gpu Type=a100 File=/dev/nvidia[0-1]", lines)
    found = asked(files)
    assert list(found) == ["a-1 for a-[1-2]", "a-3 for a-[3-4]", "b-1 for b-1"]
    assert found["a-1 for a-[1-2]"].endswith(f"file={DEVICES}/dev/x0,{DEVICES}/dev/y[1-2]\n")


def test_a_line_of_defaults_counts_and_nodes_without_resources_are_not_asked() -> None:
    nodes = "NodeName=DEFAULT Gres=gpu:1\nNodeName=a-[1-4] CPUs=8\nNodeName=b-1 Gres=gpu:2\n"
    files = {**GOOD, "nodes.conf": nodes}
    assert list(asked(files)) == ["a-1 for a-[1-4]", "b-1 for b-1"]
    assert asked({**GOOD, "nodes.conf": "NodeName=a-[1-4] CPUs=8\nNodeName=b-1 CPUs=8\n"}) == {}


def test_who_detects_its_gpus_is_not_asked_and_that_is_said() -> None:
    files = changed(
        "gres.conf",
        "NodeName=a-[1-4] Name=gpu Type=a100 File=/dev/nvidia[0-1]",
        "NodeName=a-[1-4] AutoDetect=nvml",
    )
    found, silent = tries(files, "/etc/slurm")
    assert [each.node for each in found] == ["b-1"]
    assert silent == ("gres.conf as slurmds read it, of a-[1-4]: only they detect their GPUs",)


def test_so_many_kinds_are_not_all_asked() -> None:
    nodes = "".join(f"NodeName=n-{number} Gres=gpu:{number}\n" for number in range(1, MOST + 3))
    found, silent = tries({**GOOD, "nodes.conf": nodes}, "/etc/slurm")
    assert len(found) == MOST
    why = f"not more than {MOST} kinds of nodes are asked"
    assert silent == (f"gres.conf as slurmds read it, of n-[{MOST + 1}-{MOST + 2}]: {why}",)


@pytest.mark.parametrize(
    "line", [f"slurmd: {MERGE}", f"slurmd-b-1: {MERGE}", f"[2026-11-22T05:49:14.356] {MERGE}"]
)
def test_what_a_slurmd_ended_with_is_a_problem_of_its_nodes(line: str) -> None:
    """As 22.05.8 with and without -N, and 26.05.5, write it."""
    seen = Booted("", (), up=True, code=None, slurmds={"b-[1-4]": ("error: before", line)})
    (found,) = judge(Expected(), seen, "/etc/slurm", past=False)
    assert found.said == MERGE
    assert found.meaning.startswith("slurmd of b-[1-4]: its gres.conf has no record of the GPUs")
    assert unasked(seen) == ()


def test_words_that_nobody_knows_yet_are_told_as_they_are() -> None:
    line = f"slurmd: fatal: can't stat gres.conf file {DEVICES}/dev/nvidia9: No such file or directory"
    seen = Booted("", (), up=True, code=None, slurmds={"b-1": (line,)})
    (found,) = judge(Expected(), seen, "/etc/slurm", past=False)
    assert found.said == "fatal: can't stat gres.conf file /dev/nvidia9: No such file or directory"
    assert (found.meaning, found.remedy) == ("slurmd of b-1: it does not start with its gres.conf", "")


def test_a_slurmd_that_cannot_be_asked_is_no_fault_of_the_configuration() -> None:
    seen = Booted(
        "", (), up=True, code=None, slurmds={"b-1": ("slurmd: error: slurmd initialization failed",)}
    )
    assert judge(Expected(), seen, "/etc/slurm", past=False) == ()
    told = (
        "gres.conf as the slurmd of b-1 reads it: it could not be asked (error: slurmd initialization failed)"
    )
    assert unasked(seen) == (told,)
