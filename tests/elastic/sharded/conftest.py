"""Makes the helpers of this folder, of the one above and of the checkpoint tests importable here."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "checkpoint")]
