"""What the code between a loop's passes may change: objects of any kind; none of them stops a training."""

from __future__ import annotations

import contextlib
import threading
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lone_training import Noisy
from torch import nn

from hpctools import elastic
from hpctools.elastic import batches as batches_module
from hpctools.elastic import passes as passes_module
from hpctools.elastic.passes import UNKNOWN, Passes

BETWEEN = 5
"""What the code after a pass adds."""


class Holder:
    """An object of the training's own, with whatever it calls its state."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("I have no name")


def sparse(value: float = 1.0) -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([value]), (3,), check_invariants=True)


UNDIGESTIBLE = [
    pytest.param(lambda: {"weights": sparse()}, id="a sparse tensor"),
    pytest.param(lambda: [sparse()], id="one in a list"),
    pytest.param(lambda: {"it": Unprintable()}, id="no repr"),
    pytest.param(lambda: {"meta": torch.empty(3, device="meta")}, id="a tensor without values"),
]


def gone_back(parts: dict[str, Holder]) -> None:
    """Two passes, and back into the first; each part's state is changed between them, and lost again."""
    passes = Passes(lambda: parts)
    passes.end(passes.begin())
    before = {name: part.state for name, part in parts.items()}
    parts["counter"].state = {"done": BETWEEN, "steps": 1}
    if "list" in parts:
        parts["list"].state = [1, BETWEEN]
    passes.begin()
    for name, part in parts.items():
        part.state = before[name]
    parts["counter"].state = {"done": 0, "steps": 1}
    passes.restore({"passes": 0}, 0)
    passes.catch_up(1)


def test_a_state_that_is_no_mapping_is_one_value() -> None:
    parts = {"counter": Holder({"done": 0, "steps": 1}), "list": Holder([1])}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gone_back(parts)
    assert parts["counter"].state == {"done": BETWEEN, "steps": 1}
    assert parts["list"].state == [1, BETWEEN]


@pytest.mark.parametrize("state", UNDIGESTIBLE)
def test_what_cannot_be_digested_is_not_noted_and_the_rest_is(state: Any) -> None:
    parts = {"odd": Holder(state()), "counter": Holder({"done": 0, "steps": 1})}
    with pytest.warns(UserWarning, match="over the end of pass 0: what stands after it"):
        gone_back(parts)
    assert parts["counter"].state == {"done": BETWEEN, "steps": 1}


def test_what_cannot_be_copied_is_not_noted_either() -> None:
    parts = {"odd": Holder({}), "counter": Holder({"done": 0, "steps": 1})}
    passes = Passes(lambda: parts)
    passes.end(passes.begin())
    parts["odd"].state = {"lock": threading.Lock()}
    passes.begin()
    passes.restore({"passes": 0}, 0)
    with pytest.warns(UserWarning, match="over the end of pass 0"):
        passes.catch_up(1)


def said(*, known: bool) -> contextlib.AbstractContextManager[Any]:
    """What is not known is said."""
    return contextlib.nullcontext() if known else pytest.warns(UserWarning, match="over the end of pass 0")


@pytest.mark.parametrize("known", [True, False])
def test_who_comes_between_a_roll_back_and_the_passs_end_has_afterwards_what_the_others_have(
    *, known: bool
) -> None:
    """A batch was left out: what its own code makes of the pass is something else. So it goes on."""
    first = {"mean": Holder({"sum": 0, "of": 0})}
    stayed = Passes(lambda: first)
    stayed.end(stayed.begin())
    first["mean"].state = {"sum": BETWEEN, "of": 0} if known else {"sum": sparse(), "of": 0}
    stayed.begin()
    first["mean"].state = {"sum": 0, "of": 0}
    stayed.restore({"passes": 0}, 0)
    second = {"mean": Holder({"sum": 0, "of": 0})}
    came = Passes(lambda: second)
    number = came.begin()
    came.restore(stayed.capture(), 0)
    with said(known=known):
        stayed.catch_up(1)
    came.end(number)
    second["mean"].state = {"sum": BETWEEN + 1, "of": 1}
    with said(known=known):
        came.begin()
    assert second["mean"].state == first["mean"].state == {"sum": BETWEEN if known else 0, "of": 0}
    assert came.counted == stayed.counted == 1
    for passes, parts in ((stayed, first), (came, second)):
        passes.end(1)
        parts["mean"].state = {"sum": 2 * BETWEEN, "of": 0}
        passes.begin()
    assert came.capture() == stayed.capture()


