"""Growing by restarts: what is known of replicas counts as it does in living processes."""

from __future__ import annotations

import pytest

from hpctools.elastic.deciding import NOBODY, Verdict
from hpctools.elastic.effects import Decided
from hpctools.elastic.growth import PAYS, PAYS_NOT, Patience
from hpctools.elastic.growth_history import GrowthHistory
from hpctools.elastic.restart.growing import Growing
from hpctools.elastic.restart.limits import Limits
from hpctools.elastic.restart.record import Record

LIMITS = Limits(sizes=(1, 2, 3), patience=Patience(settle=0.5, patience=0.5, pause=5.0))


@pytest.mark.parametrize(("stayed", "why"), [(600.0, PAYS), (2.0, PAYS_NOT)])
def test_it_does_not_grow_onto_nodes_that_do_not_stay(stayed: float, why: str) -> None:
    """Each restart takes 20 s, and sixty replicas were taken away after so long."""
    history = GrowthHistory()
    growing = Growing(LIMITS, history)
    growing.paused(20.0)
    for replica in range(60):
        history.arrived(f"r{replica}", 1000.0)
        history.departed(f"r{replica}", 1000.0 + stayed, taken=True)
    now = 1000.0 + stayed
    verdict = growing.judge(now, 1, 2, began=now - 100, came=[now - 10], calls=5)
    assert (verdict.why, verdict.grow) == (why, why == PAYS)
    assert verdict.numbers["cost_s"] == 40.0


@pytest.mark.parametrize(("nodes", "why"), [(2, "the newcomers have to stay for a while first"), (3, PAYS)])
def test_it_grows_at_once_when_all_that_it_may_have_are_there(nodes: int, why: str) -> None:
    """Nobody is left to wait for."""
    verdict = Growing(LIMITS).judge(1000.0, 1, nodes, began=900.0, came=[999.9], calls=5)
    assert (verdict.why, verdict.grow) == (why, why == PAYS)


def test_a_growth_that_was_undone_is_known_to_who_takes_over_the_history() -> None:
    history = GrowthHistory()
    history.grew(990.0)
    Growing(LIMITS, history).shrank(995.0)
    verdict = Growing(LIMITS, history).judge(996.0, 1, 2, began=900.0, came=[900.0], calls=5)
    assert (verdict.why, verdict.not_before) == ("earlier growths were undone at once", 997.0)


def test_what_a_script_that_asks_for_no_events_would_lose_has_to_pay_back() -> None:
    """After an hour that is a quarter of an hour: more than is expected of newcomers that just came."""
    history = GrowthHistory()
    growing = Growing(LIMITS, history)
    history.arrived("r1", 3600.0)
    now, came = 3605.0, [3600.0]
    assert growing.judge(now, 1, 2, began=0.0, came=came, calls=5).why == PAYS
    verdict = growing.judge(now, 1, 2, began=0.0, came=came, calls=0)
    assert (verdict.why, verdict.numbers["unsaved_s"], verdict.numbers["cost_s"]) == (PAYS_NOT, 900.0, 910.0)
    assert verdict.not_before is not None
    later = verdict.not_before + 0.1
    assert 300 < later - now < 320
    assert growing.judge(later, 1, 2, began=0.0, came=came, calls=0).why == PAYS, "it has stayed for long"


def test_soon_after_its_start_it_has_little_to_lose() -> None:
    verdict = Growing(LIMITS).judge(70.0, 1, 2, began=0.0, came=[60.0], calls=0)
    assert (verdict.why, verdict.numbers["unsaved_s"]) == (PAYS, 35.0)


def test_a_growth_counts_as_undone_by_its_pauses_alone() -> None:
    """Else each one within hours would, and the next wait for them."""
    history = GrowthHistory()
    growing = Growing(LIMITS, history)
    history.grew(1000.0)
    growing.shrank(1000.0 + 20 * 2 * 5.0 + 1)
    verdict = growing.judge(7000.0, 2, 3, began=0.0, came=[6000.0], calls=0)
    assert verdict.numbers["strikes"] == 0


def test_what_was_refused_in_an_earlier_generation_is_said_no_longer_either() -> None:
    """A restart that nobody can date is no `resize`, after which it would not be shown."""
    growing = Growing(LIMITS)
    before, after = (Record(number, ("a0",), 2, times={"began": 900.0}) for number in (4, 5))
    assert growing.decide(999.0, before, 1, []) == (False, None)
    _, refused = growing.decide(1000.0, before, 2, [999.9])
    assert refused is not None
    assert not refused.verdict.grow
    gone = Decided(2, 2, Verdict(False, 2, why=NOBODY))
    assert growing.decide(1001.0, after, 1, []) == (False, gone)
    assert growing.decide(1002.0, after, 1, []) == (False, None)
