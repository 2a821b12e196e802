from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpctools.login.placement import Home, Node, Nowhere, Placed, Policy, Wish, place, rank

POLICY = Policy()
FOUR = [Node(f"login-{number}", cpus=16) for number in range(1, 5)]

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
users = st.integers(0, 10_000).map("user{}".format)
numbers = st.integers(1, 40)
part = st.sampled_from([0.0, 0.3, 0.6, 0.94, 0.95, 1.0])


@st.composite
def nodes(draw: st.DrawFn, least: int = 1) -> list[Node]:
    return [
        Node(
            f"login-{number}",
            sessions=draw(st.integers(0, 300)),
            cpus=draw(st.sampled_from([1, 8, 16, 64])),
            cpu=draw(part),
            memory=draw(part),
            draining=draw(st.booleans()),
            silent_for=draw(st.sampled_from([None, 0.0, 30.0, 30.5])),
            closed=draw(st.booleans()),
        )
        for number in draw(st.lists(numbers, min_size=least, max_size=8, unique=True))
    ]


@st.composite
def wishes(draw: st.DrawFn) -> tuple[Wish, list[Node]]:
    known = draw(nodes())
    name = st.sampled_from([node.name for node in known])
    home = st.builds(Home, sessions=st.integers(0, 3), tmux=st.booleans())
    return Wish(
        draw(users), draw(st.dictionaries(name, home, max_size=3)), draw(st.sets(name, max_size=3))
    ), known


def placed(user: str, known: list[Node], policy: Policy = POLICY, **wish: object) -> Placed:
    found = place(Wish(user, **wish), known, policy)  # type: ignore[arg-type]
    assert isinstance(found, Placed)
    return found


@patient
@given(wishes(), st.randoms())
def test_replicas_agree_in_whatever_order_they_read_the_nodes(
    case: tuple[Wish, list[Node]], dice: Random
) -> None:
    wish, known = case
    mixed = dice.sample(known, len(known))
    assert place(wish, mixed, POLICY) == place(wish, known, POLICY)


@patient
@given(wishes())
def test_nobody_is_sent_to_a_drained_node_or_one_that_did_not_answer(case: tuple[Wish, list[Node]]) -> None:
    wish, known = case
    found = place(wish, known, POLICY)
    usable = {node.name for node in known if not node.draining and node.name not in wish.avoid}
    if isinstance(found, Nowhere):
        assert usable == set()
    else:
        assert {found.node, *found.others} == usable
        assert found.node not in found.others


@patient
@given(wishes())
def test_silent_closed_and_full_nodes_are_the_last_resort(case: tuple[Wish, list[Node]]) -> None:
    wish, known = case
    found = place(replace(wish, homes={}), known, POLICY)
    states = {node.name: POLICY.state(node) for node in known}
    if isinstance(found, Placed):
        order = ["up", "full", "closed", "silent"]
        told = [order.index(states[name]) for name in (found.node, *found.others)]
        assert told == sorted(told)


@patient
@given(users, nodes(least=2))
def test_a_node_that_goes_takes_only_its_own_people_along(user: str, known: list[Node]) -> None:
    order = [node.name for node in rank(user, known, POLICY)]
    for gone in known:
        rest = [node for node in known if node is not gone]
        assert [n.name for n in rank(user, rest, POLICY)] == [name for name in order if name != gone.name]


def test_each_node_is_the_usual_one_of_its_weights_part_of_all_people() -> None:
    known = [Node("small", cpus=8), Node("large", cpus=24), Node("busy", cpus=16, cpu=1.0)]
    people = 20_000
    first = Counter(rank(f"user{number}", known, POLICY)[0].name for number in range(people))
    # 8, 24 and a tenth of 16: of 33.6.
    for name, weight in {"small": 8.0, "large": 24.0, "busy": 1.6}.items():
        assert first[name] / people == pytest.approx(weight / 33.6, abs=0.012)


@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_at_once_are_within_one_session_of_even(seed: int) -> None:
    counts = Counter({node.name: 0 for node in FOUR})
    for number in range(200):
        known = [replace(node, sessions=counts[node.name]) for node in FOUR]
        counts[placed(f"user{seed}-{number}", known).node] += 1
    assert all(abs(count - 50) <= 1 for count in counts.values())


@patient
@given(st.lists(st.sampled_from([8, 16, 32]), min_size=2, max_size=6), st.integers(1, 60), st.integers(0, 99))
def test_sessions_follow_the_weights(sizes: list[int], people: int, seed: int) -> None:
    counts = [0] * len(sizes)
    for number in range(people):
        known = [Node(str(at), counts[at], cpus=size) for at, size in enumerate(sizes)]
        counts[int(placed(f"{seed}.{number}", known).node)] += 1
    average = sum(sizes) / len(sizes)
    # The slack, and the one session that is added, in sessions of an average node.
    filled = [count * average / size for count, size in zip(counts, sizes, strict=True)]
    assert max(filled) - min(filled) <= POLICY.slack + average / min(sizes)


