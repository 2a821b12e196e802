"""A training by itself that is interrupted, begins again from its checkpoint, or is rolled back."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpctools import elastic
from hpctools.elastic import passes
from hpctools.elastic.sampling import Cursor, Sampling
from hpctools.errors import ElasticError

SAMPLES, BATCH, EPOCHS, SEED = 45, 8, 3, 5
STEPS = EPOCHS * 6  # the last batch of an epoch has 5 samples


class Points:
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.sin(torch.arange(6) * (index + 1.0))
        return inputs, inputs[:2].sum().reshape(1)


class Training:
    """One process's training, as a script has it."""

    each_epoch = False

    def __init__(self, checkpoint: elastic.Checkpoint | None, seed: int = 0, **options: Any) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.2), nn.Linear(12, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.95)
        self.losses: dict[int, str] = {}
        self.rates: dict[int, float] = {}
        self.loader = elastic.Loader(
            self.model,
            self.optimizer,
            Points(),
            **{"batch_size": BATCH, "epochs": EPOCHS, "seed": SEED, "shards": 2, **options},
            scheduler=self.scheduler,
            checkpoint=checkpoint,
        )

    def run(self, until: int | None = None, on_step: Any = lambda step: None) -> Training:
        """Train; `until` so many steps, as if the process was killed then."""
        loader = self.loader
        for _ in range(EPOCHS):
            for inputs, targets in loader:
                loss = nn.functional.mse_loss(self.model(inputs), targets)
                if not loader.backward(loss):
                    continue
                self.optimizer.step()
                if not self.each_epoch:
                    self.scheduler.step()
                self.optimizer.zero_grad()
                self.losses[loader.step] = loader.loss.hex()
                self.rates[loader.step] = self.optimizer.param_groups[0]["lr"]
                on_step(loader.step)
                if loader._keeper is not None:
                    assert loader._keeper._saver.wait(30), "so that each save is begun"
                if loader.step == until:
                    return self
            if self.each_epoch:
                self.between()
        return self

    def between(self) -> None:
        """What stands after a pass."""
        self.scheduler.step()

    def same_as(self, other: Training) -> bool:
        mine, others = self.model.state_dict(), other.model.state_dict()
        exact = all(torch.equal(mine[name], others[name]) for name in others)
        return exact and self.scheduler.get_last_lr() == other.scheduler.get_last_lr()


class EachEpoch(Training):
    """The most usual loop: the scheduler moves after each pass."""

    each_epoch = True


@pytest.mark.slow
@pytest.mark.parametrize("until", [3, 6, 7, 8, 12, 13, 14, STEPS])
def test_what_stands_after_a_pass_is_done_once_for_each(tmp_path: Path, until: int) -> None:
    """Who begins in a later epoch goes through the earlier passes again, with nothing to feed."""
    plain = EachEpoch(None).run()
    place = elastic.Checkpoint(folder=str(tmp_path), every_steps=1)
    EachEpoch(place).run(until)
    again = EachEpoch(place, seed=1).run()
    assert again.loader.step == STEPS
    assert again.optimizer.param_groups[0]["lr"] == plain.optimizer.param_groups[0]["lr"]
    assert again.same_as(plain)


def rolled_back(training: Training, when: dict[int, int]) -> Training:
    """After step `when` to the newest snapshot of at most the step that it says, once each."""
    left = dict(when)

    def go_back(step: int) -> None:
        if step in left:
            assert training.loader._roll_back(left.pop(step), [])

    return training.run(on_step=go_back)


@pytest.mark.parametrize(
    "when", [{8: 4}, {8: 6}, {14: 5}, {STEPS: 3}, {8: 3, 9: 5, 14: 11}, {15: 4, 5: 5}, {14: 13}, {7: 2}]
)
def test_what_stands_after_a_pass_is_done_again_after_a_roll_back_over_its_end(when: dict[int, int]) -> None:
    """Six steps a pass; one pass or two back, from the last step, again and again, within a pass.

    The rate is looked at in each step: it changes at the epochs' ends, not with the next pass.
    """
    plain = EachEpoch(None).run()
    settings = elastic.Checkpoint(snapshots=20, snapshot_steps=1, every_seconds=0)
    rolled = rolled_back(EachEpoch(settings), when)
    assert (rolled.losses, rolled.rates) == (plain.losses, plain.rates)
    assert rolled.scheduler.state_dict() == plain.scheduler.state_dict()
    assert rolled.same_as(plain)


