"""Writing and reading small checkpoints in tests: every tensor is filled with the number of its step."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from hpctools.elastic.checkpoint import reading
from hpctools.elastic.checkpoint.keeper import Keeper, Order
from hpctools.elastic.checkpoint.manifest import digest_of
from hpctools.elastic.checkpoint.measure import Grace, Saved
from hpctools.elastic.checkpoint.restore import newest_state
from hpctools.elastic.checkpoint.saver import Origin, Reports, Saver
from hpctools.elastic.checkpoint.settings import Checkpoint
from hpctools.elastic.checkpoint.store import Store, open_store

RUN = Origin("train-1", 1, 1)


def state_after(step: int, elements: int = 5000) -> dict[str, Any]:
    """A state that tells its step in every element."""
    return {
        "model": {"weight": torch.full((elements,), float(step)), "bias": torch.full((3, 2), float(step))},
        "optimizer": {"state": {0: {"exp_avg": torch.full((elements,), float(step))}}, "groups": [0.1]},
        "cursor": {"step": step},
    }


def assert_is_of(state: Any, step: int) -> None:
    assert state["cursor"] == {"step": step}
    assert state["optimizer"]["groups"] == [0.1]
    tensors = [*state["model"].values(), state["optimizer"]["state"][0]["exp_avg"]]
    assert all(bool((each == step).all()) for each in tensors)


class Heard:
    """Reports of a saver, for a test to look at."""

    def __init__(self) -> None:
        self.saved: list[Saved] = []
        self.warnings: list[str] = []
        self.failed: list[tuple[int, str, str]] = []
        self.fenced: str | None = None

    @property
    def reports(self) -> Reports:
        return Reports(self.saved.append, self.warnings.append, lambda origin: self.fenced, self._on_failed)

    def _on_failed(self, step: int, why: str, reason: str) -> None:
        self.failed.append((step, why, reason))


def write(place: Path | str | Store, *steps: int, keep: int = 100, origin: Origin = RUN) -> Heard:
    """Save the states of some steps, one after the other, and fail if one cannot be saved."""
    heard = Heard()
    store = open_store(str(place)) if isinstance(place, (Path, str)) else place
    saver = Saver(store, keep, heard.reports)
    for step in steps:
        saver.save(state_after(step), step, "test", origin, {"world": 1})
        assert saver.wait(30)
        assert saver.saved_step == step, heard.warnings
    return heard


def read(place: Path | str, most_steps: int | None = None) -> tuple[int | None, list[str]]:
    """The step of the newest whole checkpoint, whose content is checked, and what was said of others."""
    warnings: list[str] = []
    restored = newest_state(str(place), warnings.append, most_steps)
    if restored is None:
        return None, warnings
    assert_is_of(restored.state, restored.found.manifest.step)
    return restored.found.manifest.step, warnings


def rewrite(folder: Path, name: str, content: bytes) -> None:
    """Put something else in a file's place, with manifest and marker as if it had been written so."""
    (folder / name).write_bytes(content)
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    manifest["files"][name] = {"bytes": len(content), "blake2b": digest_of(content)}
    data = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(data)
    (folder / "COMMITTED").write_text(digest_of(data))


class FakeDesk:
    """A worker's place in a run, as a test wants it."""

    def __init__(self) -> None:
        self.saves = True
        self.origin = RUN
        self.grace: Grace | None = Grace(8.0, 8.0)
        self.order: Order | None = None
        self.fenced: str | None = None
        self.has_saved: str | None = None
        self.told: list[tuple[str, dict[str, Any]]] = []

    def fence(self, origin: Origin) -> str | None:
        return self.fenced

    def expected(self) -> str | None:
        return self.has_saved

    def take_order(self) -> Order | None:
        order, self.order = self.order, None
        return order

    def tell(self, kind: str, **fields: Any) -> None:
        self.told.append((kind, fields))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [fields for each, fields in self.told if each == kind]


SAMPLING = {"samples": 100, "batch_size": 10, "shards": 2, "seed": 1}


class Training:
    """A state that a keeper looks after."""

    def __init__(
        self, place: Path | str, settings: Checkpoint, sampling: Mapping[str, Any] = SAMPLING
    ) -> None:
        self.step = 0
        self.desk = FakeDesk()
        self.state = state_after(0)
        self.keeper = Keeper(settings, str(place), self.desk, lambda: self.state, lambda: sampling)

    def go_to(self, *steps: int) -> None:
        for step in steps:
            self.step, self.state = step, state_after(step)
            self.keeper.boundary(step)

    def saved(self) -> list[int]:
        self.keeper._saver.wait(30)
        return [each["step"] for each in self.desk.of("saved")]


class Unwell:
    """Storage that does not give some files, though they are there.

    Attributes:
        names: endings of the paths that cannot be read.
        times: how often; -1: always.
        number: of the error.
        refused: how often it was.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: tuple[str, ...] = ()
        self.times, self.number, self.refused = -1, errno.EIO, 0
        for name in ("open", "read_bytes"):
            self._wrap(name, monkeypatch)
        monkeypatch.setattr(reading, "PAUSES", (0.0,) * 4)

    def refuse(self, *names: str, number: int = errno.EIO, times: int = -1) -> None:
        self.names, self.number, self.times, self.refused = names, number, times, 0

    def _wrap(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        original = getattr(Path, name)

        def wrapped(path: Path, *args: Any, **named: Any) -> Any:
            if str(path).endswith(self.names) and self.names and self.times:
                self.times -= 1
                self.refused += 1
                raise OSError(self.number, os.strerror(self.number), str(path))
            return original(path, *args, **named)

        monkeypatch.setattr(Path, name, wrapped)
