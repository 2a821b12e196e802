"""What `hpctools rollback` goes back to after a change was killed: by the files that are in force."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from hpctools.conf.apply.recovery import closed_records
from hpctools.conf.apply.return_to import chosen, configuration
from hpctools.errors import ApplyError
from tests.conf.apply.killing import killed_at
from tests.conf.apply.stand_in import StandIn, bundle, texts

WORDS = ("zero", "one", "two", "three")


@pytest.fixture
def cluster(in_memory: Path) -> StandIn:
    """A cluster with the changes 0, 1 and 2."""
    made = StandIn(in_memory / "cluster")
    made.start("zero", "eva")
    made.apply(bundle("one", "eva"))
    made.apply(bundle("two", "eva"))
    return made


def three(cluster: StandIn) -> None:
    """Change 3, in which tom comes and eva goes."""
    cluster.apply(bundle("three", "tom"), prune=True)


def go_back(cluster: StandIn) -> int:
    """What `hpctools rollback` does; return the change whose configuration came back."""
    records = closed_records(cluster.history, cluster.etc)
    record = chosen(records, None)
    wanted = configuration(cluster.history, record, cluster.read)
    after = records[-1].number
    cluster.apply(wanted, kind="rollback", prune=True, back_to=record.number, after=after)
    return record.number


@pytest.mark.parametrize(
    ("where", "back"), [("preflight", 1), ("add tom", 1), ("reconfigure", 2), ("remove eva", 2)]
)
def test_a_killed_change_whose_files_are_in_force_is_the_one_to_go_back_from(
    where: str, back: int, cluster: StandIn
) -> None:
    """It went one change too far: from the files of 3 to those of 1."""

    def at(told: str) -> None:
        if told == where:
            os.kill(os.getpid(), signal.SIGKILL)

    cluster.at = at
    assert killed_at(sys.maxsize, lambda: three(cluster))
    cluster.at = lambda told: None
    assert go_back(cluster) == back
    assert cluster.files == cluster.loaded == texts(bundle(WORDS[back]))
    assert cluster.people == {"eva"}


@pytest.mark.slow
def test_killed_at_every_act_a_rollback_leads_to_what_is_behind_the_files_in_force(
    in_memory: Path, cluster: StandIn
) -> None:
    pristine = in_memory / "pristine"
    shutil.copytree(cluster.root, pristine, symlinks=True)
    for point in range(1, 1000):
        ended = not killed_at(point, lambda: three(cluster))
        back = 2 if cluster.files == texts(bundle("three")) else 1
        assert go_back(cluster) == back, f"killed at act {point}"
        assert cluster.files == cluster.loaded == texts(bundle(WORDS[back]))
        assert cluster.people == {"eva"}
        if ended:
            break
        shutil.rmtree(cluster.root)
        shutil.copytree(pristine, cluster.root, symlinks=True)
    assert ended
    assert point > 60


def test_a_rollback_that_another_change_has_overtaken_is_refused(cluster: StandIn) -> None:
    with pytest.raises(ApplyError, match=r"another change came in between \(change 2\); nothing has changed"):
        cluster.apply(bundle("zero", "eva"), kind="rollback", back_to=0, after=1)
    assert cluster.files == cluster.loaded == texts(bundle("two"))
    cluster.apply(bundle("zero", "eva"), kind="rollback", back_to=0, after=2)
    assert cluster.files == cluster.loaded == texts(bundle("zero"))
