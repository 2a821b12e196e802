"""`hpctools validate`."""

import json
from pathlib import Path

from click.testing import CliRunner

from hpctools.cli.validate import validate

CENTRE = Path(__file__).parents[2] / "slurm-conf/examples/centre/site.yaml"
TWO_CONTROLLERS = """\
cluster: {name: x, controllers: [a, b]}
node_groups: [{name: n, instance_type: m5.large, count: 1}]
departments: [{name: bio, supervisor: ada, partition: {node_groups: [n]}}]
tiers: {normal: {priority: 1, default: true}}
"""


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(validate, arguments, standalone_mode=False)
    assert result.exception is None
    return result.return_value, result.stdout


def test_a_good_site_is_summed_up() -> None:
    summary = "centre has 2 departments, 2 labs, 8 users, 74 compute nodes, 2 tiers"
    assert invoke(str(CENTRE)) == (0, f"{CENTRE}: valid; {summary}\n")
    code, told = invoke(str(CENTRE), "--json")
    assert (code, json.loads(told)) == (0, {"file": str(CENTRE), "valid": True, "findings": []})


def test_warnings_are_told_and_keep_nothing_from_being_used(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(TWO_CONTROLLERS)
    found = "found 2 controllers and no cluster.configuration.state_folder"
    expected = "expected a folder that all of them share, or a backup takes over without any job"
    warning = f"{path}:1: cluster.controllers: warning: {found}, {expected}\n"
    summary = f"{path}: valid; x has 1 department, 0 labs, 1 user, 1 compute node, 1 tier; 1 warning\n"
    assert invoke(str(path)) == (0, warning + summary)
    code, told = invoke(str(path), "--json")
    (row,) = json.loads(told)["findings"]
    assert (code, json.loads(told)["valid"], row["severity"], row["line"]) == (0, True, "warning", 1)


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
    assert invoke(str(path)) == (2, f"{found}\n{path}: 1 finding\n")
