"""What a coordinator remembers of workers that have gone: enough, and not ever more."""

from __future__ import annotations

from hpctools.elastic.peers import Names, Roster
from hpctools.elastic.protocol import EXPELLED


def test_of_very_many_names_the_oldest_are_forgotten() -> None:
    names = Names(most=3)
    for number in range(10):
        names.add(f"b0.0.{number}")
        names.add("b1.0.0")
    assert [number for number in range(10) if f"b0.0.{number}" in names] == [8, 9]
    assert "b1.0.0" in names, "it was added last"


def test_who_was_given_up_by_the_coordinator_before_us_says_so_at_its_end() -> None:
    """It is no crash of the training, whoever coordinates now."""
    roster = Roster()
    roster.expelled.add("b1.0.0")
    last = ["Traceback (most recent call last):", f"hpctools.errors.ElasticError: {EXPELLED}"]
    assert roster.was_given_up("b1.0.0", -9, [])
    assert roster.was_given_up("b2.0.0", 1, last)
    assert not roster.was_given_up("b2.0.0", 1, ["ValueError: no such corpus"])
    assert not roster.was_given_up("b2.0.0", -11, last)
