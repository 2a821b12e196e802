"""What keeps every agent from coordinating is said: at once, and when nobody was found in time."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hpctools.elastic import agent_line
from hpctools.elastic.agent_line import AgentLine
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.succession import Succession
from hpctools.errors import ElasticError

SPEC = RunSpec("t-1", "t", "nlp1", "", 2, 2, 1, ("true",), "/", (), "/r.sh", "now")
LIMIT = 20.0


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", SPEC)


def fails(number: int) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize(
    ("number", "words", "remedy"),
    [
        (errno.EDQUOT, "Disk quota exceeded", "free space or quota there"),
        (errno.EPERM, "Operation not permitted; its file system has no hard links", "NFS, Lustre, GPFS"),
        (errno.EOPNOTSUPP, "its file system has no hard links", "set HPCTOOLS_RUNS to a folder on one"),
    ],
)
def test_why_nobody_could_coordinate_is_said_at_once_and_at_the_end(
    number: int,
    words: str,
    remedy: str,
    folder: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(agent_line, "FIND_SECONDS", 0.5)
    monkeypatch.setattr(agent_line, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(Path, "hardlink_to", fails(number))
    heirs = Succession(folder, "b0", lambda term: pytest.fail("it has no term"), is_first=True)
    line = AgentLine(folder, "t-1", heirs, dict, lambda message: None)
    with pytest.raises(
        ElasticError, match=r"no coordinator of run t-1 in 0\.5 s: cannot (write|link) "
    ) as end:
        asyncio.run(asyncio.wait_for(line.keep(), LIMIT))
    assert words in end.value.message
    assert remedy in end.value.remedy
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("elastic: cannot look who coordinates the run, or coordinate it: cannot ")
    assert words in said
    assert list((folder.path / "terms").iterdir()) == []


def test_what_is_over_is_not_said_at_the_end(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.claim_term(1, agent="b0")
    heirs = Succession(folder, "b1", lambda term: pytest.fail("not yet"), is_first=False)
    with monkeypatch.context() as broken:
        broken.setattr(folder, "current_term", lambda: (_ for _ in ()).throw(ElasticError("gone", "wait")))
        heirs.unreached(0.0, published=1)
        assert heirs.problem is not None
    heirs.unreached(0.1, published=1)
    assert heirs.problem is None
