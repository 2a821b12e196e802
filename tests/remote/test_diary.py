"""What a laptop notes of its submissions."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from hpctools.errors import RemoteError
from hpctools.remote import diary

ONE, TWO, THREE = (f"{name}-0123456789ab" for name in ("one", "two", "three"))


def test_a_line_that_was_cut_off_takes_no_other_with_it(tmp_path: Path) -> None:
    """A full disk cut the second one: the next submission was known to nobody."""
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    for name in (ONE, TWO):
        diary.note(environment, name, "uni")
    path = diary.place(environment)
    path.write_text(path.read_text()[:-30])
    diary.note(environment, THREE, "uni")
    known = {name: diary.cluster_of(environment, name) for name in (ONE, TWO, THREE)}
    assert known == {ONE: "uni", TWO: "", THREE: "uni"}
    assert "\n\n" not in path.read_text()


def test_where_it_cannot_be_written_it_is_said_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "hpctools/submissions.jsonl").mkdir(parents=True)
    with pytest.raises(RemoteError, match=r"Is a directory; nothing was submitted; .* XDG_STATE_HOME"):
        diary.note({"XDG_STATE_HOME": str(tmp_path)}, ONE, "uni")


def test_what_was_never_sent_to_its_end_is_nowhere(tmp_path: Path) -> None:
    """Else the cluster is told how long ago it may have been submitted, where that is known."""
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    assert diary.earlier(environment, ONE) == diary.Earlier(True), "another laptop may have sent it"
    diary.note(environment, ONE, "uni")
    diary.note(environment, TWO, "uni", whole=True)
    assert diary.earlier(environment, ONE) == diary.NEVER
    diary.note(environment, ONE, "uni", whole=True)
    said = diary.earlier(environment, ONE)
    assert said.again
    assert said.since == pytest.approx(time.time(), abs=600)
    older = {"id": THREE, "cluster": "uni", "time": "2026-01-01T00:00:00+00:00"}
    with diary.place(environment).open("a") as file:
        file.write(json.dumps(older) + "\n")
    begun = datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp()
    assert diary.earlier(environment, THREE) == diary.Earlier(True, begun), "older releases noted no end"


def test_what_was_not_submitted_as_the_cluster_says_is_nowhere(tmp_path: Path) -> None:
    """But for what another command with that id has sent, or the same one since."""
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    for what in ("whole", "unmade"):
        diary.note(environment, ONE, "uni", "a", **{what: True})
    assert diary.earlier(environment, ONE) == diary.NEVER
    diary.note(environment, ONE, "uni", "a", whole=True)
    diary.note(environment, ONE, "uni", "b", unmade=True)
    assert diary.earlier(environment, ONE).again