# Who joins just before the end of the first pass has taken no step of its own, which torch finds odd.
@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler.step")
@pytest.mark.parametrize("joins_at", [4, 5, 6, 7])
def test_who_joins_between_a_roll_back_and_the_epochs_end_does_what_stands_there(joins_at: int) -> None:
    """From step 9 back to 4, in the second pass; of a state of step 5, or 6, the first one has not ended."""
    plain = EachEpoch(None).run()
    rolled = EachEpoch(elastic.Checkpoint(snapshots=20, snapshot_steps=1, every_seconds=0))
    again, seen = EachEpoch(None, seed=1), []

    def go_on(step: int) -> None:
        seen.append(step)
        if step == 9 and seen.count(9) == 1:
            assert rolled.loader._roll_back(4, [])
        if 9 in seen and rolled.loader.step == joins_at:
            again.loader._load(copy.deepcopy(rolled.loader._capture()))

    assert rolled.run(on_step=go_on).same_as(plain)
    assert again.run().same_as(plain)
    assert list(again.losses) == list(range(joins_at + 1, STEPS + 1))


class Averaged(EachEpoch):
    """After each pass the weights are averaged, as SWA does; in each step a counter moves."""

    def __init__(self, checkpoint: elastic.Checkpoint | None) -> None:
        self.mean = torch.optim.swa_utils.AveragedModel(nn.Linear(6, 12))
        self.steps = Counting()
        super().__init__(checkpoint, state={"mean": self.mean, "steps": self.steps})
        self.mean.load_state_dict(torch.optim.swa_utils.AveragedModel(self.model[0]).state_dict())

    def between(self) -> None:
        self.scheduler.step()
        self.mean.update_parameters(self.model[0])

    def run(self, until: int | None = None, on_step: Any = lambda step: None) -> Training:
        def counted(step: int) -> None:
            self.steps.number += 1
            on_step(step)

        return super().run(until, counted)


class Counting:
    """Moves with the state."""

    number = 0

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.number = state["number"]


def test_only_what_the_code_between_passes_has_changed_is_put_back() -> None:
    plain = Averaged(None)
    plain.run()
    rolled = Averaged(elastic.Checkpoint(snapshots=20, snapshot_steps=1, every_seconds=0))
    rolled_back(rolled, {8: 3, 15: 11})
    assert rolled.steps.number == plain.steps.number == STEPS
    mine, others = rolled.mean.state_dict(), plain.mean.state_dict()
    assert all(torch.equal(mine[name], others[name]) for name in others)
    assert rolled.same_as(plain)


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler.step")
def test_who_joins_after_a_roll_back_that_leaves_a_batch_out_has_all_that_the_others_have() -> None:
    """What stands after the pass makes something else of the weights now; a resize would mix the two."""
    rolled = Averaged(elastic.Checkpoint(snapshots=20, snapshot_steps=1, every_seconds=0))
    again = Averaged(None)

    def go_on(step: int) -> None:
        if step == 9 and not rolled.loader._skipped:
            assert rolled.loader._roll_back(4, [5])
            again.loader._load(copy.deepcopy(rolled.loader._capture()))

    rolled.run(on_step=go_on)
    assert again.run().same_as(rolled)
    mine, others = again.mean.state_dict(), rolled.mean.state_dict()
    assert all(torch.equal(mine[name], others[name]) for name in others)


def test_going_back_further_than_is_known_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MOST_KEPT", 1)
    settings = elastic.Checkpoint(snapshots=20, snapshot_steps=1, every_seconds=0)
    with pytest.warns(UserWarning, match="over the end of pass 0: what stands after it"):
        rolled_back(EachEpoch(settings), {14: 5})


