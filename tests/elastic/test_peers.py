"""What a coordinator remembers of workers that have gone: enough, and not ever more."""

from __future__ import annotations

from hpctools.elastic.peers import Names


def test_of_very_many_names_the_oldest_are_forgotten() -> None:
    names = Names(most=3)
    for number in range(10):
        names.add(f"b0.0.{number}")
        names.add("b1.0.0")
    assert [number for number in range(10) if f"b0.0.{number}" in names] == [8, 9]
    assert "b1.0.0" in names, "it was added last"
