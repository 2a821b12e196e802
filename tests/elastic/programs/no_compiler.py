"""To be imported by training programs that compile nothing: torch then does not import its compiler.

Its optimizers do at their first step, to keep the compiler's hands off it. That takes 1.3 s of a core in each
worker, a third of its start, and the tests start hundreds.
"""

import sys
from types import ModuleType
from typing import Any

import torch

stand_in: Any = ModuleType("torch._dynamo")
stand_in.graph_break = lambda: None
stand_in.disable = lambda fn, *_, **__: fn
sys.modules["torch._dynamo"] = torch._dynamo = stand_in
