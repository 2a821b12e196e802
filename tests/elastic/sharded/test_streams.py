"""Sharded models and data that is read in order: the same passes everywhere, each sample exactly once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lone_training import File
from lone_training import model as small_model
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from hpctools import elastic
from hpctools.elastic.batches import Batches
from hpctools.elastic.group import Group
from hpctools.elastic.pieces import Piece, Step
from hpctools.elastic.sampling import Cursor, StreamSampling
from hpctools.elastic.session import LONE
from hpctools.elastic.sharded import moving, process_group
from hpctools.elastic.sharded.feeding import ShardedSum, in_step, passes_of
from hpctools.elastic.sharded.layout import Holders, Part, Survey, Version, furthest_whole
from hpctools.elastic.sharded.moving import Source, begun, choose_source
from hpctools.elastic.sharded.process_group import ShardGroup
from hpctools.elastic.streams import Streams

SHARDS, EPOCHS = 5, 2
SAMPLING = StreamSampling(12, SHARDS, EPOCHS, 3)


@pytest.fixture(autouse=True)
def no_group_stays() -> Iterator[None]:
    """torch's default group belongs to the process, not to a test."""
    yield
    process_group.uninstall()


class Rank:
    """What one worker is fed; the state is shared as `Shards` and `Batches.tell` do."""

    def __init__(self, data: File) -> None:
        source = Streams(data, lambda samples: [number for number, _ in samples], SAMPLING)
        self.batches = Batches(SAMPLING, source, in_step(SAMPLING), 0)
        self.batches.fill = passes_of(SAMPLING)
        self.batches.rehearsal()

    def do(self, group: Group) -> tuple[int, list[int]]:
        """How many passes it does in the next round, and the samples that count."""
        pieces = self.batches.plan(group).pieces
        fed = [(piece, self.batches.batch(piece)) for piece in pieces if piece.is_fed]
        return len(fed), [number for piece, batch in fed if piece.samples for number in batch]


@pytest.mark.parametrize("seed", range(12))
def test_over_any_history_all_do_the_same_passes_and_each_sample_counts_once(seed: int) -> None:
    """Rounds fail and are done again on another number of workers, or all go back to what was saved."""
    chance, data = random.Random(seed), File(70)
    ranks = [Rank(data)]
    saved, done = dict(ranks[0].batches.capture()), Counter[tuple[int, int]]()
    kept, generation = done.copy(), 1
    while not ranks[0].batches.is_over:
        fate = chance.random()
        if fate < 0.2:  # a planned resize: some leave, others join and get the state
            state = ranks[0].batches.capture()
            ranks = (ranks + [Rank(data) for _ in range(SHARDS)])[: chance.randint(1, SHARDS)]
            generation += 1
            for rank in ranks:
                rank.batches.load(state)
        elif fate < 0.3:  # a loss: back to what was saved last
            generation, done = generation + 1, kept.copy()
            for rank in ranks:
                rank.batches.load(saved)
        groups = [Group(generation, place, len(ranks), None) for place in range(len(ranks))]
        at = ranks[0].batches.cursor
        rounds = [rank.do(group) for rank, group in zip(ranks, groups, strict=True)]
        if len(ranks) == 1 and ranks[0].batches.cursor != at:
            continue  # one that is alone finds by itself that the epoch is over
        assert len({passes for passes, _ in rounds}) == 1
        if fate > 0.9:  # the round broke after it was fed, and is done again
            continue
        numbers = [number for _, fed in rounds for number in fed]
        done.update((at.epoch, number - 1000 * at.epoch) for number in numbers)
        for rank in ranks:
            rank.batches.passed(len(numbers))
        if fate > 0.8:
            saved, kept = dict(ranks[0].batches.capture()), done.copy()
    everything = Counter((epoch, number) for epoch in range(EPOCHS) for number in data.numbers(SHARDS))
    assert done == everything


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = small_model()
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.05)


def loader_for(**options: Any) -> elastic.ShardedLoader:
    return elastic.ShardedLoader(
        build, File(40), **{"batch_size": 8, "epochs": 2, "shards": 3, "seed": 3, **options}
    )


def train(loader: Any, model: Any, optimizer: Any, stop: int = -1) -> tuple[list[int], list[float]]:
    """The samples that were fed, and the losses; with a keeper each checkpoint is waited for."""
    seen, losses = [], []
    for _ in range(2):
        for numbers, inputs in loader:
            seen += numbers.tolist()
            if loader.backward(model()(inputs).square().mean()):
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loader.loss)
                if (keeper := getattr(loader, "_shard_keeper", None)) is not None:
                    keeper.close()
            if loader.step == stop:
                return seen, losses
    return seen, losses


def fed(loader: Any, stop: int) -> dict[int, list[int]]:
    """The samples of each step until then."""
    found: dict[int, list[int]] = {}
    while loader.step < stop:
        for numbers, inputs in loader:
            found.setdefault(loader.step + 1, []).extend(numbers.tolist())
            if loader.backward(loader.model(inputs).square().mean()):
                loader.optimizer.step()
                loader.optimizer.zero_grad()
                if loader._shard_keeper is not None:
                    loader._shard_keeper.close()
            if loader.step == stop:
                break
    return found


def test_one_process_does_what_the_loader_of_whole_models_does() -> None:
    """Also in the steps in which some streams have ended: gradients of the mean over what there is."""
    sharded = loader_for()
    seen, losses = train(sharded, lambda: sharded.model, sharded.optimizer)
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    whole = elastic.Loader(model, optimizer, File(40), batch_size=8, epochs=2, shards=3, seed=3)
    expected = train(whole, lambda: model, optimizer)
    assert seen == expected[0]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected[1]), rtol=1e-5, atol=0.0)
    assert (sharded.total_steps, sharded.indices) == (None, [])