def test_who_comes_before_the_end_of_a_pass_of_which_nothing_is_kept_has_what_the_others_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own code would do again what was not done again for them: two learning rates in one step."""
    monkeypatch.setattr(passes_module, "MOST_KEPT", 1)
    first, second = {"rate": Holder({"epochs": 0})}, {"rate": Holder({"epochs": 0})}
    stayed, came = Passes(lambda: first), Passes(lambda: second)
    for number in range(2):
        stayed.end(stayed.begin())
        first["rate"].state = {"epochs": number + 1}
    stayed.begin()
    first["rate"].state = {"epochs": 0}
    stayed.restore({"passes": 0}, 0)
    number = came.begin()
    came.restore(stayed.capture(), 0)
    with said(known=False):
        stayed.catch_up(1)
    came.end(number)
    second["rate"].state = {"epochs": 1}
    with said(known=False):
        came.begin()
    assert second["rate"].state == first["rate"].state == {"epochs": 0}


def test_what_was_noted_of_an_object_that_the_script_has_no_more_is_passed_over() -> None:
    parts = {"counter": Holder({"done": 0})}
    passes = Passes(lambda: parts)
    passes.end(passes.begin())
    passes.begin()
    noted = {"average": {"done": BETWEEN}, "counter": {"done": BETWEEN}}
    passes.restore({"passes": 0, "between": {0: noted}}, 0)
    passes.catch_up(1)
    assert parts["counter"].state == {"done": BETWEEN}


class Uncopied(torch.Tensor):
    """One that is not to be in memory twice."""

    def __deepcopy__(self, memo: Any) -> Any:
        pytest.fail("it was copied")


def test_what_is_larger_than_all_that_is_kept_is_not_even_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be in each snapshot, checkpoint and transfer. Two objects are too large together, too."""
    monkeypatch.setattr("hpctools.elastic.passes.MOST_BYTES", 100)
    small, large = torch.ones(20), torch.ones(26).as_subclass(Uncopied)
    parts = {name: Holder({"w": torch.zeros(1)}) for name in ("mean", "first", "second")}
    passes = Passes(lambda: parts)
    passes.end(passes.begin())
    for part, value in zip(parts.values(), (large, small, small.as_subclass(Uncopied)), strict=True):
        part.state = {"w": value}
    passes.begin()
    assert passes.capture()["between"] == {0: {UNKNOWN: {}, "first": {"w": pytest.approx(small)}}}
    parts["first"].state = {"w": torch.zeros(1)}
    passes.restore({"passes": 0}, 0)
    with pytest.warns(UserWarning, match="over the end of pass 0"):
        passes.catch_up(1)
    assert torch.equal(parts["first"].state["w"], small)


def test_in_passes_that_are_run_through_again_all_is_undone_but_what_cannot_be_copied() -> None:
    parts = {"list": Holder([1]), "odd": Holder({"lock": threading.Lock()})}
    passes = Passes(lambda: parts)
    passes.restore({"passes": 1}, 1)
    with pytest.warns(UserWarning, match="done again to the odd, which cannot be copied: TypeError"):
        passes.end(passes.begin())
    parts["list"].state = [1, BETWEEN]
    passes.begin()
    assert parts["list"].state == [1]