def test_what_a_pass_has_changed_is_kept_within_a_bound_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who goes back over an older one, or one that is too large, is told that it was not done again."""
    settings = elastic.Checkpoint(snapshots=20, snapshot_steps=1, every_seconds=0)
    mean = sum(each.nbytes for each in Averaged(None).mean.state_dict().values())
    monkeypatch.setattr(passes, "MOST_BYTES", mean)
    rolled_back(Averaged(settings), {15: 11})
    with pytest.warns(UserWarning, match="over the end of pass 0: what stands after it"):
        rolled_back(Averaged(settings), {14: 5})
    monkeypatch.setattr(passes, "MOST_BYTES", mean - 1)
    with pytest.warns(UserWarning, match="over the end of pass 1: what stands after it"):
        rolled_back(Averaged(settings), {15: 11})


@pytest.fixture(scope="module")
def undisturbed() -> Training:
    return Training(None).run()


@pytest.mark.parametrize("until", [4, 6, 7, 13, 17])
def test_interrupted_training_ends_with_the_same_bits(
    tmp_path: Path, undisturbed: Training, until: int
) -> None:
    """In the middle and at the ends of epochs; what begins again has other random weights at first."""
    settings = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0, every_steps=3)
    Training(settings).run(until)
    resumed = Training(settings, seed=until).run()
    first = min(resumed.losses)
    assert until == 1 or 1 < first <= until
    assert (
        resumed.losses == {step: undisturbed.losses[step] for step in range(first, STEPS + 1)} or until == 1
    )
    assert resumed.same_as(undisturbed) or until == 1


def test_interrupted_again_and_again(tmp_path: Path, undisturbed: Training) -> None:
    settings = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0, every_steps=1, keep=1)
    losses: dict[int, str] = {}
    for life in range(1, STEPS + 1):
        training = Training(settings, seed=life if life > 1 else 0)
        losses |= training.run(min(life * 2, STEPS)).losses
    assert losses == undisturbed.losses
    assert training.same_as(undisturbed)


def test_a_training_by_itself_says_from_where_it_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a second training in the folder of another one would do few steps, or none, without a word."""
    settings = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0, every_steps=2)
    Training(settings).run(until=3)
    assert capsys.readouterr().err == ""
    Training(settings).run(until=3)
    assert capsys.readouterr().err == f"elastic: goes on after step 2, from {tmp_path}/step-000000002\n"


def test_new_folder_from_an_old_one(tmp_path: Path, undisturbed: Training) -> None:
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    Training(elastic.Checkpoint(folder=old, every_seconds=0, every_steps=4)).run(9)
    settings = elastic.Checkpoint(folder=new, every_seconds=0, every_steps=4, resume_from=old)
    resumed = Training(settings, seed=3).run()
    assert min(resumed.losses) == 9
    assert resumed.same_as(undisturbed)
    assert sorted(path.name for path in Path(old).iterdir()) == ["step-000000004", "step-000000008"]


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_of_a_data_set_that_has_become_smaller_the_next_epoch_comes(
    tmp_path: Path, mode: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = elastic.Checkpoint(folder=str(tmp_path), every_steps=1)
    Training(folder, mode=mode).run(until=5)  # saved after 4, that is after 32 of 45 samples
    monkeypatch.setattr(Points, "__len__", lambda self: 20)
    loader = Training(folder, mode=mode).run().loader
    assert loader.step == 4 + 2 * 3
    assert "samples was 45 and is 20" in capsys.readouterr().err


def test_checkpoint_of_another_model_is_said(tmp_path: Path) -> None:
    settings = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0, every_steps=1)
    training = Training(settings)
    training.run(3)
    training.model[0] = nn.Linear(6, 13)
    with pytest.raises(ElasticError, match=r"the newest checkpoint does not fit this training: .*size mism"):
        Training.run(training_with(training.model, settings), 1)


def training_with(model: nn.Module, settings: elastic.Checkpoint) -> Training:
    training = Training(settings)
    training.loader._stateful["model"] = model
    return training


