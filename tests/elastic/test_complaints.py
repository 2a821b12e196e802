"""What fails is told once: again when the reason is another one, or when it had worked in between."""

from __future__ import annotations

from hpctools.elastic.complaints import Complaints


def test_each_is_told_once_until_it_works_again() -> None:
    told: list[str] = []
    complaints = Complaints(told.append)
    for _ in range(3):
        complaints.say("cannot see", "down")
        complaints.say("cannot submit", "down")
    assert told == ["cannot see: down", "cannot submit: down"]
    complaints.say("cannot submit", "Invalid account")
    complaints.over("cannot see")
    complaints.over("never failed")
    complaints.say("cannot see", "down")
    complaints.say("cannot submit", "Invalid account")
    assert told[2:] == ["cannot submit: Invalid account", "cannot see: down"]
