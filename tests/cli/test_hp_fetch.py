"""What hp-fetch says of what became of files, and how it ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpctools.cli import hp_fetch
from hpctools.errors import UnreachableError
from hpctools.remote import fetching
from hpctools.remote.clusters import Cluster
from hpctools.remote.fetching import Fetched

Run = Callable[[Callable[[Fetched], None]], tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """hp-fetch, with a cluster of which only it is known what becomes of files."""

    @contextlib.contextmanager
    def session(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(tell=print)

    def fetch(what: Callable[[Fetched], None]) -> tuple[int, str, str]:
        monkeypatch.setattr(fetching, "fetch", lambda *given: what(given[2]))
        code = hp_fetch.main(["train-0123456789ab", "--cluster", "uni", "--to", "to"])
        said = capsys.readouterr()
        return code, said.out, said.err

    monkeypatch.setattr(hp_fetch, "find_cluster", lambda _: Cluster("uni", ("login1",)))
    monkeypatch.setattr(hp_fetch, "session", session)
    return fetch


def test_what_came_is_told_before_what_ended_it(run: Run) -> None:
    def broken(done: Fetched) -> None:
        done.new.append("a")
        raise UnreachableError("the connection broke", "is the network there?")

    assert run(broken) == (3, "to/a\n", "hp-fetch: the connection broke; is the network there?\n")


def test_a_file_that_could_not_be_read_is_told_and_is_no_success(run: Run) -> None:
    def some(done: Fetched) -> None:
        done.new.append("a")
        done.gone["b"] = "cannot read b on the cluster: No such file or directory"

    why = "cannot read b on the cluster: No such file or directory"
    assert run(some) == (1, "to/a\n", f"hp-fetch: b was not fetched: {why}\n")


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        (lambda done: None, 1, "hp-fetch: there are no such files\n"),
        (lambda done: done.present.append("a"), 0, ""),
    ],
)
def test_nothing_new_is_told_apart_from_nothing(
    run: Run, what: Callable[[Fetched], None], code: int, said: str
) -> None:
    assert run(what) == (code, "", said)
