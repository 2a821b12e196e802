"""A group that is given up lets go of its thread at once, though nobody else has gone."""

from __future__ import annotations

import threading

import pytest
import torch
from test_exchange import on_ranks

from hpctools.elastic.group import Group, await_all


@pytest.mark.parametrize("world", [2, 3])
def test_what_waits_for_others_in_an_abandoned_group_fails_at_once(world: int) -> None:
    """Else the thread would end while Python shuts down, which takes the process down with SIGABRT."""
    all_know = threading.Barrier(world)

    def work(group: Group) -> str:
        if group.rank:
            all_know.wait(30)  # connected, and never sends
            return ""
        woken = threading.Event()
        into = [torch.empty(3) for _ in group.others]
        waits = [group.receive(tensor, rank, 1) for tensor, rank in zip(into, group.others, strict=True)]
        task = group.begin(lambda: await_all(waits), woken.set)
        assert not woken.wait(0.2)
        group.abandon()
        assert woken.wait(10)
        all_know.wait(30)
        with pytest.raises(RuntimeError):
            task.result()
        return "woken"

    assert on_ranks(world, work)[0] == "woken"


def test_a_lone_group_has_nothing_to_give_up() -> None:
    Group(0, 0, 1, None).abandon()