@pytest.mark.parametrize("saved", [4, 7], ids=["in an epoch", "after an epoch's last samples"])
def test_a_training_goes_on_from_its_checkpoint_and_its_streams(tmp_path: Path, saved: int) -> None:
    """Interrupted two steps later; an epoch has 7 steps, and its end is found out in a round of its own."""
    whole = loader_for()
    expected = train(whole, lambda: whole.model, whole.optimizer)
    settings = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0, every_steps=saved)
    first = loader_for(checkpoint=settings)
    train(first, lambda: first.model, first.optimizer, saved + 2)
    first._shards.torn = True  # as when a worker was lost: those that are left go back, too
    assert first._move(None, Group(1, 0, 1, None), lambda _, work: work())
    assert (first.step, first._batches.cursor.epoch) == (saved, 0)
    second = loader_for(checkpoint=settings)
    assert (second.step, second._batches.cursor.epoch) == (saved, 0)
    seen, losses = train(second, lambda: second.model, second.optimizer)
    assert losses == expected[1][saved:]
    assert seen == expected[0][-len(seen) :]


@pytest.mark.parametrize("skip", [[8], [8, 9], [7, 8]])
def test_the_first_batch_of_an_epoch_can_be_left_out_after_going_back_before_it(
    tmp_path: Path, skip: list[int]
) -> None:
    """Epochs of seven steps. From step 8 the run goes back to the checkpoint of step 6."""
    whole = loader_for(epochs=4)
    expected = fed(whole, 14)
    settings = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0, every_steps=6)
    loader = loader_for(epochs=4, checkpoint=settings)
    fed(loader, 8)
    loader._roll_back(7, skip)
    assert loader._move(None, Group(1, 0, 1, None), lambda _, work: work())
    assert (loader.step, loader._batches.cursor.epoch) == (6, 0)
    assert fed(loader, 14) == {step: expected[step] for step in range(7, 15) if step not in skip}


def test_who_comes_after_that_hears_from_the_others_what_is_left_out_and_where_the_epoch_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All read the checkpoint once more that they went back to, and which knows of neither."""
    settings = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0, every_steps=6)
    expected = fed(loader_for(epochs=4, checkpoint=settings), 8)
    comes = loader_for(epochs=4, checkpoint=settings)
    heard = [replace(moving.survey(LONE, [], 6, looks=True)[0], began=((1, 7),), skipped=(8,))]
    monkeypatch.setattr(moving, "survey", lambda *given, **more: heard)
    assert comes._move(None, Group(1, 0, 1, None), lambda _, work: work())
    assert (comes.step, comes._batches.began, comes._skipped) == (6, {1: 7}, {8})
    again = fed(comes, 9)
    assert (again[7], list(again)) == (expected[7], [7, 9])


def test_who_joins_a_recovery_knows_where_the_epochs_began() -> None:
    """All leave out the same, whichever of them has read which checkpoint."""
    surveys = [Survey(began=((1, 7), (2, 14))), Survey(), Survey(began=((1, 7),))]
    assert [Survey.decode(each.encode()) for each in surveys] == surveys
    assert begun(surveys) == {1: 7, 2: 14}
    earlier = Survey.decode(surveys[0].encode().replace(b"-1,", b"0,"))
    assert furthest_whole([earlier]) is None, "one of an earlier release takes them for versions of nobody"


def test_who_knows_that_the_epoch_is_over_goes_back_with_those_who_do_not() -> None:
    """The round in which it is found out changes no shards, and all the same the place in the data."""
    before, after = Version(7, 1, 0), Version(7, 1, 1)
    part = {"weight": Part((4,), "float32", (0,), (4,))}
    half = {"weight": Part((4,), "float32", (0,), (2,))}
    surveys = [Survey(((after, half), (before, part)), (after, before)), Survey(((before, half),), (before,))]
    assert [Survey.decode(each.encode()) for each in surveys] == surveys
    source = choose_source(surveys)
    assert source.version == before
    assert source.is_at(Cursor(7, 0, 84))
    assert not source.is_at(Cursor(7, 1, 0))
    assert not Source(None, 7, Holders()).is_at(Cursor(7, 0, 84)), "its epoch is not known"


def test_rank_0_has_a_say_also_when_its_streams_have_ended() -> None:
    """Else nothing would be saved any more, not even before the run ends."""
    asked: list[int] = []

    def wish(step: int) -> bool:
        asked.append(step)
        return step == 8

    total = ShardedSum(loader_for().model, ShardGroup(0, 1, lambda _: True), wish)
    pieces = [Piece(Cursor(7), number, 0, 4, samples) for number, samples in ((0, 0), (1, 3))]
    others = replace(pieces[1], cursor=Cursor(6))  # as if another rank did it, who is not asked
    total.begin(Step(8, 2, 8, tuple(pieces)), LONE)
    total.begin_piece()
    total.add(replace(pieces[0], is_practice=True), torch.zeros(()), lambda _: None, 0)
    total.begin_piece()
    total.add(others, torch.tensor(2.0), lambda _: None, 0)
    total.set_back()
    totals = total.apply(total.exchange(LONE, 0))
    assert (totals.loss, totals.samples) == (2.0, 3)
    assert (total.agreed, asked) == (True, [8, 8, 7])


def test_what_is_fed_for_practice_is_a_copy() -> None:
    """A loop may change what it gets, and a loss that is no number counts, whatever its weight."""
    rank = Rank(File(7))
    rank.batches._practice = [torch.ones(2)]
    piece = rank.batches.plan(Group(1, 2, 3, None)).pieces[-1]
    assert piece.is_practice
    rank.batches.batch(piece)[0].fill_(float("nan"))
    assert torch.equal(rank.batches.batch(piece)[0], torch.ones(2))
