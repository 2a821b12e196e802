"""How long storage is asked for before the workers of a sharded training go on with what they have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checkpoint_rig import Unwell
from shard_parts import RankOfOne

from hpctools.elastic.checkpoint import reading
from hpctools.elastic.checkpoint.store import name_of
from hpctools.elastic.group import Group
from hpctools.elastic.sharded import moving
from hpctools.elastic.sharded.layout import Part, Survey, Version
from hpctools.elastic.sharded.moving import Source
from hpctools.elastic.sharded.shards import Shards
from hpctools.errors import ElasticError

TRIES, FEW = 5, 4
"""Of one who is patient, with the rig's pauses, and of one who is not."""
VERSION = Version(3, 1)


def survey(*, holds: bool) -> Survey:
    """Of one worker, which has all of step 3 or nothing, and knows of a checkpoint of step 7."""
    parts = {"weight": Part((4,), "float32", (0,), (4,))}
    nothing = Survey(known=7, looks=True)
    return replace(nothing, held=((VERSION, parts),), plain=(VERSION,)) if holds else nothing


@pytest.fixture
def unwell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unwell:
    """A place with a checkpoint of step 7, of which one file cannot be read; rank 0 is alone."""
    RankOfOne(str(tmp_path)).save_after(7)
    monkeypatch.setattr(
        moving, "share_newest", lambda group, surveys, newest: [replace(surveys[0], checkpoint=newest)]
    )
    return Unwell(monkeypatch)


def chosen(rank: RankOfOne, *, holds: bool) -> Source | None:
    setting: Any = SimpleNamespace(saved=rank.keeper, copy_steps=0)
    rest: Any = object()
    run: Any = lambda group, work: work()  # noqa: E731
    return Shards(setting, rest)._source(Group(0, 0, 1, None), [survey(holds=holds)], run)


@pytest.mark.parametrize("file", ["manifest.json", "shards-00000.bin"])
def test_where_workers_have_a_state_nobody_stands_still_for_storage_for_long(
    tmp_path: Path, unwell: Unwell, file: str
) -> None:
    """That it could not be read is told."""
    rank = RankOfOne(str(tmp_path))
    unwell.refuse(f"{name_of(7)}/{file}")
    source = chosen(rank, holds=True)
    assert source is not None
    assert (source.version, unwell.refused) == (VERSION, FEW)
    (warning,) = rank.desk.of("warning")
    assert "an older checkpoint is not used" not in warning["message"]
    assert warning["message"].endswith("; the training goes on with what its workers have")


@pytest.mark.parametrize("file", ["manifest.json", "shards-00000.bin"])
def test_for_one_error_of_storage_no_steps_are_done_again(tmp_path: Path, unwell: Unwell, file: str) -> None:
    rank = RankOfOne(str(tmp_path))
    unwell.refuse(f"{name_of(7)}/{file}", times=1)
    source = chosen(rank, holds=True)
    assert source is not None
    assert (source.version, source.checkpoint, unwell.refused) == (None, 7, 1)
    assert rank.desk.of("warning") == []


def test_the_pauses_of_who_has_something_older_are_less_than_two_seconds() -> None:
    assert 1.0 < sum(reading.PAUSES[: reading.BRIEF]) < 2.0 < sum(reading.PAUSES)


def test_where_they_have_a_state_a_later_one_that_can_be_read_counts(tmp_path: Path, unwell: Unwell) -> None:
    source = chosen(RankOfOne(str(tmp_path)), holds=True)
    assert source is not None
    assert (source.version, source.checkpoint, unwell.refused) == (None, 7, 0)


def test_where_they_have_none_storage_is_asked_for_some_seconds(tmp_path: Path, unwell: Unwell) -> None:
    unwell.refuse(f"{name_of(7)}/manifest.json", times=TRIES - 1)
    source = chosen(RankOfOne(str(tmp_path)), holds=False)
    assert source is not None
    assert (source.checkpoint, unwell.refused) == (7, TRIES - 1)
    unwell.refuse(f"{name_of(7)}/manifest.json")
    with pytest.raises(ElasticError, match=rf"manifest.json.* \({TRIES} times in 0 s\)"):
        chosen(RankOfOne(str(tmp_path)), holds=False)
    assert unwell.refused == TRIES
