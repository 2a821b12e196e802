"""The transaction among stand-ins: what is done in which order, and what is left of it when it fails."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hpctools.conf.apply import Cluster, Record, Request
from hpctools.conf.apply.interrupt import InterruptedChange
from hpctools.conf.apply.record import Phase
from hpctools.conf.apply.verification import verify_configuration
from hpctools.conf.plan.model import Need, Step
from hpctools.errors import ApplyError, CommandError, HpctoolsError, UnreachableError
from hpctools.site.gpus import Gpus
from tests.conf.apply.killing import killed_at
from tests.conf.apply.stand_in import ADA, NAMES, StandIn, bundle, refuse, texts


def newest(cluster: StandIn) -> Record:
    found = cluster.history.last()
    assert found is not None
    return found


def test_a_change_is_made_loaded_told_and_remembered(cluster: StandIn) -> None:
    outcome = cluster.apply(bundle("new", "eva", "tom"), documents={"site.yaml": "# site\n"})
    assert cluster.files == cluster.loaded == texts(bundle("new"))
    assert cluster.people == {"eva", "tom"}
    assert cluster.seen == ["preflight", "add eva", "add tom", "reconfigure", "add eva", "add tom"]
    assert outcome.record == newest(cluster)
    record = newest(cluster)
    assert (record.number, record.kind, record.result, record.in_force) == (1, "apply", "applied", "after")
    assert (record.who, record.host, record.source) == ("ada", "ctl-1", "10.0.0.7")
    assert (record.phase, record.owed, record.drained) == (Phase.DONE, (), ())
    found = cluster.history.files(0, "after")
    assert {name: file.content.decode() for name, file in found.items()} == texts(bundle("old"))
    assert cluster.history.document(1, "site.yaml") == "# site\n"
    assert cluster.history.document(1, "sacctmgr.dump") == "eva"
    assert [row.user for row in cluster.history.accounts(1, "before").associations] == ["eva"]
    assert [row.user for row in cluster.history.accounts(1, "after").associations] == ["eva", "tom"]


def test_the_history_is_for_root_alone(cluster: StandIn) -> None:
    cluster.apply(bundle("new"))
    modes = {
        path.relative_to(cluster.root): path.stat().st_mode & 0o77
        for path in (cluster.root / "state").rglob("*")
    }
    assert (cluster.root / "state").stat().st_mode & 0o777 == 0o700
    assert {path for path, mode in modes.items() if mode and path.name != "history"} == set()


def test_nothing_to_do_touches_nothing(cluster: StandIn) -> None:
    cluster.apply(bundle("new", "eva"))

    def look() -> dict[str, int]:
        places = [*(cluster.root / "etc").rglob("*"), *(cluster.root / "state/history").rglob("*")]
        return {str(path): path.lstat().st_mtime_ns for path in places}

    before, cluster.seen = look(), []
    outcome = cluster.apply(bundle("new", "eva"))
    assert outcome.record is None
    assert look() == before
    assert cluster.seen == []


def test_a_folder_that_is_right_already_is_not_taken_over(cluster: StandIn) -> None:
    assert cluster.apply(bundle("old", "eva")).record is None
    assert not (cluster.etc / ".hpctools").exists()


def test_a_file_that_says_the_same_in_other_words_is_left(cluster: StandIn) -> None:
    """Slurm compares hashes with comments, and slurmds that started since it was written have read it."""
    cluster.apply(bundle("new"))
    cluster.same = NAMES
    assert cluster.apply(bundle("new  # the same")).record is None
    cluster.same = ("cgroup.conf",)
    before = {name: (cluster.etc / name).stat().st_mtime_ns for name in NAMES}
    cluster.apply(bundle("newer"))
    assert cluster.files == {**texts(bundle("newer")), "cgroup.conf": texts(bundle("new"))["cgroup.conf"]}
    after = {name: (cluster.etc / name).stat().st_mtime_ns for name in NAMES}
    assert [name for name in NAMES if after[name] == before[name]] == ["cgroup.conf"]


def test_taking_over_a_folder_that_says_the_same_has_slurmctld_read_the_new_words(cluster: StandIn) -> None:
    cluster.same = NAMES
    cluster.apply(bundle("old  # in our words"))
    assert cluster.files == cluster.loaded == texts(bundle("old  # in our words"))
    assert cluster.seen == ["preflight", "reconfigure"]


def test_a_comment_that_somebody_wrote_is_thrown_away_when_asked_and_the_file_looks_as_old(
    cluster: StandIn,
) -> None:
    cluster.apply(bundle("new"))
    path, cluster.same = cluster.etc / "cgroup.conf", ("cgroup.conf",)
    path.write_text(path.read_text() + "# mine\n")
    with pytest.raises(ApplyError, match=r"cgroup\.conf changed since the last apply"):
        cluster.apply(bundle("new"))
    edited = path.stat().st_mtime_ns
    cluster.apply(bundle("new"), discard_edits=True)
    assert cluster.files == texts(bundle("new"))
    assert path.stat().st_mtime_ns == edited


def test_a_file_that_an_earlier_rendering_left_goes_and_comes_back(cluster: StandIn) -> None:
    (cluster.etc / "topology.conf").write_text("# Made by hpctools\n")
    cluster.going = ("topology.conf",)
    cluster.apply(bundle("new"))
    assert cluster.files == texts(bundle("new"))
    assert not (cluster.etc / "topology.conf").is_symlink()
    assert [*cluster.history.files(0, "after")] == sorted([*texts(bundle("old")), "topology.conf"])
    cluster.poison = "newer"
    (cluster.etc / "topology.conf").write_text("# Made by hpctools\n")
    with pytest.raises(ApplyError):
        cluster.apply(bundle("newer"))
    assert (cluster.etc / "topology.conf").read_text() == "# Made by hpctools\n"


def test_only_people_leave_the_files_alone(cluster: StandIn) -> None:
    cluster.apply(bundle("old", "eva", "tom"))
    assert cluster.people == {"eva", "tom"}
    assert cluster.seen == ["add eva", "add tom"] * 2
    assert not (cluster.etc / ".hpctools").exists()


def test_limits_that_take_a_reconfigure_are_told_before_it_and_the_last_ones_too(cluster: StandIn) -> None:
    cluster.apply(bundle("new"))
    cluster.seen.clear()
    cluster.passed_on = Need.RECONFIGURE
    cluster.apply(bundle("new", "tom"))
    assert cluster.seen == ["add tom", "reconfigure", "add tom", "reconfigure"]
    assert newest(cluster).owed == ()
    assert cluster.apply(bundle("new", "tom")).record is None


def test_what_the_site_no_longer_names_goes_only_when_asked_and_last(cluster: StandIn) -> None:
    cluster.apply(bundle("new", "tom"))
    assert cluster.people == {"eva", "tom"}
    cluster.seen = []
    cluster.apply(bundle("newer", "tom"), prune=True)
    assert cluster.people == {"tom"}
    assert cluster.seen == ["preflight", "add tom", "reconfigure", "add tom", "remove eva"]


def rolled_back(cluster: StandIn, reason: str) -> None:
    """All is as before, and the record says why."""
    assert cluster.files == cluster.loaded == texts(bundle("old"))
    assert cluster.people == {"eva"}
    record = newest(cluster)
    assert (record.result, record.in_force, record.owed) == ("rolled back", "before", ())
    assert reason in record.reason
    cluster.poison, cluster.forgets, cluster.refused, cluster.at = "", False, {}, lambda what: None
    cluster.apply(bundle("newest", "eva", "tom"))
    assert cluster.files == cluster.loaded == texts(bundle("newest"))


def test_a_failing_reconfigure_is_rolled_back(cluster: StandIn) -> None:
    cluster.poison = "new"
    with pytest.raises(ApplyError) as failed:
        cluster.apply(bundle("new", "eva", "tom"))
    assert failed.value.message == (
        "reconfigure failed: slurmctld stumbles over 'new'; "
        "everything is as before (change 1 was rolled back)"
    )
    assert cluster.seen == ["preflight", "add eva", "add tom", "reconfigure", "reconfigure", "restore"]
    rolled_back(cluster, "stumbles over 'new'")


def test_a_controller_that_dies_of_its_new_files_is_started_with_the_old(cluster: StandIn) -> None:
    """A bad reconfigure ends slurmctld 22.05."""
    cluster.poison, cluster.deadly = "new", True
    with pytest.raises(ApplyError, match="stumbles"):
        cluster.apply(bundle("new"))
    assert cluster.seen[-3:] == ["preflight", "reconfigure", "restart slurmctld"]
    rolled_back(cluster, "stumbles over 'new'")


def test_a_node_that_is_refused_afterwards_rolls_back(cluster: StandIn) -> None:
    def breaks(what: str) -> None:
        if what == "reconfigure" and cluster.files == texts(bundle("new")):
            cluster.refused = {"n1": "gres/gpu count reported lower than configured (3 < 4)"}

    cluster.at = breaks
    with pytest.raises(ApplyError, match=r"node n1 is refused: gres/gpu count reported lower"):
        cluster.apply(bundle("new"))
    rolled_back(cluster, "reported lower than configured")


def test_slurmctld_that_does_not_tell_of_refused_nodes_is_asked_again(
    cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is busy with what it has just loaded; that nobody knows is not that there are none."""
    silent = [CommandError("sinfo failed", argv=["sinfo"], code=1)]

    def sick() -> dict[str, str]:
        for error in list(silent):
            raise error
        return {"n1": "sick before"}

    monkeypatch.setattr(cluster, "sick", sick)
    asked = Request(bundle("old"), 1, "root", ADA, "hpctools apply"), Cluster(cluster, cluster, cluster)
    verify_configuration(*asked, {"n1"}, lambda seconds: silent.clear())
    silent.append(CommandError("sinfo failed", argv=["sinfo"], code=1))
    hasty = replace(asked[0], nodes=-1000)
    with pytest.raises(ApplyError, match="cannot tell which nodes are refused: sinfo failed"):
        verify_configuration(hasty, asked[1], {"n1"}, lambda seconds: None)


