"""Whole clusters as they are found, and the site files that come of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hpctools.conf import compile, sync_commands
from hpctools.conf.existing.read import read_existing
from hpctools.conf.existing.site_file import Existing
from hpctools.conf.existing.taking_over import take_over
from hpctools.conf.facts import Facts
from hpctools.conf.plan.compare import make_plan
from hpctools.conf.plan.live import Live, OnDisk
from hpctools.site.load import loads

CLUSTERS = Path(__file__).parent / "clusters"
FACTS = Facts(cgroup="v1")


def existing(name: str) -> Existing:
    folder = CLUSTERS / name

    def ask(argv: object) -> str:
        raise AssertionError(f"asked {argv}")

    return read_existing(
        folder, dump=folder / "sacctmgr-dump.txt", qos=folder / "qos.txt", ask=ask, release=(22, 5, 8)
    )


@pytest.mark.parametrize("name", ["cloud", "physics"])
def test_the_site_file(name: str, golden: Callable[[Path, str], None]) -> None:
    taken = take_over(existing(name), FACTS, f"Taken over from the cluster {name}.")
    left_out = "".join(f"# left out: {each}\n" for each in taken.left_out)
    golden(CLUSTERS / name / "expected-site.yaml", taken.text + left_out)


@pytest.mark.parametrize("name", ["cloud", "physics"])
def test_its_plan_is_empty(name: str) -> None:
    there = existing(name)
    taken = take_over(there, FACTS, "")
    bundle = compile(loads(taken.text), taken.facts)
    assert sync_commands(bundle.accounts, there.accounts) == ()
    live = Live(OnDisk(there.files), None, there.accounts, (), (22, 5, 8))
    changes = make_plan(bundle, live, folder=Path("/etc/slurm")).changes
    assert [(c.area, c.subject, c.key, c.before, c.after) for c in changes] == []


def test_a_topology_yaml_is_left_as_it_is_and_that_is_said() -> None:
    there = existing("physics")
    told = "topology.yaml: it goes on to say which nodes are close to each other"
    there = replace(there, files={**there.files, "topology.yaml": "- topology: flat\n"})
    assert told not in take_over(there, FACTS, "").left_out
    assert told in take_over(replace(there, release=(26, 5, 5)), FACTS, "").left_out
