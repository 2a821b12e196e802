"""Checkpoints of an elastic training: written beside it, committed whole or not at all, checked when read.

This package needs no torch: the coordinator, hp-submit and hp-status ask it which checkpoints there are. What
turns a training's state into files and back (`keeper`, `saver`, `tensors`) is loaded by workers only.
"""

from __future__ import annotations

from hpctools.elastic.checkpoint.measure import Grace, Saved, grace_warning
from hpctools.elastic.checkpoint.place import place_of, resume_source, settings_of
from hpctools.elastic.checkpoint.selection import Found, newest
from hpctools.elastic.checkpoint.settings import Checkpoint, parse, to_json

__all__ = [
    "Checkpoint",
    "Found",
    "Grace",
    "Saved",
    "grace_warning",
    "newest",
    "parse",
    "place_of",
    "resume_source",
    "settings_of",
    "to_json",
]