def test_why_a_node_lacks_gpus_is_explained_from_the_site(cluster: StandIn) -> None:
    cluster.at = lambda what: setattr(
        cluster, "refused", {"n1": "gpu:a100 count too low (3 < 4)"} if what == "reconfigure" else {}
    )
    gpus = {"n1": Gpus(type="a100", count=4)}
    with pytest.raises(
        ApplyError, match=r"n1 has 3 of the 4 GPUs .*: the site says gpu:a100:4; compare with"
    ):
        cluster.apply(bundle("new"), gpus=gpus)


def test_accounts_that_are_not_taken_roll_back(cluster: StandIn) -> None:
    cluster.forgets = True
    with pytest.raises(ApplyError, match="slurmdbd did not take: ghost"):
        cluster.apply(bundle("new", "eva", "tom"))
    rolled_back(cluster, "ghost")


@pytest.mark.parametrize("where", ["add tom", "reconfigure", "remove eva"])
def test_slurmdbd_or_slurmctld_that_fails_in_the_middle_is_rolled_back(where: str, cluster: StandIn) -> None:
    cluster.at = refuse(where)
    with pytest.raises(ApplyError, match=where):
        cluster.apply(bundle("new", "tom"), prune=True)
    if where == "reconfigure":  # it fails with the old files as well
        assert newest(cluster).result == "failed"
        assert newest(cluster).owed == (Step(Need.RECONFIGURE),)
        assert cluster.files == texts(bundle("old"))
    else:
        rolled_back(cluster, where)


