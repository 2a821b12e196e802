"""What the pages say of the steps, and what all of them have in common."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.lifecycle.node import CONTROLLER, SCRIPTS, Node

from provision.stepfiles import read_steps  # isort: skip

ROOT = SCRIPTS.parent
STEPS = {path.name: path for path in (SCRIPTS / "steps").iterdir() if path.is_file()}
NAME = re.compile(r"\b\d\d-[a-z][a-z0-9-]+\b")


@pytest.mark.parametrize("page", ["lifecycle-scripts/README.md", "docs/lifecycle.md"])
def test_the_tables_have_every_step_in_order(page: str) -> None:
    rows = [line.split("|")[1] for line in (ROOT / page).read_text().splitlines() if line.startswith("| ")]
    assert [name for row in rows for name in NAME.findall(row) if name in STEPS] == sorted(STEPS)


def test_every_step_is_well_formed_and_limited() -> None:
    for step in read_steps(SCRIPTS / "steps"):
        assert 0 < step.limit <= 3700, step.name
        assert 1 <= step.attempts <= 5, step.name


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_step_is_bash_with_the_prelude_or_python(name: str) -> None:
    lines = STEPS[name].read_text().splitlines()
    if lines[0] == "#!/usr/bin/env bash":
        assert 'source "$HPCTOOLS_BUNDLE/prelude.sh"' in lines
    else:
        assert lines[0] == "#!/usr/bin/env python3"
    assert STEPS[name].stat().st_mode & 0o111 == 0o111


def test_the_scripts_import_the_standard_library_alone(tmp_path: Path) -> None:
    """On a node there is nothing else; -S hides site-packages, -I the environment."""
    node = Node(tmp_path / "node", CONTROLLER)
    modules = sorted(path.stem for path in (SCRIPTS / "provision").glob("*.py"))
    code = f"import sys; sys.path.insert(0, {str(node.bundle)!r})\n" + "".join(
        f"import provision.{name}\n" for name in modules
    )
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", "-B", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_shellcheck_has_nothing_to_say() -> None:
    bash = [*SCRIPTS.glob("*.sh"), *(path for path in STEPS.values() if "bash" in path.read_text()[:30])]
    done = subprocess.run(
        ["shellcheck", "-x", "-P", "SCRIPTDIR:SCRIPTDIR/..", *map(str, bash)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "")
