"""Each verdict on growing is told, also where nobody had to be asked for it."""

from __future__ import annotations

from test_membership import started

from hpctools.elastic.effects import Decided
from hpctools.elastic.generations import RETRY_SECONDS


def test_a_growth_that_comes_to_nothing_is_told_until_it_is_tried_again() -> None:
    membership = started(sizes=(1, 2, 3))
    membership.ready("r", (1, 7), now=10)
    membership.effects.clear()
    membership.link_failed("r", 2, now=11)
    membership.consider(now=11.2)
    (refused,) = [each for each in membership.effects if isinstance(each, Decided)]
    assert (refused.world, refused.possible, refused.verdict.grow) == (2, 3, False)
    assert refused.verdict.numbers == {"world": 2, "possible": 3, "wait_s": RETRY_SECONDS}
    assert refused.verdict.why == "a worker could not link with the others just now"
    assert membership.next_look() == 11 + RETRY_SECONDS
    membership.effects.clear()
    membership.consider(now=11 + RETRY_SECONDS)
    (granted,) = [each.verdict.grow for each in membership.effects if isinstance(each, Decided)]
    assert granted
