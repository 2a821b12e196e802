"""Real sshds for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hpctools.cli import hp_submit
from hpctools.remote import identities
from tests.remote.rig import Here, Rig, rig


@pytest.fixture(scope="module")
def one() -> Iterator[Rig]:
    """A cluster with one login node, known to the laptop."""
    with rig() as made:
        login = made.start("login1")
        made.configure({"login1": login.port})
        made.know(login.port)
        yield made


@pytest.fixture
def cluster(one: Rig) -> Iterator[Rig]:
    """The same, with an empty queue."""
    one.clear()
    (one.home / "job.sh").write_text('#!/bin/bash\necho "hello $*"\n')
    yield one
    for name in ("run", "refuse", "lose"):
        (one.folder / "jobs" / name).unlink(missing_ok=True)
    one.configure({"login1": one.logins[0].port})
    one.know(one.logins[0].port)


@pytest.fixture
def here(cluster: Rig, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Here:
    """hp-submit on the laptop, in this process: starting Python takes longer than all the rest."""
    for name in ("HOME", "HPCTOOLS_SSH_CONFIG", "PATH"):
        monkeypatch.setenv(name, cluster.environment[name])
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.chdir(cluster.home)
    # Whoever runs the tests at a terminal is not asked.
    monkeypatch.setattr(identities, "at_terminal", lambda: identities.Person(None))

    def submit(*words: str) -> tuple[int, str, str]:
        code = hp_submit.main(words)
        said = capfdbinary.readouterr()
        return code, said.out.decode(), said.err.decode()

    return submit
