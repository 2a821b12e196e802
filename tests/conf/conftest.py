"""Golden files: whole texts under tests/golden, rewritten only with `pytest tests/conf --update-golden`."""

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected texts")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a golden file; the file is rewritten when --update-golden is given, never else."""
    update = request.config.getoption("--update-golden", default=False)

    def compare(path: Path, text: str) -> None:
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), (
            f"{path} is missing; run pytest tests/conf --update-golden and look at what it says"
        )
        assert text == path.read_text(encoding="utf-8")

    return compare
