"""`hpctools validate`."""

import json
from pathlib import Path

from click.testing import CliRunner

from hpctools.cli.validate import validate

REFERENCE = Path(__file__).parents[2] / "slurm-conf/examples/university/site.yaml"


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(validate, arguments, standalone_mode=False)
    assert result.exception is None
    return result.return_value, result.stdout


def test_a_good_site_is_summed_up() -> None:
    summary = "uni-gpu has 3 departments, 4 labs, 15 users, 6 compute nodes, 6 tiers"
    assert invoke(str(REFERENCE)) == (0, f"{REFERENCE}: valid; {summary}\n")
    code, told = invoke(str(REFERENCE), "--json")
    assert (code, json.loads(told)) == (0, {"file": str(REFERENCE), "valid": True, "findings": []})


def test_a_bad_site_is_all_its_findings(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("cluster: {name: x, controllers: [a]}\nnode_groups: 3\n")
    lines = [
        "1: departments: found nothing, expected the key 'departments'",
        "1: tiers: found nothing, expected the key 'tiers'",
        "2: node_groups: found 3, expected a list",
    ]
    text = "".join(f"{path}:{line}\n" for line in lines) + f"{path}: 3 findings\n"
    assert invoke(str(path)) == (1, text)
    code, told = invoke(str(path), "--json")
    assert code == 1
    assert json.loads(told)["findings"][2] == {
        "file": str(path),
        "line": 2,
        "path": "node_groups",
        "found": "3",
        "expected": "a list",
        "severity": "error",
    }


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    found = f"{path}: found no such file or directory, expected a readable file"
    assert invoke(str(path)) == (1, f"{found}\n{path}: 1 finding\n")
