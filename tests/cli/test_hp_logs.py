"""What hp-logs says of the end of a job that it followed."""

from __future__ import annotations

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