@pytest.mark.parametrize("snapshots", [0, 3])
def test_a_training_by_itself_ends_with_any_state(snapshots: int) -> None:
    model = nn.Linear(6, 1)
    odd = {"list": Holder([1]), "sparse": Holder({"weights": sparse()})}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = elastic.Checkpoint(snapshots=snapshots, every_seconds=0) if snapshots else None
    loader = elastic.Loader(
        model, optimizer, Noisy(8), batch_size=4, epochs=2, shards=2, state=odd, checkpoint=settings
    )
    for _ in range(2):
        for _, inputs in loader:
            if loader.backward(model(inputs).mean()):
                optimizer.step()
    assert loader.step == 4


def test_by_itself_and_without_checkpoints_nothing_is_noted() -> None:
    """A training goes back only to what was saved or is somebody else's: its state is not even asked for."""
    passes = Passes(lambda: pytest.fail("the state was asked for"))
    for _ in range(3):
        passes.end(passes.begin(), goes_back=False)
    assert passes.capture() == {"passes": 2, "between": {}}


@pytest.mark.parametrize("looks", [0, 2])
def test_a_look_at_a_batch_is_no_pass(looks: int) -> None:
    """As for a summary of the model: what stands after each epoch in the loop comes after each epoch."""
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = elastic.Loader(model, optimizer, Noisy(8), batch_size=4, epochs=2, shards=2)
    held = []
    for _ in range(looks):
        held.append(iter(loader))
        assert next(held[-1])[1].shape == (2, 6)
    steps = []
    for _ in range(2):
        for _, inputs in loader:
            loader.backward(model(inputs).mean())
        steps.append(loader.step)
    assert steps == [2, 4]


def test_what_stands_after_passes_that_are_run_through_does_not_pile_up() -> None:
    """A scheduler with a table of ten goes from 6 to 7 each time, and not over the table's end."""
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    table = [1 / (number + 1) for number in range(10)]
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: table[epoch])
    scheduler.load_state_dict({**scheduler.state_dict(), "last_epoch": 6, "_step_count": 7})
    passes = Passes(lambda: {"scheduler": scheduler})
    seen = []
    for number in range(6):
        passes.begin()
        if number == 0:
            passes.restore({"passes": 6}, 6)
        passes.end(number)
        optimizer.step()
        scheduler.step()
        seen.append(scheduler.last_epoch)
    passes.begin()
    assert (seen, scheduler.last_epoch) == ([7] * 6, 6)


