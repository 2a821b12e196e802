"""The one entry, `./dev`, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_virtual_environment_that_was_interrupted_is_made_anew(tmp_path: Path) -> None:
    """It is a python without pip then, and every later ./dev ended with "No module named pip"."""
    for name in ("dev", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    made = tmp_path / ".venv" / "bin"
    made.mkdir(parents=True)
    (made / "python").symlink_to("/usr/bin/python3")
    (made.parent / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    stand_in = tmp_path / "bin" / "dpkg-query"
    stand_in.parent.mkdir()
    stand_in.write_text("#!/bin/sh\nprintf installed\n")
    stand_in.chmod(0o755)
    path = f"{stand_in.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [tmp_path / "dev", "check"],
        env={**os.environ, "PATH": path, "PIP_NO_INDEX": "1"},  # nothing can be installed, which ends it
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "dev: virtual environment ... done" in done.stderr
    assert "No module named pip" not in done.stderr
