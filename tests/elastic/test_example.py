"""The example training: five changed lines, and it runs."""

from __future__ import annotations

import ast
import difflib
import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "slurm-conf" / "examples" / "university" / "train"
SMALL = ("--steps", "3", "--batch", "6", "--size", "16", "--layers", "1", "--context", "8")


def code_lines(name: str) -> list[str]:
    """The program without its docstring and its empty lines."""
    text = (EXAMPLE / name).read_text()
    first = ast.parse(text).body[1].lineno
    return [line for line in text.splitlines()[first - 1 :] if line.strip()]


def test_at_most_five_lines_are_changed() -> None:
    """A replaced line counts once, a line too many counts too, on either side."""
    matcher = difflib.SequenceMatcher(
        a=code_lines("plain_train.py"), b=code_lines("train.py"), autojunk=False
    )
    changed = sum(
        max(a_high - a_low, b_high - b_low)
        for tag, a_low, a_high, b_low, b_high in matcher.get_opcodes()
        if tag != "equal"
    )
    assert changed == 5


def run(name: str, *options: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / name), *SMALL, *options],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.splitlines()


def test_both_train_and_the_elastic_one_tells_its_size(tmp_path: Path) -> None:
    plain = run("plain_train.py")
    assert [bool(re.fullmatch(r"loss \d\.\d{6}", line)) for line in plain] == [True] * 3
    weights = tmp_path / "weights.pt"
    elastic = run("train.py", "--save", str(weights))
    assert [re.sub(r"\d\.\d{6}", "X", line) for line in elastic] == [
        f"epoch 0 step {step} loss X world 1" for step in (1, 2, 3)
    ]
    assert weights.exists()
