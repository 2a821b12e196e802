"""Exchange and state transfer over real gloo groups; the ranks are threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from hpctools.elastic import state as states
from hpctools.elastic.exchange import Exchanged, Plan, exchange
from hpctools.elastic.group import Group, join_store, link, open_store
from hpctools.elastic.reduction import Ladder, Node, block, children, cover
from hpctools.elastic.state import buckets, move_state, receive_state, send_state, share
from hpctools.errors import ElasticError

HOST = "127.0.0.1"
SHARDS, LENGTH = 7, 103


def on_ranks(world: int, work: Callable[[Group], Any]) -> list[Any]:
    """Run the work on every rank of a new group."""
    store = open_store(HOST)

    def rank(place: int) -> Any:
        own = store if place == 0 else join_store(HOST, store.port)
        return work(link(1, place, world, own if world > 1 else None, HOST))

    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(rank, range(world), timeout=60))


def shard_vectors() -> list[torch.Tensor]:
    """Numbers of very different sizes, whose sum depends on the order."""
    generator = torch.Generator().manual_seed(5)
    values = torch.randn(SHARDS, LENGTH, generator=generator)
    return list(values * torch.logspace(-6, 6, SHARDS)[torch.randperm(SHARDS, generator=generator)][:, None])


def sums_of(within: Node) -> dict[Node, torch.Tensor]:
    ladder, sums, vectors = Ladder(cover(within, SHARDS)), {}, shard_vectors()
    for shard in range(*within):
        sums[(shard, shard + 1)] = vectors[shard]
        for parent in ladder.push(shard):
            left, right = children(parent)
            sums[parent] = sums.pop(left) + sums.pop(right)
    return sums


@pytest.mark.parametrize("world", [2, 3, 5, 8])
def test_sum_is_bitwise_that_of_one_process(world: int) -> None:
    """Eight ranks are more than there are shards: one of them has none."""

    def work(group: Group) -> Exchanged:
        plan = Plan(4, SHARDS, LENGTH, torch.float32, ready_for=10 + group.rank)
        return exchange(group, sums_of(block(group.rank, world, SHARDS)), plan)

    alone = sums_of((0, SHARDS))[(0, SHARDS)]
    naive = torch.stack(shard_vectors()).flip(0).sum(0)
    assert not torch.equal(alone, naive), "the numbers must be such that the order matters"
    for exchanged in on_ranks(world, work):
        assert torch.equal(exchanged.vector, alone)
        assert exchanged.agreed == 10


@pytest.mark.parametrize("shards", [SHARDS, 3], ids=["like the other", "the last of an epoch"])
def test_ranks_in_different_steps_do_not_mix(shards: int) -> None:
    """Their gradients are under way by then, and nobody reads them."""

    def work(group: Group) -> str:
        plan = Plan(4 + group.rank, (SHARDS, shards)[group.rank], LENGTH, torch.float32, ready_for=0)
        sums = {node: torch.ones(LENGTH) for node in plan.share(group.rank, 2, plan.shards)}
        with pytest.raises(RuntimeError) as caught:
            exchange(group, sums, plan)
        return str(caught.value)

    assert on_ranks(2, work) == [
        "rank 1 is in step 5, we are in step 4",
        "rank 0 is in step 4, we are in step 5",
    ]


STATE = {
    "model": {
        "weight": torch.arange(600_000, dtype=torch.float32).view(600, 1000).t(),
        "flag": torch.tensor(True),
    },
    "optimizer": {
        "state": {0: {"step": torch.tensor(3.0)}},
        "param_groups": [{"betas": (0.9, 0.95), "params": [0]}],
    },
    "half": torch.ones(3, dtype=torch.bfloat16),
    "empty": torch.empty(0, 4),
    "lazy": [torch.tensor([1 + 2j, 3 - 4j]).conj(), torch.tensor([1 + 2j, 3 - 4j]).conj().imag],
    "cursor": {"step": 7, "epoch": 1},
    "nothing": None,
}


def test_state_arrives_as_it_was() -> None:
    def work(group: Group) -> Any:
        return send_state(group, 1, STATE) if group.rank == 0 else receive_state(group, 0)

    _, received = on_ranks(2, work)
    assert flattened(received) == flattened(STATE)
    assert received["model"]["weight"].shape == (1000, 600)
    assert received["half"].dtype == torch.bfloat16


@pytest.mark.parametrize("donors", [[0], [0, 2], [1, 2, 3]])
def test_several_donors_give_each_byte_once(donors: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of 2.4 MB in buckets of 100 kB; every receiver gets all of it."""
    monkeypatch.setattr(states, "BUCKET_BYTES", 100_000)

    def work(group: Group) -> Any:
        received = move_state(group, (lambda: STATE) if group.rank in donors else None)
        return received if group.rank not in donors else received is None

    for rank, received in enumerate(on_ranks(4, work)):
        if rank in donors:
            assert received is True
        else:
            assert flattened(received) == flattened(STATE)


