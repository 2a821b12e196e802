"""A state that became something which cannot be read back takes no sound checkpoint's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint_rig import RUN, Heard, read, state_after

from hpctools.elastic.checkpoint.saver import Saver
from hpctools.elastic.checkpoint.store import open_store
from hpctools.elastic.sharded.part_files import write_plain
from hpctools.errors import ElasticError

PLACE = r"state\['history'\]\['losses'\]\[0\], of type numpy\.ndarray, cannot be saved"


def state_with(value: object, step: int = 2) -> dict[str, Any]:
    return {**state_after(step), "state history": {"losses": [value], "last": (1, torch.ones(2))}}


def test_the_one_before_stays_and_the_place_is_told(tmp_path: Path) -> None:
    """As when an object collects numpy's arrays from the second epoch on."""
    heard = Heard()
    saver = Saver(open_store(str(tmp_path)), 1, heard.reports)
    for step, value in ((1, 0.5), (2, np.ones(3))):
        saver.save(state_with(value, step), step, "interval", RUN, {})
        assert saver.wait(30)
    assert saver.saved_step == 1
    ((step, why, reason),) = heard.failed
    assert (step, why) == (2, "interval")
    assert reason.startswith("state['history']['losses'][0], of type numpy.ndarray, cannot be saved or moved")
    assert read(tmp_path) == (1, [])


def test_an_object_s_tensors_and_numpy_s_numbers_are_saved(tmp_path: Path) -> None:
    saver = Saver(open_store(str(tmp_path)), 1, Heard().reports)
    saver.save(state_with([torch.ones(2), np.float64(0.5)]), 2, "interval", RUN, {})
    assert saver.wait(30)
    assert read(tmp_path) == (2, [])


def test_what_is_not_sharded_is_not_written_either(tmp_path: Path) -> None:
    with pytest.raises(ElasticError, match=PLACE):
        write_plain(tmp_path, state_with(np.ones(3)))
    assert list(tmp_path.iterdir()) == []
    assert write_plain(tmp_path, state_with([torch.ones(2), "text"]))
