"""Golden files: whole texts under tests/golden/hyperpod, rewritten only with `--update-golden`."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden/hyperpod"


def pytest_addoption(parser: pytest.Parser) -> None:
    with suppress(ValueError):  # tests/conf has the option too
        parser.addoption("--update-golden", action="store_true", help="rewrite the expected texts")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a golden file; the file is rewritten when --update-golden is given, never else."""
    update = request.config.getoption("--update-golden", default=False)

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing; run pytest tests/hyperpod --update-golden and look at it"
        assert text == path.read_text(encoding="utf-8")

    return compare
