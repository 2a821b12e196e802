"""`hpctools drift` on a real cluster: it compares with what is in force, not with today's site file."""

import pytest

from hpctools.sandbox.reconfigure import reconfigure
from tests.system.applied import Applied, shorter, with_member

pytestmark = pytest.mark.releases


def drift(box: Applied) -> tuple[int, str, str]:
    done = box.hpctools("drift", check=False)
    return done.code, done.stdout, done.stderr


@pytest.mark.slow
def test_after_a_rollback_drift_compares_with_what_came_back(box: Applied) -> None:
    box.apply(shorter(with_member(box.base)), "--yes")
    first = str(box.history()[-1]["number"])
    assert drift(box) == (0, "", "")
    box.apply(shorter(with_member(box.base), 40), "--yes")
    box.hpctools("rollback", first, "--yes")
    assert (box.max_time(), drift(box)) == ("1-12:00:00", (0, "", ""))
    line = "partition nlp: MaxTime is 01:00:00, not 1-12:00:00 (reconfigure)\n"
    box.cluster.inside("scontrol", "update", "partition=nlp", "MaxTime=60")
    assert drift(box) == (1, line, "")
    reconfigure(box.cluster.sandbox)
    box.cluster.inside("sacctmgr", "-i", "delete", "user", "where", "name=nlp9", "account=nlp-lab-a")
    told = "association nlp9 in nlp-lab-a: missing: Fairshare=1, GrpTRES=gres/gpu=48 (live)\n"
    assert drift(box) == (1, told, "")


def test_after_a_rollback_to_what_was_found_the_sites_since_then_do_not_count(box: Applied) -> None:
    box.apply(shorter(box.base), "--yes")
    box.hpctools("rollback", "0", "--yes")
    assert (box.max_time(), drift(box)) == ("2-00:00:00", (0, "", ""))
    box.cluster.inside("scontrol", "update", "partition=nlp", "State=DOWN")
    assert drift(box) == (1, "partition nlp: State is DOWN, not UP (reconfigure)\n", "")
    reconfigure(box.cluster.sandbox)
    # The site file of the first apply, which is gone again, still can be named.
    wanted = box.hpctools("drift", box.give("site.yaml", shorter(box.base)), check=False)
    assert (wanted.code, wanted.stdout.partition(":")[0]) == (1, "partition nlp")
