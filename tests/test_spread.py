"""What runs in one process when tests run in several."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spread import scope

ROOT = Path(__file__).parents[1]
IDS = [
    ("tests/system/test_plan.py::test_it", "tests/system/test_plan.py"),
    ("tests/system/test_plan.py::test_it[24.11]", "tests/system/test_plan.py 24.11"),
    ("tests/system/test_plan.py::test_it[own]", "tests/system/test_plan.py own"),
    ("tests/system/test_gpus.py::test_it[26.05---gpus=1]", "tests/system/test_gpus.py 26.05"),
    ("tests/system/test_gpus.py::test_it[shard-26.05]", "tests/system/test_gpus.py 26.05"),
    ("tests/site/test_load.py::TestIt::test_it[a::b]", "tests/site/test_load.py"),
    ("tests/site/test_load.py::test_it[known-1.24.11x]", "tests/site/test_load.py"),
]


@pytest.mark.parametrize(("test", "wanted"), IDS)
def test_tests_of_a_file_and_release_stay_together(test: str, wanted: str) -> None:
    assert scope(test) == wanted


def test_they_do_when_tests_run_in_two_processes() -> None:
    """The plugin counts only if it is registered in time: once it was not, and nothing told."""
    argv = [sys.executable, "-m", "pytest", "-n2", "-v", "-k", "stay_together", str(Path(__file__))]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100, check=True)
    workers = re.findall(r"^\[(gw\d)\].* PASSED ", done.stdout, re.MULTILINE)
    assert len(workers) == len(IDS)
    assert len(set(workers)) == 1
