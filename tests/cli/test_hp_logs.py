"""What hp-logs says of the end of a job that it followed."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from hpctools.cli.hp_logs import follow_to_end
from hpctools.remote import following
from hpctools.remote.following import Wanted


@pytest.mark.parametrize(
    ("states", "said", "code"),
    [
        (["COMPLETED"], "job 7 COMPLETED", 0),
        (["COMPLETED", "FAILED"], "job 7 COMPLETED, FAILED", 1),
        ([], "job 7 is over; how it ended is not known", 1),
    ],
)
def test_followed_to_its_end_the_exit_code_is_0_only_if_it_completed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    states: list[str],
    said: str,
    code: int,
) -> None:
    """slurmctld may have forgotten it, with no accounting: that is no success."""
    ended = {"paths": ["/x/slurm-7.out"], "job_id": 7, "job_states": states}
    monkeypatch.setattr(following, "follow", lambda *_: ended)
    wanted = Wanted("train-0123456789ab", follow=True)
    assert follow_to_end(cast("Any", None), wanted, "hp-logs") == code
    assert capsys.readouterr().err == f"hp-logs: {said}\n"


@pytest.mark.parametrize(
    ("forgotten", "follow", "said"),
    [
        (
            True,
            False,
            "Slurm has forgotten job 7, and it is not known where .*; .* with: hp-fetch train-0123456789ab",
        ),
        (False, False, "there is no output yet$"),
        (False, True, "there is no output$"),
    ],
)
def test_output_of_which_nothing_is_known_is_not_awaited(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    forgotten: bool,
    follow: bool,
    said: str,
) -> None:
    """ "There is no output yet" was said of a job that had ended long ago."""
    result = {"paths": [], "job_id": 7, "job_states": [], "forgotten": forgotten}
    monkeypatch.setattr(following, "follow", lambda *_: result)
    follow_to_end(cast("Any", None), Wanted("train-0123456789ab", follow=follow), "hp-logs")
    assert re.search(f"^hp-logs: {said}", capsys.readouterr().err, re.MULTILINE)
