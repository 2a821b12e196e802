"""One change at a time, on this host and on others that share the configuration folder."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path

import pytest

from hpctools.conf.apply.generations import Generations
from hpctools.conf.apply.history import History
from hpctools.conf.apply.lock import LockedError, locked
from hpctools.conf.apply.request import Prospect
from hpctools.conf.apply.who import Who
from hpctools.errors import ApplyError, HpctoolsError
from tests.conf.apply.stand_in import ADA, StandIn, bundle, texts


@pytest.fixture
def cluster(tmp_path: Path) -> StandIn:
    made = StandIn(tmp_path)
    made.start("old", "eva")
    return made


class Elsewhere(StandIn):
    """The same cluster from another controller, whose history is its own."""

    @property
    def history(self) -> History:
        return History(self.root / "state-elsewhere")


def test_a_second_apply_is_told_who_holds_the_lock(cluster: StandIn) -> None:
    cluster.apply(bundle("new"))
    with (
        locked(cluster.history.lock, ADA, "hpctools rollback"),
        pytest.raises(
            LockedError,
            match=r"another change is under way: hpctools rollback by ada since .*\(pid \d+ on ctl-1\)",
        ),
    ):
        cluster.apply(bundle("newer"))
    cluster.apply(bundle("newer"))
    assert cluster.files == texts(bundle("newer"))


def test_a_holder_on_this_host_is_a_pid(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "lock", Who("ada", socket.gethostname()), "hpctools apply"),
        pytest.raises(LockedError, match=rf"\(pid {os.getpid()}\)"),
        locked(tmp_path / "lock", ADA, "hpctools apply"),
    ):
        raise AssertionError("two holders")


def test_another_host_that_shares_the_folder_is_kept_out(cluster: StandIn) -> None:
    cluster.apply(bundle("new"))
    before = sorted(str(path) for path in cluster.etc.rglob("*"))
    with locked(Generations(cluster.etc).lock(), ADA, "hpctools apply"):
        with pytest.raises(LockedError, match="another change is under way: hpctools apply by ada"):
            Elsewhere(cluster.root).apply(bundle("newer"), discard_edits=True)
        # Of two changes of people at once, one that fails would take the other's back.
        with pytest.raises(LockedError, match="another change is under way: hpctools apply by ada"):
            Elsewhere(cluster.root).apply(bundle("new", "tom"))
    assert sorted(str(path) for path in cluster.etc.rglob("*")) == before
    assert (cluster.files, cluster.people) == (texts(bundle("new")), {"eva"})
    Elsewhere(cluster.root).apply(bundle("new", "tom"))
    assert cluster.people == {"eva", "tom"}


def test_what_another_host_applied_meanwhile_is_not_overwritten(cluster: StandIn) -> None:
    cluster.apply(bundle("new"))

    def meanwhile(_: Prospect) -> None:
        Elsewhere(cluster.root).apply(bundle("theirs"))

    with pytest.raises(ApplyError, match=r"slurm\.conf, slurmdbd\.conf changed while .* another host"):
        cluster.apply(bundle("ours"), agree=meanwhile)
    assert cluster.files == cluster.loaded == texts(bundle("theirs"))
    assert [record.number for record in cluster.history.records()] == [0, 1]
    # From then on theirs is an edit that this history does not know.
    with pytest.raises(ApplyError, match="changed since the last apply"):
        cluster.apply(bundle("ours"))


def test_a_file_system_without_locks_is_refused(cluster: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lustre mounted without `flock` says ENOSYS; nobody else could be kept out."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(HpctoolsError, match=r"lock cannot be locked: .*; mount its file system with locks"):
        cluster.apply(bundle("new"))
    assert cluster.files == texts(bundle("old"))
