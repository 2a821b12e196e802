from __future__ import annotations

from hpctools.login.placement import Policy
from hpctools.login.simulation import (
    RoundRobin,
    least_connections,
    make_day,
    rendezvous,
    simulate,
    source_hash,
)

DAY = make_day(nodes=6, users=400, seed=3)


def test_a_day_is_the_same_for_the_same_seed() -> None:
    assert make_day(nodes=6, users=400, seed=3) == DAY
    assert make_day(nodes=6, users=400, seed=4) != DAY
    starts = [visit.start for visit in DAY.visits]
    assert starts == sorted(starts)


def test_people_come_back_to_their_node_and_nobody_is_sent_where_nobody_is_taken() -> None:
    ours = simulate(DAY, "ours", rendezvous(Policy()))
    assert simulate(DAY, "ours", rendezvous(Policy())) == ours
    assert (ours.logins, ours.failed) == (len(DAY.visits), 0)
    # All but those whose node was drained while they were on it.
    assert ours.returned > 0.97


def test_what_others_do_without_knowing_people_and_load() -> None:
    ways = {"least": least_connections, "source": source_hash, "turns": RoundRobin()}
    found = {name: simulate(DAY, name, way) for name, way in ways.items()}
    ours = simulate(DAY, "ours", rendezvous(Policy()))
    assert found["least"].returned < 0.5 > found["turns"].returned
    assert found["source"].sessions[0] > ours.sessions[0]
    assert found["least"].cpu[0] > ours.cpu[0]
