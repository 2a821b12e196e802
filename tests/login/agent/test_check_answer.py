"""What HAProxy is answered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.login.agent.check_answer import check_answer
from hpctools.login.agent.own_sshd import Standing
from hpctools.login.placement import Node, Policy

LIMITED = Policy(most_sessions=200)


@pytest.mark.parametrize(
    ("node", "policy", "answer"),
    [
        (Node("a"), Policy(), "up ready 100%\n"),
        (Node("a", cpus=64), Policy(), "up ready 100%\n"),
        (Node("a", cpus=64, cpu=0.75), Policy(), "up ready 55%\n"),
        (Node("a", cpu=0.75), Policy(balance_on=("sessions",)), "up ready 100%\n"),
        (Node("a", sessions=50), LIMITED, "up ready 75%\n"),
        (Node("a", sessions=199), LIMITED, "up ready 1%\n"),
        (Node("a", sessions=200), LIMITED, "up ready 0%\n"),
        (Node("a", sessions=200, draining=True), LIMITED, "drain\n"),
    ],
)
def test_answers(node: Node, policy: Policy, answer: str) -> None:
    assert check_answer(node, policy) == answer


@pytest.mark.parametrize(
    ("node", "sshd", "answer"),
    [
        (Node("a"), "closed", "down #its sshd lets nobody in\n"),
        (Node("a", sessions=200, closed=True), "closed", "down #its sshd lets nobody in\n"),
        (Node("a", draining=True, closed=True), "closed", "drain\n"),
        (Node("a", closed=True), "crowded", "up ready 1%\n"),
        (Node("a", sessions=200, closed=True), "crowded", "up ready 0%\n"),
    ],
)
def test_what_the_sshd_adds(node: Node, sshd: Standing, answer: str) -> None:
    assert check_answer(node, LIMITED, sshd) == answer


@given(
    st.builds(Node, st.just("a"), st.integers(0, 300), st.integers(1, 256), st.floats(0, 1), st.floats(0, 1))
)
def test_only_a_full_node_gets_nothing_and_none_gets_more_than_all(node: Node) -> None:
    answer = check_answer(node, LIMITED)
    share = int(answer.removeprefix("up ready ").removesuffix("%\n"))
    assert (share == 0) == (LIMITED.state(node) == "full")
    assert share <= 100
