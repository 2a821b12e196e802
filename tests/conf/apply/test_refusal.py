"""What is refused or agreed to before anything is touched, among stand-ins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpctools.conf.apply import Prospect
from hpctools.conf.apply.refusal import refuse_stale
from hpctools.conf.apply.request import concerns
from hpctools.conf.plan.model import Change, DisturbedJob, Need, Plan, Step
from hpctools.errors import ApplyError
from tests.conf.apply.stand_in import StandIn, bundle, texts


def test_a_hand_edit_is_refused_with_its_diff(cluster: StandIn) -> None:
    cluster.apply(bundle("new"))
    path = cluster.etc / "slurm.conf"
    path.unlink()  # as sed -i and most editors do
    path.write_text("# slurm.conf\nnew\nMaxJobCount=5\nStoragePass=secret\n")
    with pytest.raises(ApplyError) as refused:
        cluster.apply(bundle("newer"))
    assert refused.value.message == (
        "slurm.conf changed since the last apply, by hand or by another program:\n"
        "--- a/slurm.conf\n+++ b/slurm.conf\n@@ -1,2 +1,4 @@\n # slurm.conf\n new\n+MaxJobCount=5\n"
        "+StoragePass=********"
    )
    assert "--discard-edits" in refused.value.remedy
    assert cluster.loaded == texts(bundle("new"))
    cluster.apply(bundle("newer"), discard_edits=True)
    assert cluster.files == cluster.loaded == texts(bundle("newer"))
    assert b"MaxJobCount" in cluster.history.files(2, "before")["slurm.conf"].content


def test_a_hand_edit_through_the_link_is_refused_too(cluster: StandIn) -> None:
    cluster.apply(bundle("new"))
    with (cluster.etc / "slurm.conf").open("a") as stream:
        stream.write("MaxJobCount=5\n")
    with pytest.raises(ApplyError, match=r"\+MaxJobCount=5"):
        cluster.apply(bundle("newer"))


def test_a_deleted_file_is_refused_and_comes_back(cluster: StandIn) -> None:
    """Other software on a head node was seen to delete slurm.conf."""
    cluster.apply(bundle("new"))
    (cluster.etc / "slurm.conf").unlink()
    with pytest.raises(ApplyError, match=r"\+\+\+ /dev/null"):
        cluster.apply(bundle("newer"))
    cluster.apply(bundle("newer"), discard_edits=True)
    assert cluster.files == texts(bundle("newer"))


def test_an_edit_that_the_site_file_now_makes_is_none(cluster: StandIn) -> None:
    cluster.apply(bundle("new"))
    (cluster.etc / "slurm.conf").write_text(texts(bundle("newer"))["slurm.conf"])
    cluster.apply(bundle("newer"))
    assert cluster.files == cluster.loaded == texts(bundle("newer"))


def test_a_plan_that_no_longer_fits_is_refused(cluster: StandIn) -> None:
    agreed = cluster.plan(bundle("new", "eva", "tom"))
    cluster._people({"eva", "tom", "zoe"})
    with pytest.raises(ApplyError, match=r"changed since the plan was made:\n  no longer: association tom"):
        cluster.apply(bundle("new", "eva", "tom"), expected=agreed)
    assert cluster.files == texts(bundle("old"))
    cluster.apply(bundle("new", "eva", "tom"), expected=cluster.plan(bundle("new", "eva", "tom")))
    assert cluster.files == texts(bundle("new"))


def test_jobs_may_come_and_go_between_plan_and_apply_but_none_more_may_be_disturbed() -> None:
    ends = DisturbedJob(5, "eva", "lab", "RUNNING", "n1", "the partition goes")
    other = replace(ends, id=6, user="tom")
    later = replace(other, id=7, waits=True)
    change = Change("partition", "lab", "", "n1", None, Need.RECONFIGURE, "1 job must end first", jobs=(5,))
    agreed = Plan("c", "22.05.8", "/etc/slurm", (change,), jobs=(ends,))
    fewer = replace(agreed, jobs=(), changes=(replace(change, jobs=(), effect=""),))
    refuse_stale(agreed, fewer)
    refuse_stale(agreed, replace(agreed, jobs=(ends, later)))
    both = replace(agreed, jobs=(ends, other), changes=(replace(change, jobs=(5, 6), effect="2 jobs"),))
    with pytest.raises(
        ApplyError,
        match=r"since the plan was made:\n  new: job 6 of tom is disturbed: the partition goes; look",
    ):
        refuse_stale(agreed, both)
    with pytest.raises(ApplyError, match="new: job 7 of tom is disturbed"):
        refuse_stale(
            replace(agreed, jobs=(ends, later)), replace(agreed, jobs=(ends, replace(later, waits=False)))
        )
    with pytest.raises(ApplyError, match="no longer: partition lab n1"):
        refuse_stale(agreed, replace(agreed, changes=(replace(change, needs=Need.DRAIN),)))
    with pytest.raises(ApplyError, match="changed since the plan was made; look"):
        refuse_stale(agreed, replace(agreed, digest="another"))


def test_what_does_not_boot_changes_nothing(cluster: StandIn) -> None:
    cluster.problems = ("fatal: duplicate partition",)
    with pytest.raises(ApplyError, match="does not boot; nothing has changed:\n  fatal: duplicate partition"):
        cluster.apply(bundle("new", "tom"))
    assert (cluster.files, cluster.people) == (texts(bundle("old")), {"eva"})
    assert cluster.history.last() is None


def test_who_does_not_agree_has_changed_nothing(cluster: StandIn) -> None:
    cluster.needs = Need.RESTART_SLURMDS

    def no(prospect: Prospect) -> None:
        assert prospect.steps == (Step(Need.RESTART_SLURMDS, ("n1", "n2")),)
        assert prospect.concerns == (
            "slurmd is restarted on 2 nodes; jobs go on",
            "cgroup.conf, slurm.conf, slurmdbd.conf were written by hand; "
            "they are kept as change 0 and replaced",
        )
        raise ApplyError("not agreed")

    with pytest.raises(ApplyError, match="not agreed"):
        cluster.apply(bundle("new", "tom"), no)
    assert (cluster.files, cluster.people) == (texts(bundle("old")), {"eva"})
    assert cluster.history.last() is None


def test_jobs_that_a_boot_loses_and_the_plan_does_not_name_are_agreed_to_first(cluster: StandIn) -> None:
    """A plan knows the rules that it names; slurmctld, given the live jobs, knows all of them."""
    cluster.lost = (5, 6, 7, 8, 9, 10)
    seen: list[str] = []
    unforeseen: list[int] = []

    def no(prospect: Prospect) -> None:
        seen.extend(prospect.concerns)
        unforeseen.extend(prospect.unforeseen)
        raise ApplyError("not agreed")

    with pytest.raises(ApplyError, match="not agreed"):
        cluster.apply(bundle("new"), no)
    assert unforeseen == [5, 6, 7, 8, 9, 10]
    assert seen[0] == "slurmctld would lose jobs that the plan does not name: 5, 6, 7, 8, 9 and 1 more"
    assert cluster.files == texts(bundle("old"))


def test_lost_jobs_that_the_plan_names_are_told_once() -> None:
    named = DisturbedJob(5, "eva", "lab", "RUNNING", "n1", "the partition goes")
    plan = Plan("c", "22.05.8", "/etc/slurm", (), jobs=(named,))
    assert concerns(plan, (), (), lost=(5,)) == ("jobs are disturbed: 1",)
    # Who only waits longer is not asked about, and is not meant by what is lost.
    waiting = replace(plan, jobs=(replace(named, state="PENDING", waits=True),))
    assert concerns(waiting, (), ()) == ()
    told = "slurmctld would lose jobs that the plan does not name: 5"
    assert concerns(waiting, (), (), lost=(5,)) == (told,)
