"""The clients' contract on the other releases: the same tests, run where that release is installed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.system.harness import Cluster

ROOT = Path(__file__).parents[2]


@pytest.mark.releases
def test_the_contract_is_kept_on_another_release(slurm_release: str, request: pytest.FixtureRequest) -> None:
    if not slurm_release:
        pytest.skip("on this machine's own release tests/slurm/test_contract.py runs by itself")
    small: Cluster = request.getfixturevalue("small")
    words = ["-m", "pytest", "-q", "--slow", "-p", "no:cacheprovider"]
    words += [f"--rootdir={ROOT}", f"-c={ROOT}/pyproject.toml"]
    contract = str(ROOT / "tests" / "slurm" / "test_contract.py")
    done = small.inside(sys.executable, *words, contract, timeout=200, check=False)
    assert done.code == 0, done.stdout[-4000:] + done.stderr[-1000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 19
