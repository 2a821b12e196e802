"""What a change meets outside of itself: full and read-only disks, a dead munge, a slurmctld that hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.conf.apply import slurm_daemons
from hpctools.conf.apply.fileset import StoredFile
from hpctools.conf.apply.generations import Generations
from hpctools.conf.apply.history import ROOM
from hpctools.conf.apply.slurm_daemons import SlurmDaemons
from hpctools.conf.bundle import Bundle
from hpctools.conf.plan.model import Need, Step
from hpctools.errors import ApplyError, CommandError, HpctoolsError, UnreachableError
from hpctools.site.daemons import DaemonCommands
from hpctools.slurm.run import run
from tests.conf.apply.stand_in import StandIn, bundle, refuse, texts


@pytest.fixture
def cluster(tmp_path: Path) -> StandIn:
    made = StandIn(tmp_path)
    made.start("old", "eva")
    return made


def said(cluster: StandIn, wanted: Bundle) -> str:
    """What an apply ends with; empty when it is done."""
    try:
        cluster.apply(wanted)
    except HpctoolsError as error:
        return str(error)
    return ""


@pytest.mark.system
@pytest.mark.parametrize(("kilobytes", "enough"), [*((size, False) for size in range(4, 53, 8)), (200, True)])
def test_a_full_disk_under_the_history_is_told_and_changes_nothing(
    kilobytes: int, enough: bool, cluster: StandIn
) -> None:
    """Nothing is done that cannot be remembered."""
    state = cluster.root / "state"
    state.mkdir()
    run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(state)], timeout=5)
    try:
        found = said(cluster, bundle("new", "eva", "tom"))
        assert ("No space left on device" in found) != enough
        assert cluster.files == cluster.loaded == texts(bundle("new" if enough else "old"))
        assert cluster.people == ({"eva", "tom"} if enough else {"eva"})
    finally:
        run(["umount", str(state)], timeout=5)
    cluster.apply(bundle("new", "eva", "tom"))
    assert cluster.files == cluster.loaded == texts(bundle("new"))


@pytest.mark.system
def test_a_folder_that_became_read_only_is_as_before_and_nothing_else_is_said(cluster: StandIn) -> None:
    cluster.apply(bundle("new", "eva"))
    etc = str(cluster.etc)
    run(["mount", "-o", "bind,ro", etc, etc], timeout=5)
    try:
        found = said(cluster, bundle("newer", "eva"))
    finally:
        run(["umount", etc], timeout=5)
    assert f"Read-only file system; check why the file system at {etc} is mounted read-only" in found
    assert (cluster.history.records()[-1].number, cluster.history.records()[-1].result) == (1, "applied")


def test_the_way_back_needs_no_room(tmp_path: Path) -> None:
    """It is a rename of a link that was made before: neither a block nor an inode."""
    store = Generations(tmp_path)
    one = {"slurm.conf": StoredFile("slurm.conf", b"# one\n", 0o644, (0, 0))}
    first, second = store.stage(one), store.stage(one)
    store.switch(first)
    store.hold()
    store.switch(second)
    links = {path.lstat().st_ino for path in store.store.iterdir() if path.is_symlink()}
    store.switch(first)
    assert store.current == first
    assert {path.lstat().st_ino for path in store.store.iterdir() if path.is_symlink()} < links
    store.hold()
    store.tidy(keep=())
    assert sorted(path.name for path in store.store.iterdir()) == [str(first), "current"]


def test_the_last_words_have_room_kept_for_them_until_they_are_said(cluster: StandIn) -> None:
    history = cluster.history
    kept: list[bool] = []
    cluster.at = lambda what: kept.append((history.folder / "1" / ROOM).exists())
    cluster.apply(bundle("new", "eva"))
    cluster.at = refuse("add tom")
    with pytest.raises(ApplyError, match="everything is as before"):
        cluster.apply(bundle("newer", "eva", "tom"))
    assert kept == [False, True]  # preflight, reconfigure
    assert list(history.folder.rglob(ROOM)) == []


def test_without_munge_nothing_is_tried(cluster: StandIn) -> None:
    cluster.mute = "munge does not work on this host"
    with pytest.raises(UnreachableError, match="munge does not work on this host"):
        cluster.apply(bundle("new", "tom"))
    assert cluster.seen == []
    assert cluster.history.last() is None


def test_a_slurmctld_that_hangs_does_not_keep_the_old_files_from_coming_back(
    cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = cluster.controller_answers

    def hanging() -> bool:
        if "reconfigure" in cluster.seen:
            raise CommandError("scontrol ping did not end within 15 s", argv=["scontrol"], code=None)
        return answers()

    cluster.poison = "new"
    monkeypatch.setattr(cluster, "controller_answers", hanging)
    cluster.needs = Need.RECONFIGURE
    with pytest.raises(ApplyError, match="stumbles over 'new'; everything is as before"):
        cluster.apply(bundle("new"))
    assert cluster.files == cluster.loaded == texts(bundle("old"))
    assert cluster.seen[-1] == Need.RESTART_SLURMCTLD.value


def nobody(line: str) -> None:
    raise BrokenPipeError(32, "Broken pipe", line)


def test_that_nobody_listens_any_more_changes_nothing(cluster: StandIn) -> None:
    """`hpctools apply 2>&1 | head -1`."""
    cluster.apply(bundle("new", "eva", "tom"), tell=nobody)
    assert cluster.files == cluster.loaded == texts(bundle("new"))
    cluster.poison = "newer"
    with pytest.raises(ApplyError, match="everything is as before"):
        cluster.apply(bundle("newer", "eva", "tom"), tell=nobody)
    assert cluster.files == cluster.loaded == texts(bundle("new"))
    assert [record.result for record in cluster.history.records()] == ["applied", "applied", "rolled back"]


def test_what_killed_applies_left_makes_room_first(cluster: StandIn) -> None:
    cluster.apply(bundle("new", "eva"))
    store = Generations(cluster.etc).store
    for name in ("77", "new-78"):
        (store / name).mkdir()
    there: list[set[str]] = []
    cluster.at = lambda what: there.append({path.name for path in store.iterdir()})
    cluster.apply(bundle("newer", "eva"))
    assert there[-1] & {"77", "new-78"} == set()  # while files are loaded, not only at the end


@pytest.mark.parametrize("text", ["", '{"format": 1', '{"format": 9}', "[]", None])
def test_a_damaged_history_is_told_with_its_file(text: str | None, cluster: StandIn) -> None:
    cluster.apply(bundle("new", "eva"))
    path = cluster.history.folder / "1/record.json"
    whole = path.read_text()
    path.unlink() if text is None else path.write_text(text)
    found = said(cluster, bundle("newer", "eva"))
    assert str(path) in found
    assert f"bring it back from a backup, or move {path.parent} away" in found
    path.write_text(whole)
    assert said(cluster, bundle("newer", "eva")) == ""


class Moved(StandIn):
    """A cluster whose configuration folder has another path now."""

    @property
    def etc(self) -> Path:
        return self.root / "opt-slurm"


def test_the_history_of_another_folder_is_refused_unless_it_has_moved(cluster: StandIn) -> None:
    """Else all files of the folder that it knows would look as if somebody had deleted them."""
    cluster.apply(bundle("new", "eva"))
    cluster.etc.rename(cluster.root / "opt-slurm")
    moved = Moved(cluster.root)
    found = said(moved, bundle("newer", "eva"))
    assert f"is the history of {cluster.root}/etc, not of {moved.etc}" in found
    assert moved.files == texts(bundle("new"))
    moved.apply(bundle("newer", "eva"), discard_edits=True)
    moved.apply(bundle("newest", "eva"))
    assert moved.files == moved.loaded == texts(bundle("newest"))


REFUSED = "n2 stays drained, since slurmctld refuses what its slurmd registers (INVAL)"


def refuses_n2_at_last(what: str, cluster: StandIn) -> None:
    if what.startswith("resume"):
        cluster.refused = {"n2": "gres/gpu count reported lower than configured (3 < 4)"}


def test_a_complete_change_says_which_nodes_stay_drained(cluster: StandIn) -> None:
    """It was not closed, and every later change failed where it began."""
    cluster.needs, told = Need.DRAIN, list[str]()
    cluster.at = lambda what: refuses_n2_at_last(what, cluster)
    cluster.apply(bundle("new"), tell=told.append)
    assert told[-1].startswith(REFUSED)
    assert "scontrol update nodename=n2 state=undrain" in told[-1]
    last = cluster.history.last()
    assert last is not None
    assert (last.result, last.drained) == ("applied", ())


def test_a_change_that_is_taken_back_says_which_nodes_stay_drained(cluster: StandIn) -> None:
    cluster.needs, cluster.jobs = Need.DRAIN, (7,)
    cluster.at = lambda what: refuses_n2_at_last(what, cluster)
    assert f"drained nodes: {REFUSED}" in said(cluster, bundle("new"))


def test_a_slurmctld_that_hangs_is_neither_up_nor_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not be restarted as if it had ended, and nobody shall guess which daemon did not answer."""
    (tmp_path / "scontrol").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(slurm_daemons, "_ASK_SECONDS", 0.2)
    with pytest.raises(UnreachableError, match="slurmctld is neither up nor down: scontrol ping"):
        SlurmDaemons(DaemonCommands(), 2).controller_answers()


def test_a_restart_has_the_time_in_which_systemd_kills_what_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a slurmctld of 24.11.5 that hangs: else the roll back from it would fail."""
    booted = 'date "+Slurmctld(primary) at c is UP%nBOOT_TIME = %Y-%m-%dT%H:%M:%S" -d "+1 min"'
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{booted}\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    daemons = SlurmDaemons(DaemonCommands(restart_slurmctld=("sleep", "0.5")), 2)
    monkeypatch.setattr(daemons, "_limit", 0.1)
    daemons.carry_out(Step(Need.RESTART_SLURMCTLD), lambda seconds: None)
    monkeypatch.setattr(slurm_daemons, "_STOP_SECONDS", 0.1)
    with pytest.raises(ApplyError, match=r"sleep 0\.5 did not end within 0\.2 s"):
        daemons.carry_out(Step(Need.RESTART_SLURMCTLD), lambda seconds: None)
