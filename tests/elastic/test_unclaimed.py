"""What keeps every agent from coordinating is said: at once, and when nobody was found in time."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
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


def test_a_node_whose_name_leads_to_an_address_of_another_claims_no_term_and_says_why(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with a floating address: its coordinator ended with a traceback, and the next term was claimed."""
    monkeypatch.setattr(agent_line, "FIND_SECONDS", 0.5)
    monkeypatch.setattr(agent_line, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(socket, "gethostname", lambda: "n1")
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "192.0.2.1")  # nobody's (RFC 5737)
    heirs = Succession(folder, "b0", lambda term: pytest.fail("it has no term"), is_first=True)
    line = AgentLine(folder, "t-1", heirs, dict, lambda message: None)
    with pytest.raises(ElasticError) as end:
        asyncio.run(asyncio.wait_for(line.keep(), LIMIT))
    words = "this node, n1, cannot listen at 192.0.2.1, to which its own name resolves: Cannot assign"
    assert words in end.value.message
    assert "IPv4 address" in end.value.remedy
    (said,) = capsys.readouterr().err.splitlines()
    assert words in said
    assert folder.current_term() == 0


def test_a_node_that_can_listen_claims_a_term(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "127.0.0.1")
    heirs = Succession(folder, "b0", lambda term: pytest.fail("not yet"), is_first=True)
    assert heirs.unreached(0.0, published=None) == 1


def test_what_is_over_is_not_said_at_the_end(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.claim_term(1, agent="b0")
    heirs = Succession(folder, "b1", lambda term: pytest.fail("not yet"), is_first=False)
    with monkeypatch.context() as broken:
        broken.setattr(folder, "current_term", lambda: (_ for _ in ()).throw(ElasticError("gone", "wait")))
        heirs.unreached(0.0, published=1)
        assert heirs.problem is not None
    heirs.unreached(0.1, published=1)
    assert heirs.problem is None
