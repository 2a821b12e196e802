"""Which configuration `hpctools rollback` means, among the changes of a history."""

from __future__ import annotations

import pytest

from hpctools.conf.apply.record import Kind, Record, Side
from hpctools.conf.apply.return_to import chosen, trail
from hpctools.errors import ApplyError


def record(number: int, *, back_to: int | None = None, in_force: Side = "after") -> Record:
    kind: Kind = "rollback" if back_to is not None else "apply" if number else "as found"
    return Record(
        number,
        kind,
        "uni",
        "24.11.5",
        "/etc/slurm",
        "ada",
        "ctl",
        "",
        "",
        0.0,
        in_force=in_force,
        back_to=back_to,
    )


def history(*back: int | None) -> list[Record]:
    """Changes from 0 on, each an apply (None) or the rollback to a number."""
    return [record(number, back_to=target) for number, target in enumerate(back)]


@pytest.mark.parametrize(
    ("changes", "behind_each_other"),
    [
        (history(None, None, None), [0, 1, 2]),
        (history(None, None, None, 1), [0, 1]),
        (history(None, None, None, 1, 0), [0]),
        # 2 was gone back from, so what lies before 4 is 1.
        (history(None, None, None, 1, None), [0, 1, 4]),
        # 4 brings back what 3 brought back.
        (history(None, None, 0, None, 2), [0]),
        # Back to 1 and forth to 2 again.
        (history(None, None, None, 1, 2), [0, 1, 2]),
    ],
)
def test_what_somebody_went_back_from_is_not_gone_back_to(
    changes: list[Record], behind_each_other: list[int]
) -> None:
    assert [each.number for each in trail(changes)] == behind_each_other
    if len(behind_each_other) > 1:
        assert chosen(changes, None).number == behind_each_other[-2]
    else:
        with pytest.raises(ApplyError, match="nothing before change 0"):
            chosen(changes, None)


def test_changes_that_were_rolled_back_are_passed_over() -> None:
    changes = [record(0), record(1), record(2, in_force="before")]
    assert chosen(changes, None).number == 0
    with pytest.raises(ApplyError, match="never in force"):
        chosen(changes, 2)
