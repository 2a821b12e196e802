"""Shards that wait on a disk for the next generation: what more than one fault does to them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_loader import loader_for, no_group_stays

from hpctools.elastic.group import Group
from hpctools.elastic.sharded import device_room, room
from hpctools.elastic.sharded.copies import copy_of
from hpctools.elastic.sharded.shards import Shards
from hpctools.elastic.sharded.trained import local, sharded_tensors

__all__ = ["no_group_stays"]


def trained() -> Any:
    """Two steps were done."""
    loader: Any = loader_for()
    inputs = iter(loader)
    while loader.step < 2:
        if loader.backward(loader.model(next(inputs)).square().mean()):
            loader.optimizer.step()
            loader.optimizer.zero_grad()
    return loader


def has_no_room(monkeypatch: pytest.MonkeyPatch, disk: Path) -> None:
    waiting = room.Waiting(room.LOCAL, disk)
    monkeypatch.setattr(room, "choose", lambda new, old, memory, places: waiting)


def recover(shards: Shards, number: int, *, torn: bool) -> dict[str, torch.Tensor]:
    """Somebody was lost, and perhaps what we have is of no use; returns what all go on with."""
    shards.torn = torn
    assert shards.move(None, Group(number, 0, 1, None), lambda group, work: work())
    return {name: local(each).clone() for name, each in sharded_tensors(shards.trained).items()}


def test_copies_that_a_recovery_took_are_whole_after_another_one_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three workers are lost, one after the other, the second one before a step was done."""
    shards: Shards = trained()._shards
    living = shards.living()
    assert living is not None
    shards.copies.keep((copy_of(living),))
    expected = {name: each.clone() for name, each in living.tensors.items()}
    recover(shards, 2, torn=True)
    has_no_room(monkeypatch, tmp_path)
    recover(shards, 3, torn=False)
    shards.settled()
    found = recover(shards, 4, torn=True)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("how", ["breaks", "is called away"])
def test_a_recovery_that_does_not_end_is_followed_by_one_of_what_lies_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Another worker is lost while shards move, and there is still no room."""
    shards: Shards = trained()._shards
    living = shards.living()
    assert living is not None
    expected = {name: each.clone() for name, each in living.tensors.items()}
    has_no_room(monkeypatch, tmp_path)
    turns = iter(range(9))

    def run(group: Group, work: Any) -> Any:
        if next(turns) == 0:  # who has what
            return work()
        if how == "breaks":
            raise RuntimeError("a peer is gone")
        return None

    with pytest.raises(RuntimeError) if how == "breaks" else nullcontext():
        assert not shards.move(None, Group(2, 0, 1, None), run)
    found = recover(shards, 3, torn=False)
    assert shards.detail["medium"] == room.LOCAL
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("device_free", [0, 1 << 30])
def test_what_has_no_room_on_a_gpu_waits_in_the_hosts_memory(device_free: int) -> None:
    shards: Any = trained()._shards
    living = shards.living()
    expected = {name: each.clone() for name, each in living.tensors.items()}
    shards._look = lambda held: room.Seen(1 << 30, (), room.Device(device_free, work=0))
    found = recover(shards, 2, torn=False)
    emptied = {each.untyped_storage().nbytes() == 0 for each in living.tensors.values() if each.numel()}
    assert (shards.detail["medium"], emptied) == (
        (room.MEMORY, {False}) if device_free else (device_room.HOST, {True})
    )
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("device", [None, room.Device(0, work=0)])
def test_a_resize_for_which_nothing_seems_to_have_room_is_done_and_told(
    device: room.Device | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is free is an estimate: a run must not fail for it."""
    shards: Any = trained()._shards
    expected = {name: each.clone() for name, each in shards.living().tensors.items()}
    shards._look = lambda held: room.Seen(0, (), device)
    found = recover(shards, 2, torn=False)
    assert shards.detail["medium"] == room.MEMORY
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith("elastic: a resize needs room for")
    assert "more memory (--mem)" in message


def test_shards_that_cannot_be_moved_out_stay_and_those_that_were_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota is not seen before it is met: here by the second one of two states."""
    shards: Any = trained()._shards
    expected = {name: each.clone() for name, each in shards.living().tensors.items()}
    recover(shards, 2, torn=False)  # the one before is kept until a step is done
    shards._before = (copy_of(shards.living()),)
    told: list[str] = []
    shards._setting = replace(shards._setting, warn=told.append)
    has_no_room(monkeypatch, tmp_path)
    move, turns = room.moved_out, iter(range(9))

    def moved_out(tensors: Any, folder: Path) -> Any:
        return move(tensors, folder if next(turns) == 0 else folder / "nowhere")

    monkeypatch.setattr(room, "moved_out", moved_out)
    found = recover(shards, 3, torn=False)
    assert shards.detail["medium"] == room.LOCAL
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    monkeypatch.setattr(room, "moved_out", lambda tensors, folder: move(tensors, tmp_path / "nowhere"))
    found = recover(shards, 4, torn=False)
    assert shards.detail["medium"] == room.MEMORY
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert {each.partition(": ")[0] for each in told} == {"old shards stay where they are at a resize"}


def test_room_is_wanted_for_all_workers_of_a_node_as_it_was_before_any_of_them_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Six workers, two a node, become four: what one has moved out of memory is not free for another."""
    shards: Any = trained()._shards
    shards._setting = replace(shards._setting, workers_per_node=2)
    seen: list[Any] = []

    def choose(new: int, old: room.Old, memory: int, places: Any) -> room.Waiting:
        own = shards.living().bytes
        assert (new, old, memory) == (own // 4 * 2, room.Old(2 * own, 6 * own), 7)
        raise EnoughError

    def survey(group: Group, work: Any) -> Any:
        assert seen == [None]
        return 6 * work()

    monkeypatch.setattr(room, "look", lambda shared: seen.append(shared) or room.Seen(7))
    monkeypatch.setattr(room, "choose", choose)
    with pytest.raises(EnoughError):
        shards._reshard(Group(2, 0, 1, None), Group(2, 0, 4, None), survey, [])


class EnoughError(Exception):
    """What was to be seen was."""