def test_what_could_not_be_rolled_back_is_told_and_owed(cluster: StandIn) -> None:
    cluster.poison = "slurm.conf"  # stumbles over old and new
    with pytest.raises(ApplyError, match=r"rolling back failed as well:\n  reconfigure: .*stumbles"):
        cluster.apply(bundle("new"))
    assert (newest(cluster).result, newest(cluster).owed) == ("failed", (Step(Need.RECONFIGURE),))
    cluster.poison, cluster.seen = "", []
    # The site file is back to what there was: only what is owed is left to do.
    cluster.apply(bundle("old", "eva"))
    assert cluster.seen == ["reconfigure"]
    assert newest(cluster).owed == ()
    assert cluster.apply(bundle("old", "eva")).record is None


def test_nodes_that_must_be_free_are_drained_and_resumed(cluster: StandIn) -> None:
    cluster.needs = Need.DRAIN
    cluster.apply(bundle("new"))
    assert cluster.seen == [
        "preflight",
        "drain n1,n2",
        "restart slurmctld",
        "restart slurmds",
        "reconfigure",
        "resume n1,n2",
    ]


def test_nodes_that_still_have_jobs_are_not_taken_from_them(cluster: StandIn) -> None:
    cluster.needs, cluster.jobs = Need.DRAIN, (7, 9)
    with pytest.raises(
        ApplyError, match="jobs 7, 9 still hold nodes that must be free; everything is as before"
    ):
        cluster.apply(bundle("new"))
    assert cluster.seen == ["preflight", "drain n1,n2", "resume n1,n2"]
    assert cluster.files == cluster.loaded == texts(bundle("old"))


def test_the_first_start_of_a_controller_has_accounting_before_it(tmp_path: Path) -> None:
    """slurmctld that starts before slurmdbd knows the cluster ends with CLUSTER ID MISMATCH."""
    empty = StandIn(tmp_path)
    (tmp_path / "dbd-down").touch()
    empty.apply(bundle("new", "eva"))
    assert empty.seen == ["preflight", "restart slurmdbd", "bootstrap", "restart slurmctld", "add eva"]
    assert empty.files == empty.loaded == texts(bundle("new"))
    assert empty.people == {"eva"}


