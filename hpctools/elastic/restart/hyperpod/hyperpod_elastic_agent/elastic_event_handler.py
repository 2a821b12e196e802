"""`elastic_event_detected` where scripts that were written for HyperPod import it from."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

__all__ = ["elastic_event_detected"]

_NAME = "hpctools.elastic.restart.events"

if TYPE_CHECKING:
    from hpctools.elastic.restart.events import elastic_event_detected


def _by_path() -> Callable[[int], bool]:
    """The function from our own file: the user's interpreter may have no hpctools, or another one."""
    if _NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).parents[2] / "events.py")
        if spec is None or spec.loader is None:
            raise ImportError(f"{_NAME} lies beside no {__file__}")
        module = sys.modules[_NAME] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    found: Callable[[int], bool] = sys.modules[_NAME].elastic_event_detected
    return found


if not TYPE_CHECKING:
    elastic_event_detected = _by_path()