@pytest.mark.parametrize(
    ("state", "puts"),
    [
        ({"mean": torch.zeros(1)}, 3),
        ({"mean": torch.zeros(2 + passes_module.SMALL_BYTES // 4)}, 1),
        ({"mean": torch.zeros(1), "seen": [[0.0] * 1000] * 3}, 3),
        ({"mean": torch.zeros(1), "seen": [float(number) for number in range(1 << 17)]}, 1),
        ({"mean": torch.zeros(1), "way": lambda: None}, 1),  # nobody knows how large it is
    ],
)
def test_a_large_object_is_put_back_once(state: Any, puts: int) -> None:
    """An average of weights, or a history, would be copied in each of many passes, all others waiting."""

    class Average(Holder):
        loads = 0

        def load_state_dict(self, state: Any) -> None:
            super().load_state_dict(state)
            self.loads += 1

    average = Average(state)
    passes = Passes(lambda: {"average": average})
    for number in range(3):
        passes.begin()
        if number == 0:
            passes.restore({"passes": 3}, 3)
        passes.end(number)
        average.state = {**average.state, "mean": average.state["mean"] + 1}
    passes.begin()
    assert (average.loads, float(average.state["mean"].sum())) == (puts, 0.0)


def test_a_pass_that_was_over_before_is_known_until_the_next_one_begins() -> None:
    passes = Passes(lambda: {"counter": Holder({"done": 0})})
    seen = []
    for number in range(4):
        passes.begin()
        seen.append(passes.replays)
        if number == 0:
            passes.restore({"passes": 2}, 2)
        passes.end(number)
        seen.append(passes.replays)
    assert seen == [False, True, False, True, False, False, False, False]


def test_the_rest_of_a_pass_that_others_had_ended_before_they_went_back_is_known_too() -> None:
    parts = {"counter": Holder({"done": 0})}
    stayed, came = Passes(lambda: parts), Passes(lambda: {"counter": Holder({"done": 0})})
    stayed.end(stayed.begin())
    stayed.begin()
    stayed.restore({"passes": 0}, 0)
    number = came.begin()
    came.restore(stayed.capture(), 0)
    came.end(number)
    stayed.end(1)
    assert (came.replays, stayed.replays) == (True, False)


def test_a_loader_that_resumes_tells_which_passes_were_over(tmp_path: Path) -> None:
    """What stands after `if loader.replays: continue` is done once for each epoch, whoever does it."""
    done = []
    for until in (5, None):  # of six steps, in three epochs
        model = nn.Linear(6, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        settings = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0, every_steps=1)
        loader = elastic.Loader(
            model, optimizer, Noisy(8), batch_size=4, epochs=3, shards=2, checkpoint=settings
        )
        for epoch in range(3):
            for _, inputs in loader:
                assert not loader.replays
                if loader.backward(model(inputs).mean()):
                    optimizer.step()
                assert loader._keeper is not None
                assert loader._keeper._saver.wait(30), "so that step 4 is saved"
                if loader.step == until:
                    break
            if loader.replays:
                continue
            if loader.step != until:
                done.append((epoch, loader.step))
    assert done == [(0, 2), (1, 4), (2, 6)]


def test_a_loop_without_an_end_is_refused_once_all_epochs_are_done() -> None:
    """`while loader.step < 10000:` with too few epochs went round for ever."""
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = elastic.Loader(model, optimizer, Noisy(8), batch_size=4, epochs=2, shards=2)
    for _ in range(2):
        for _, inputs in loader:
            loader.backward(model(inputs).mean())
    with pytest.warns(RuntimeWarning, match=r"pass 3, and .* 2 epochs is complete \(step 4\): it is empty; "):
        assert list(loader) == []
    for _ in range(998):
        assert list(loader) == []
    with pytest.raises(elastic.ElasticError, match=r"begins pass 1002, and .* complete \(step 4\); "):
        next(iter(loader))


def test_a_training_that_was_complete_is_run_through_in_as_many_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replayed, loaders = [], []
    for _ in range(2):
        model = nn.Linear(6, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = elastic.Loader(model, optimizer, Noisy(8), batch_size=4, epochs=2, shards=2)
        if loaders:
            monkeypatch.setattr(loader, "_begin", partial(loader._load, loaders[0]._capture()))
        loaders.append(loader)
        for _ in range(2):
            for _, inputs in loader:
                loader.backward(model(inputs).mean())
            replayed.append((loader.step, loader.replays))
    assert replayed == [(2, False), (4, False), (4, True), (4, False)]  # code after the last is to come
    with pytest.warns(RuntimeWarning, match="begins pass 3"):
        assert list(loaders[1]) == []


def test_a_loop_of_many_short_passes_is_told_once_when_its_training_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Passes that were left by `break` are none too many; who resumes runs through them without a word."""
    monkeypatch.setattr(batches_module, "MOST_EMPTY", 3)
    loaders: list[elastic.Loader] = []
    for _ in range(2):
        model = nn.Linear(6, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = elastic.Loader(model, optimizer, Noisy(16), batch_size=2, epochs=1, shards=2)
        if loaders:
            monkeypatch.setattr(loader, "_begin", partial(loader._load, loaders[0]._capture()))
        loaders.append(loader)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(8):
                for _, inputs in loader:
                    if loader.backward(model(inputs).mean()):
                        break
        assert loader.step == 8
    for loader in loaders:
        with pytest.warns(RuntimeWarning, match="and the training of 1 epochs is complete"):
            assert list(loader) == []
        assert list(loader) == []
        with pytest.raises(elastic.ElasticError, match="begins pass 11,"):
            next(iter(loader))
