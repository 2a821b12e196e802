"""What a training begins from: the newest whole checkpoint of its own place, or of the one it was told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from checkpoint_rig import SAMPLING, Training, assert_is_of, write

sys.path.append(str(Path(__file__).parents[1] / "sharded"))

from shard_parts import RankOfOne

from hpctools.elastic.checkpoint.settings import Checkpoint
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError


def test_begins_from_its_own_place_and_else_from_another(tmp_path: Path) -> None:
    write(tmp_path / "old", 100)
    settings = Checkpoint(every_seconds=0, resume_from=str(tmp_path / "old"))
    training = Training(tmp_path / "own", settings)
    assert_is_of(training.keeper.begin(), 100)
    assert training.desk.of("resumed") == [{"step": 100, "where": str(tmp_path / "old" / "step-000000100")}]
    write(tmp_path / "own", 7)
    assert_is_of(training.keeper.begin(), 7)
    assert Training(tmp_path / "none", Checkpoint()).keeper.begin() is None


@pytest.mark.parametrize(
    "source", ["{}/run/checkpoints/step-000000010/", "~/run", "{}/run/", "~/run/checkpoints/"]
)
def test_a_source_may_be_named_as_a_shell_would(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy file and a script name a run's folder in one's home, or one checkpoint with a slash behind."""
    monkeypatch.setenv("HOME", str(tmp_path))
    spec = RunSpec("train-1", "t", "u", "", 1, 4, 1, ("true",), "/", (), "/r", "now")
    write(RunFolder.create(tmp_path / "run", spec).path / "checkpoints", 10)
    training = Training(tmp_path / "own", Checkpoint(resume_from=source.format(tmp_path)))
    assert_is_of(training.keeper.begin(), 10)


def test_a_source_without_a_whole_checkpoint_is_no_beginning(tmp_path: Path) -> None:
    """Who says what to go on from does not want step 0: nothing there, only damaged ones, or unreadable."""
    write(tmp_path / "torn", 3)
    (tmp_path / "torn" / "step-000000003" / "COMMITTED").unlink()
    for source in (tmp_path / "nothing", tmp_path / "torn"):
        training = Training(tmp_path / "own", Checkpoint(resume_from=str(source)))
        with pytest.raises(ElasticError) as caught:
            training.keeper.begin()
        assert str(caught.value) == (
            f"the training should begin from a checkpoint in {source}, and there is no whole one; name a run "
            "that has saved one (hp-submit --resume, checkpoint: resumeFrom), or none"
        )
    (warning,) = training.desk.of("warning")
    assert warning["message"].startswith(
        f"checkpoint {tmp_path}/torn/step-000000003 is not used: it was never"
    )
    with pytest.raises(ElasticError, match=r"cannot read .*/xxx.*name too long"):
        Training("", Checkpoint(resume_from=str(tmp_path / ("x" * 300)))).keeper.begin()


def test_a_damaged_one_is_said_and_the_one_before_it_used(tmp_path: Path) -> None:
    write(tmp_path, 10, 20)
    data = tmp_path / "step-000000020" / "__0_0.distcp"
    data.write_bytes(data.read_bytes()[:-7] + b"damaged")
    training = Training(tmp_path, Checkpoint())
    assert_is_of(training.keeper.begin(), 10)
    assert training.desk.of("warning")[0]["message"] == (
        f"checkpoint {tmp_path}/step-000000020 is not used: "
        "__0_0.distcp has another checksum than when it was written"
    )


def test_another_training_s_checkpoint_is_said(tmp_path: Path) -> None:
    first = Training(tmp_path, Checkpoint(every_seconds=0, every_steps=1))
    first.go_to(1)
    assert first.saved() == [1]
    training = Training(tmp_path, Checkpoint(), {**SAMPLING, "batch_size": 20})
    training.keeper.begin()
    assert training.desk.of("warning") == [
        {
            "message": "the checkpoint is of another training: batch_size was 10 and is 20; "
            "samples may be seen twice or not"
        }
    ]


def test_an_unreadable_place_is_no_reason_to_begin_from_the_beginning(tmp_path: Path) -> None:
    (tmp_path / "place").write_text("")
    with pytest.raises(ElasticError, match="cannot read the checkpoints"):
        Training(tmp_path / "place", Checkpoint()).keeper.begin()


def test_a_run_that_has_saved_does_not_begin_at_step_0_where_nothing_of_it_is_seen(tmp_path: Path) -> None:
    """The file system of its folder is not mounted on this node, and an empty folder looks like a new one."""
    training, rank = Training(tmp_path, Checkpoint()), RankOfOne(str(tmp_path))
    assert (training.keeper.begin(), rank.keeper.newest()) == (None, -1)
    training.desk.has_saved = rank.desk.has_saved = f"{tmp_path}/step-000000400"
    for begin in (training.keeper.begin, rank.keeper.newest):
        with pytest.raises(ElasticError, match=r"has saved .*/step-000000400, and there is no whole") as no:
            begin()
        assert "may not be mounted" in str(no.value)
    training.desk.has_saved = "/elsewhere/step-000000400"
    assert training.keeper.begin() is None, "that was the first of several trainings in one program"
    training.desk.has_saved = rank.desk.has_saved
    training.keeper.roll_back(3, 0)
    assert training.keeper.begin(0) is None, "the coordinator has said that all begin at the beginning"


def test_nor_where_it_began_before(tmp_path: Path) -> None:
    """It was resumed from another run, whose place can be seen."""
    write(tmp_path / "old", 100)
    settings = Checkpoint(resume_from=str(tmp_path / "old"))
    training = Training(tmp_path / "own", settings)
    training.desk.has_saved = f"{tmp_path}/old/step-000000100"
    assert_is_of(training.keeper.begin(), 100)
    training.desk.has_saved = f"{tmp_path}/own/step-000000400"
    with pytest.raises(ElasticError, match=r"has saved .*/own/step-000000400, and there is no whole"):
        training.keeper.begin()
    assert len(training.desk.of("resumed")) == 1
