"""The house's rules, as tests: who may import whom, one process door, what imports cost, top folders."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slow_list import slow_tests

ROOT = Path(__file__).parents[1]
PACKAGES = ("hpctools", "api")
PROCESS_DOOR = "hpctools/slurm/run.py"
# A program of the sandbox's machines, run by their own Python, where no hpctools is.
# Programs that take the place of others, started by their path and without this package.
STAND_ALONE = {"hpctools/sandbox/hosts/stand_in/systemctl.py", "hpctools/elastic/restart/bound.py"}
BANNED_NAMES = {"utils", "util", "common", "helpers", "misc", "manager"}
LONGEST_FILE = 400


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").split(".")[0])
    return found


def test_imports_point_one_way() -> None:
    """The contracts stand in pyproject.toml, [tool.importlinter]."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "4 kept, 0 broken" in done.stdout


def test_every_slow_test_on_the_list_is_there_and_stands_there_once() -> None:
    listed = slow_tests()
    assert listed == sorted(set(listed))
    names = {path: defined(ROOT / path) for path in {each.partition("::")[0] for each in listed}}
    assert [each for each in listed if each.partition("::")[2] not in names[each.partition("::")[0]]] == []


def defined(path: Path) -> set[str]:
    """The tests of a file, as pytest names them."""
    found, tree = set(), ast.parse(path.read_text())
    for node in tree.body:
        found |= {node.name} if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else set()
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
        if isinstance(node, ast.Assign):  # a state machine of hypothesis
            found |= {f"{target.id}::runTest" for target in node.targets if isinstance(target, ast.Name)}
    return found


def test_only_the_process_door_starts_processes() -> None:
    doors = {"subprocess", "pexpect", "sh", "plumbum"}
    found = {str(path.relative_to(ROOT)) for path in sources(*PACKAGES, "demo") if imported(path) & doors}
    assert found == {PROCESS_DOOR}
    started = ("os.system", "os.popen", "os.spawn", "os.posix_spawn", "os.exec", "create_subprocess")
    callers = {
        str(path.relative_to(ROOT))
        for path in sources(*PACKAGES, "demo")
        if any(word in path.read_text() for word in started)
    }
    assert callers <= {PROCESS_DOOR, *STAND_ALONE}
    for program in STAND_ALONE:
        assert imported(ROOT / program) <= set(sys.stdlib_module_names)


def test_what_runs_before_a_virtual_environment_imports_neither_package() -> None:
    """Only the standard library and what lies beside it; a folder may be called as a package by its name."""
    for folder in ("lifecycle-scripts", "pam"):
        beside = {path.stem for path in (ROOT / folder).rglob("*") if path.is_dir() or path.suffix == ".py"}
        known = (set(sys.stdlib_module_names) | beside | {folder}) - set(PACKAGES)
        foreign = {
            str(path.relative_to(ROOT)): extra
            for path in programs(folder)
            if (extra := imported(path) - known)
        }
        assert foreign == {}


def programs(folder: str) -> Iterator[Path]:
    """Python files, those without an ending too."""
    for path in sorted(
        path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix in ("", ".py")
    ):
        if path.suffix == ".py" or "python" in path.read_text(errors="replace").partition("\n")[0]:
            yield path


def test_there_is_no_python_among_the_configuration_but_the_example_training() -> None:
    found = {path.relative_to(ROOT / "slurm-conf").parts[:3] for path in sources("slurm-conf")}
    assert found == {("examples", "university", "train")}


def test_names_say_what_a_file_is_and_files_stay_short() -> None:
    paths = list(sources(*PACKAGES, "demo", "bench"))
    assert {path.stem for path in paths} & BANNED_NAMES == set()
    long = {
        str(path.relative_to(ROOT)) for path in paths if len(path.read_text().splitlines()) > LONGEST_FILE
    }
    assert long == set()


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("hpctools.elastic", {"torch", "pydantic", "click", "rich", "fastapi"}),
        ("hpctools.elastic.agent", {"torch", "pydantic", "click", "rich", "fastapi"}),
        ("hpctools.cli.hp_submit", {"torch", "pydantic", "click", "rich", "asyncio"}),
        ("hpctools.cli.main", {"torch", "pydantic", "rich", "fastapi", "sqlalchemy"}),
        ("api.app", {"torch", "matplotlib", "moto"}),
    ],
)
def test_imports_stay_cheap(module: str, absent: set[str]) -> None:
    code = f"import sys, {module}; print(*sorted(m for m in {absent!r} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []


def test_the_top_level_is_what_its_user_fixed() -> None:
    wanted = {
        "hpctools",
        "slurm-conf",
        "lifecycle-scripts",
        "pam",
        "api",
        "tests",
        "pyproject.toml",
        "README.md",
    }
    assert {path.name for path in ROOT.iterdir()} >= wanted
