"""hp-status and hp-cancel on a laptop: on which cluster it is done."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

from hpctools.cli import elsewhere, hp_cancel, hp_status
from hpctools.cli.remote_cluster import take_cluster
from hpctools.remote import diary

ONE, TWO, NEW = (f"{name}-0123456789ab" for name in ("one", "two", "new"))


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A laptop from which something was submitted to two clusters; those that were asked."""
    for name in ("HPCTOOLS_RUNS", "HPCTOOLS_SUBMISSIONS", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, cluster in ((ONE, "uni"), (TWO, "centre")):
        diary.note(os.environ, name, cluster)
    found: list[str] = []
    monkeypatch.setattr(elsewhere, "_done_at", lambda cluster, *_: found.append(cluster) or 0)
    return found


def cancel(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["hp-cancel", *words])
    return hp_cancel.main()


@pytest.mark.parametrize(
    ("other", "where"), [(TWO, "to centre"), (NEW, "nobody knows where"), ("4711", "nobody knows where")]
)
def test_what_went_to_several_clusters_is_told(
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    other: str,
    where: str,
) -> None:
    """It was looked for here: there is no such run, it said, of one that trains."""
    assert (cancel(ONE, other, monkeypatch=monkeypatch), asked) == (2, [])
    assert capsys.readouterr().err == (
        f"hp-cancel: not all went to one cluster: {ONE} to uni, {other} {where}; "
        "name those of one: --cluster NAME\n"
    )
    assert (cancel(ONE, monkeypatch=monkeypatch), asked) == (0, ["uni"])


def test_what_is_done_on_a_login_node_only_is_said_first(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["hp-status", "--plot", "run.svg", ONE])
    assert (hp_status.main(), asked) == (2, [])
    assert "draw it on a login node" in capsys.readouterr().err


@pytest.mark.parametrize(("word", "option"), [("--wat", "--watch"), ("--plo=run.svg", "--plot")])
def test_so_is_what_is_cut_short(
    asked: list[str], capsys: pytest.CaptureFixture[str], word: str, option: str
) -> None:
    """A watch there shows nothing here before the run has ended; a plot would lie there."""
    assert (hp_status.main(["--cluster", "uni", word, ONE]), asked) == (2, [])
    assert f"{option} does not work with --cluster" in capsys.readouterr().err


@pytest.mark.parametrize("program", [hp_cancel, hp_status])
def test_a_cluster_that_is_cut_short_is_not_here(
    program: ModuleType, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`hp-status --clus uni` said that there are no runs."""
    assert (program.main(["--clus", "uni", ONE]), asked) == (2, [])
    assert "write all of it: --cluster uni" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--cluster", "uni", "--cluster=centre"], ["--cluster=uni", "--cluster", "centre"]]
)
def test_of_two_clusters_the_last_is_asked_and_the_first_asks_nobody(words: list[str]) -> None:
    """An alias names one: the login node of that one logged in at the other, or tried to."""
    assert take_cluster([*words, ONE]) == ("centre", [ONE])
    assert take_cluster([*words, "--", "--cluster"]) == ("centre", ["--", "--cluster"])