def test_rolled_back_training_is_one_that_never_saw_the_batch(tmp_path: Path) -> None:
    """At step 11 all go back to at most step 9, that is to the snapshot of step 8, and leave out step 10."""

    def go_back(step: int) -> None:
        if step == 11 and not rolled.loader._skipped:
            assert rolled.loader._roll_back(9, [10])
            assert rolled.loader.step == 8

    settings = elastic.Checkpoint(snapshots=2, snapshot_steps=4, every_seconds=0)
    rolled = Training(settings)
    rolled.run(on_step=go_back)
    without = Training(None)
    without.loader._skipped = frozenset({10})
    without.run()
    assert list(rolled.losses) == [*range(1, STEPS + 1)]
    assert list(without.losses) == [*range(1, 10), *range(11, STEPS + 1)]
    assert {step: loss for step, loss in rolled.losses.items() if step != 10} == without.losses
    assert rolled.same_as(without)
    assert rolled.loader._samples_done == without.loader._samples_done == SAMPLES * EPOCHS - BATCH


@pytest.mark.parametrize("second", [9, 13])
def test_rolled_back_twice_is_as_good_as_once(tmp_path: Path, second: int) -> None:
    """To the same snapshot again, or to one that was taken into the same memory after the first time."""

    def go_back(step: int) -> None:
        if step == 11 and not rolled.loader._skipped:
            assert rolled.loader._roll_back(9, [10])
        elif step == second + 2 and len(rolled.loader._skipped) == 1:
            assert rolled.loader._roll_back(second, [second + 2])

    rolled = Training(elastic.Checkpoint(snapshots=1, snapshot_steps=4, every_seconds=0))
    rolled.run(on_step=go_back)
    without = Training(None)
    without.loader._skipped = rolled.loader._skipped
    without.run()
    assert rolled.loader._skipped == {10, second + 2}
    assert rolled.same_as(without)
    mine, others = (each.optimizer.state_dict()["state"] for each in (rolled, without))
    assert all(torch.equal(mine[key][name], others[key][name]) for key in others for name in others[key])


def test_skipped_batch_is_the_one_that_the_step_would_have_taken() -> None:
    """By a plain loop over the same order that leaves steps 2, 6 (an epoch's last) and 18 (the last) out."""
    skipped = {2, 6, STEPS}
    torch.manual_seed(0)
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = elastic.Loader(model, optimizer, Points(), batch_size=BATCH, epochs=EPOCHS, seed=SEED, shards=1)
    loader._skipped = frozenset(skipped)
    seen = []
    for _ in range(EPOCHS):
        for inputs, targets in loader:
            if loader.backward(nn.functional.mse_loss(model(inputs), targets)):
                optimizer.step()
                optimizer.zero_grad()
                seen.append(loader.indices)
    sampling, cursor = Sampling(SAMPLES, BATCH, 1, EPOCHS, SEED), Cursor()
    torch.manual_seed(0)
    plain = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    expected = []
    while not sampling.is_over(cursor):
        if cursor.step + 1 not in skipped:
            low, high = sampling.batch(cursor)
            expected.append(sampling.permutation(cursor.epoch)[low:high].tolist())
            pairs = [Points()[index] for index in expected[-1]]
            inputs, targets = (torch.stack(each) for each in zip(*pairs, strict=True))
            nn.functional.mse_loss(plain(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
        cursor = sampling.after(cursor)
    assert seen == expected
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))


def test_skipped_steps_are_in_the_checkpoint(tmp_path: Path) -> None:
    settings = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0, every_steps=1)
    training = Training(settings)
    training.loader._skipped = frozenset({9})
    training.run(5)
    resumed = Training(settings, seed=2).run()
    assert 9 not in resumed.losses
    assert 10 in resumed.losses


def test_without_a_folder_and_a_run_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither beside the script nor anywhere: snapshots are in memory, and `resume_from` is only read."""
    monkeypatch.chdir(tmp_path)
    Training(elastic.Checkpoint(snapshots=2, every_steps=1)).run(until=4)
    assert list(tmp_path.iterdir()) == []