def test_a_first_start_that_fails_leaves_an_empty_folder(tmp_path: Path) -> None:
    empty = StandIn(tmp_path, poison="new")
    with pytest.raises(ApplyError, match="stumbles"):
        empty.apply(bundle("new", "eva"))
    assert empty.files == {}
    assert [path.name for path in empty.etc.iterdir()] == [".hpctools"]


def test_a_silent_slurmdbd_beside_a_live_controller_changes_nothing(cluster: StandIn) -> None:
    (cluster.root / "dbd-down").touch()
    plan = cluster.plan

    def partial(wanted: object, *, prune: bool = False) -> object:
        from dataclasses import replace

        return replace(plan(wanted, prune=prune), unknown=("accounts: slurmdbd does not answer",))

    cluster.plan = partial
    with pytest.raises(UnreachableError, match="slurmdbd does not answer"):
        cluster.apply(bundle("new"))
    assert cluster.files == texts(bundle("old"))


def test_the_history_of_another_cluster_is_refused(cluster: StandIn) -> None:
    from dataclasses import replace

    cluster.apply(bundle("new"))
    other = bundle("newer")
    other = replace(other, accounts=replace(other.accounts, clusters=("d",)))
    with pytest.raises(HpctoolsError, match="is the history of cluster 'c', not of 'd'"):
        cluster.apply(other)


def test_a_file_below_the_folder_and_an_unknown_account_are_refused(cluster: StandIn) -> None:
    with pytest.raises(HpctoolsError, match="would not stand in the configuration folder itself"):
        cluster.apply(bundle("new", names=["sub/slurm.conf"]))
    with pytest.raises(HpctoolsError, match="no Unix account 'nobody-here'"):
        cluster.apply(bundle("new"), slurm_user="nobody-here")


def interrupting(where: str, times: int = 1) -> Callable[[str], None]:
    def at(told: str) -> None:
        if told == where:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)

    return at


@pytest.mark.parametrize("where", ["add tom", "reconfigure", "remove eva"])
@pytest.mark.parametrize("times", [1, 3])
def test_ctrl_c_in_the_middle_rolls_back_when_the_step_has_ended(
    where: str, times: int, cluster: StandIn
) -> None:
    cluster.at = interrupting(where, times)
    with pytest.raises(InterruptedChange, match="interrupted; everything is as before") as stopped:
        cluster.apply(bundle("new", "tom"), prune=True)
    assert stopped.value.exit_code == 130
    rolled_back(cluster, "interrupted")


def test_ctrl_c_before_anything_has_changed_just_ends(cluster: StandIn) -> None:
    cluster.at = interrupting("preflight")
    with pytest.raises(KeyboardInterrupt):
        cluster.apply(bundle("new", "tom"))
    assert (cluster.files, cluster.people) == (texts(bundle("old")), {"eva"})
    assert cluster.history.last() is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
@pytest.mark.parametrize(("begin", "needs"), [("by hand", Need.RECONFIGURE), ("managed", Need.DRAIN)])
def test_killed_at_every_act_all_is_old_or_new_and_the_next_apply_completes(
    begin: str, needs: Need, in_memory: Path
) -> None:
    """Files are of one set, nobody is lost, and the next apply does what is left."""
    olds, news = texts(bundle("old")), texts(bundle("new"))
    for point in range(1, 1000):
        cluster = StandIn(in_memory / f"{point}", needs=needs)
        cluster.start("old", "eva", "zoe")
        if begin == "managed":
            cluster.start("oldest", "eva", "zoe")
            cluster.apply(bundle("old", "eva"))
        ended = not killed_at(point, lambda cluster=cluster: cluster.apply(bundle("new", "eva", "tom")))
        assert cluster.files in ([news] if ended else [olds, news]), f"killed at act {point}"
        assert {"eva", "zoe"} <= cluster.people
        done = cluster.files == cluster.loaded == news and "tom" in cluster.people
        cluster.apply(bundle("new", "eva", "tom"))
        assert cluster.files == cluster.loaded == news
        assert cluster.people == {"eva", "tom", "zoe"}
        assert all(record.result for record in cluster.history.records())
        last = newest(cluster)
        assert (last.result, last.owed) in (
            [("applied", ()), ("interrupted", ())] if done else [("applied", ())]
        )
        assert cluster.apply(bundle("new", "eva", "tom")).record is None
        if ended:
            break
    assert ended
    assert point > 60
