"""What may be said about checkpoints, and what is answered to what makes no sense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.elastic.checkpoint import parse, place_of, settings_of
from hpctools.elastic.checkpoint.attach import keeper_of
from hpctools.elastic.checkpoint.settings import Checkpoint, to_json
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.session import LoneSession
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError

SPEC = RunSpec("t-1", "t", "u", "", 1, 4, 1, ("true",), "/", (), "/r", "now")


@given(
    st.builds(
        Checkpoint,
        folder=st.sampled_from(["", "/scratch/me", "s3://bucket/prefix", "relative"]),
        every_seconds=st.floats(0, 1e6),
        every_steps=st.integers(0, 1000),
        keep=st.integers(1, 10),
        resume_from=st.sampled_from(["", "/old/run", "s3://other/run"]),
        snapshots=st.integers(0, 4),
        snapshot_steps=st.integers(1, 100),
    )
)
def test_settings_survive_json(settings: Checkpoint) -> None:
    assert parse(to_json(settings)) == settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"interval": 5}, "checkpoint has no option 'interval'; it has folder, intervalInSeconds, interv"),
        ({"keep": 0}, r"checkpoint: keep \(keep\) is 0; it has to be 1 or more"),
        ({"keep": 1.5}, r"keep \(keep\) is 1.5"),
        ({"keep": True}, r"keep \(keep\) is True"),
        ({"intervalInSeconds": float("nan")}, r"intervalInSeconds \(every_seconds\) is nan; it has to be 0"),
        ({"intervalInSeconds": "5m"}, "is '5m'; it has to be 0 or more"),
        ({"intervalInSteps": -1}, r"intervalInSteps \(every_steps\) is -1"),
        ({"snapshotIntervalInSteps": 0}, "it has to be 1 or more"),
        ({"folder": "gs://bucket/x"}, "is 'gs://bucket/x'; it has to be a path, or s3://bucket/prefix"),
        ({"folder": "s3://"}, "it has to be a path, or s3://bucket/prefix"),
        ({"folder": Path("/x")}, r"is PosixPath\('/x'\); it has to be a text: a path, or s3"),
        ({"resumeFrom": 3}, r"resumeFrom \(resume_from\) is 3"),
    ],
)
def test_what_makes_no_sense_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ElasticError, match=message):
        parse(values)


def test_what_was_said_at_submit_comes_first(tmp_path: Path) -> None:
    """Field by field: the policy file, then the script, then the defaults."""
    spec = replace(SPEC, checkpoint={"intervalInSeconds": 60}, resumed_from="/runs/old")
    script = Checkpoint(folder="/scratch", every_seconds=5, keep=3)
    settings = settings_of(spec, script)
    assert settings == Checkpoint(folder="/scratch", every_seconds=60, keep=3, resume_from="/runs/old")
    folder = RunFolder(tmp_path / "run")
    assert place_of(folder, settings) == "/scratch"
    assert place_of(folder, settings_of(SPEC, None)) == str(tmp_path / "run" / "checkpoints")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A program is in a folder, and goes into another one when this is called."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    return lambda: monkeypatch.chdir(tmp_path / "elsewhere")


def test_a_relative_place_is_where_it_was_when_the_loader_was_made(
    tmp_path: Path, elsewhere: Callable[[], None]
) -> None:
    """A script's os.chdir took it along: what was saved before was not found, nor removed."""
    given = Checkpoint(folder="saved", resume_from="old")
    keeper: Any = keeper_of(None, LoneSession(), given, dict, dict)
    settings = settings_of(SPEC, given)
    elsewhere()
    assert keeper._store.where == str(tmp_path / "saved")
    places = keeper._settings, settings
    assert [(each.folder, each.resume_from) for each in places] == [
        (str(tmp_path / "saved"), str(tmp_path / "old"))
    ] * 2


def test_a_relative_place_of_the_policy_file_is_in_the_folder_of_the_command(
    tmp_path: Path, elsewhere: Callable[[], None]
) -> None:
    """Wherever a script is when it makes its loader, and whoever else asks: hp-submit --resume, say."""
    said = {"folder": "saved", "resumeFrom": "s3://bucket/old"}
    spec = replace(SPEC, workdir=str(tmp_path / "work"), checkpoint=said)
    elsewhere()
    settings = settings_of(spec, None)
    assert (settings.folder, settings.resume_from) == (str(tmp_path / "work" / "saved"), "s3://bucket/old")


def test_a_run_s_folder_stays_where_it_was(tmp_path: Path, elsewhere: Callable[[], None]) -> None:
    RunFolder.create(tmp_path / "run", SPEC)
    folder = RunFolder("run")
    elsewhere()
    assert folder.spec() == SPEC