def test_somebody_goes_back_to_their_tmux_before_their_session() -> None:
    homes = {"login-2": Home(sessions=2), "login-3": Home(tmux=True)}
    assert placed("nlp1", FOUR, homes=homes).why == "your tmux is on login-3."
    assert placed("nlp1", FOUR, homes={"login-2": Home(2)}).why == "your 2 sessions are on login-2."
    assert placed("nlp1", FOUR, homes={"login-2": Home(1)}).why == "your session is on login-2."


def test_also_to_a_busy_node_but_not_to_one_at_its_limit() -> None:
    busy = [replace(FOUR[0], memory=0.99, sessions=90), *FOUR[1:]]
    assert placed("nlp1", busy, homes={"login-1": Home(1)}).node == "login-1"
    limited = replace(POLICY, most_sessions=90)
    found = placed("nlp1", busy, limited, homes={"login-1": Home(1)})
    assert found.why.startswith(
        "your session is on login-1, which has all the sessions that it may have; login-"
    )


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ({"draining": True}, "takes no new sessions (it is being drained)"),
        ({"silent_for": 31.0}, "does not answer"),
        ({"silent_for": None}, "does not answer"),
        ({"closed": True}, "lets nobody in now (its sshd is full or hangs)"),
    ],
)
def test_who_cannot_go_back_is_told_why(trouble: dict[str, object], told: str) -> None:
    known = [replace(FOUR[0], **trouble), FOUR[1]]  # type: ignore[arg-type]
    found = placed("nlp1", known, homes={"login-1": Home(1)})
    assert found.why == (
        f"your session is on login-1, which {told}; "
        "login-2 is the only node that takes sessions now (0 sessions, CPU 0%, memory 0%)."
    )


def test_who_is_sent_elsewhere_than_usual_is_told_why() -> None:
    usual = rank("nlp1", FOUR, POLICY)[0].name
    assert placed("nlp1", FOUR).why == (
        f"{usual} is your usual node, and it has room (0 sessions, CPU 0%, memory 0%)."
    )
    full = [replace(node, sessions=9 if node.name == usual else 1) for node in FOUR]
    found = placed("nlp1", full)
    assert found.node != usual
    assert found.why == f"{found.node} has the most room for you (1 session, CPU 0%, memory 0%)."
    assert found.others[-1] == usual


def test_when_nothing_is_well_the_answer_is_a_guess_rather_than_none() -> None:
    silent = [replace(node, silent_for=99.0) for node in FOUR]
    assert placed("nlp1", silent).why.endswith(" is a guess: no node was heard of lately.")
    full = [replace(node, memory=0.96) for node in FOUR]
    assert placed("nlp1", full).why.endswith(" is a guess: every node is full.")
    closed = [replace(node, closed=True) for node in FOUR]
    assert placed("nlp1", closed).why.endswith(" is a guess: no node's sshd lets everybody in.")


def test_nowhere_says_why() -> None:
    drained = [replace(node, draining=True) for node in FOUR[:2]]
    assert place(Wish("nlp1"), drained, POLICY) == Nowhere(
        "login-1, login-2 are being drained, and there is no other login node"
    )
    assert place(Wish("nlp1"), [], POLICY) == Nowhere("no login node has told of itself yet", anybody=False)
    assert place(Wish("nlp1", avoid=("login-2",)), [drained[0], Node("login-2")], POLICY) == Nowhere(
        "login-1 is being drained, and what else there is (login-2) did not answer you, or is not wanted"
    )
    assert place(Wish("nlp1", avoid=("login-1",)), FOUR[:1], POLICY) == Nowhere(
        "all login nodes are among those that did not answer you, or are not wanted"
    )


def test_cpu_and_memory_count_only_where_the_site_says_so_and_only_when_they_are_felt() -> None:
    by_cpu, by_sessions = Policy(balance_on=("sessions", "cpu")), Policy(balance_on=("sessions",))
    node = Node("login-1", cpus=16, cpu=0.75, memory=0.75)
    assert (by_cpu.weight(node), by_sessions.weight(node)) == (16 * 0.55, 16.0)
    assert by_cpu.weight(replace(node, cpu=0.5)) == 16.0
    assert POLICY.weight(replace(node, cpu=1.0, memory=1.0)) == pytest.approx(0.16)


def test_without_sessions_in_the_balance_the_usual_node_is_taken_however_full() -> None:
    policy = Policy(balance_on=("cpu",))
    usual = rank("nlp1", FOUR, policy)[0].name
    full = [replace(node, sessions=500 if node.name == usual else 0) for node in FOUR]
    assert placed("nlp1", full, policy).node == usual


@pytest.mark.parametrize(
    ("silent_for", "said"),
    [(0.0, "which did not answer you, or is not wanted; "), (60.0, "which does not answer; ")],
)
def test_a_node_that_somebody_does_not_want_is_not_called_silent(silent_for: float, said: str) -> None:
    nodes = [Node("login-1", silent_for=silent_for), Node("login-2")]
    wish = Wish("nlp1", homes={"login-1": Home(1, tmux=True)}, avoid=("login-1",))
    found = place(wish, nodes, POLICY)
    assert isinstance(found, Placed)
    assert found.why.startswith(f"your tmux is on login-1, {said}login-2 ")
