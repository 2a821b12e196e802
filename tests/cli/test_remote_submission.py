"""What hp-submit --cluster says of a dry run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpctools.cli import remote_submission
from hpctools.remote import sending
from hpctools.remote.shipping import Shipment, Wish

NAME = "train-0123456789ab"


@pytest.mark.parametrize("trial", [True, False])
def test_a_dry_run_that_is_interrupted_submitted_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trial: bool
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sending, "send", interrupted)
    shipment = Shipment(NAME, {"trial": trial}, ())
    session: Any = SimpleNamespace(tell=print)
    with pytest.raises(KeyboardInterrupt):
        remote_submission._sent(session, shipment, Wish("uni", ()))
    assert ("it may have been submitted" in capsys.readouterr().err) is not trial


def test_a_dry_run_shows_a_script_as_it_is(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Of a line with a tab the quotes and backslashes changed, too; what a terminal would obey is escaped."""
    script = "#!/bin/sh\n\techo \"a\" '\\n' |\twc\n"
    result = {"stdout": f"{script}\x1b[2J\n", "stderr": "", "code": 0}
    assert remote_submission._show_trial(result) == 0
    assert capfdbinary.readouterr().out.decode() == f"{script}\\x1b[2J\n"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_job_that_standard_output_does_not_take_is_told_beside_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    """`hp-submit ... >file` on a full disk: "No space left on device" alone reads like no job."""
    result = {
        "id": NAME,
        "job_id": 7,
        "run": "",
        "cluster": "",
        "folder": "/f",
        "before": False,
        "stderr": "",
    }
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(OSError, match="No space left"):
            remote_submission._tell_surely(result, as_json, set())
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()
    assert capsys.readouterr().err.startswith(f"hp-submit: job 7 was submitted, as {NAME}; ")