def test_each_survivor_gives_a_third_of_a_model_of_many_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of 160 kB, as of many a convolutional network: none of three gives much more than its share."""
    state = {f"layer {place}": torch.full((200, 200), float(place)) for place in range(12)}

    def work(group: Group) -> int:
        sent, send = [0], group.send

        def counted(tensor: torch.Tensor, *more: Any) -> Any:
            sent[0] += tensor.nbytes
            return send(tensor, *more)

        monkeypatch.setattr(group, "send", counted)
        received = move_state(group, (lambda: state) if group.rank < 3 else None)
        assert received is None or flattened(received) == flattened(state)
        return sent[0]

    given = on_ranks(4, work)[:3]
    assert max(given) < 1.1 * sum(given) / 3


def test_a_donor_whose_state_has_another_shape_gives_nothing() -> None:
    """An object of the training's own that grows on one worker only."""

    def work(group: Group) -> Any:
        own = {"state counts": torch.zeros(300_000 + group.rank)}
        return move_state(group, (lambda: own) if group.rank < 2 else None)

    assert on_ranks(3, work)[2]["state counts"].shape == (300_000,)


@pytest.mark.parametrize("value", [np.ones(3), threading.Lock()])
def test_who_has_a_state_that_cannot_be_read_goes_on_and_both_sides_say_why(
    value: object, capfd: pytest.CaptureFixture[str]
) -> None:
    """It became so after the first step; who joins cannot, and nobody else ends for it."""
    kind = type(value)
    said = f"state['mine'][0], of type {kind.__module__}.{kind.__qualname__}, cannot be saved or moved"

    def work(group: Group) -> Any:
        if group.rank == 0:
            return move_state(group, lambda: {"state mine": [value], "model": torch.ones(5)})
        with pytest.raises(ElasticError) as caught:
            move_state(group, None)
        return str(caught.value)

    assert on_ranks(2, work)[1].startswith(said)
    assert f"elastic: a worker cannot be given the training's state: {said}" in capfd.readouterr().err


def test_nobody_has_the_state() -> None:
    def work(group: Group) -> None:
        with pytest.raises(RuntimeError, match="no rank has the state"):
            move_state(group, None)

    on_ranks(2, work)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_parts_are_all_bytes_once(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "BUCKET_BYTES", 10)
    tensors = [torch.zeros(7), torch.zeros(0), torch.zeros(11, dtype=torch.uint8)]
    each = [list(buckets(tensors, part, parts)) for part in range(parts)]
    sizes = [sum(high - low for _, low, high in part) for part in each]
    assert max(sizes) - min(sizes) <= 1
    covered = [(number, byte) for part in each for number, low, high in part for byte in range(low, high)]
    assert covered == [(0, byte) for byte in range(28)] + [(2, byte) for byte in range(11)]


def test_notes_reach_everyone() -> None:
    def work(group: Group) -> Any:
        return share(group, {"rank": group.rank, "mark": (1, {"place": torch.tensor(group.rank)})})

    for rank, notes in enumerate(on_ranks(3, work)):
        assert {sender: note["rank"] for sender, note in notes.items()} == {
            sender: sender for sender in range(3) if sender != rank
        }


def test_a_note_from_another_gpu_is_read_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream's place may be a CUDA tensor of a worker with more GPUs than we have."""
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:7")

    def work(group: Group) -> Any:
        return share(group, {"place": torch.tensor([group.rank + 5])})

    for rank, notes in enumerate(on_ranks(2, work)):
        place = notes[1 - rank]["place"]
        assert (place.device.type, place.tolist()) == ("cpu", [6 - rank])


def flattened(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (value.dtype, value.tolist())
    if isinstance(value, dict):
        return {key: flattened(each) for key, each in value.items()}
    return [flattened(each) for each in value] if isinstance(value, list) else value


class Hostile:
    """Would run code when it is unpickled."""

    def __reduce__(self) -> Any:
        return (print, ("gotcha",))


def test_state_cannot_carry_code(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "check_skeleton", lambda skeleton: None)  # as of a sender that means harm

    def work(group: Group) -> Any:
        if group.rank == 0:
            return send_state(group, 1, {"scheduler": Hostile()})
        with pytest.raises(Exception, match="Weights only load failed"):
            receive_state(group, 0)
        return None

    on_ranks(2, work)
    assert "gotcha" not in capfd.readouterr().out
