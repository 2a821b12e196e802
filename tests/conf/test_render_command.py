"""`hpctools render`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpctools.cli.render import render
from hpctools.conf import Facts, compile
from hpctools.errors import UsageError
from hpctools.site import InvalidSiteError, load

REFERENCE = Path(__file__).parents[2] / "slurm-conf/examples/university/site.yaml"


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(render, arguments, standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.stdout


def test_files_are_printed_each_under_its_name() -> None:
    bundle = compile(load(REFERENCE))
    parts = [f"==> {file.path} ({file.mode:04o}) <==\n{file.text}" for file in bundle.files]
    assert invoke(str(REFERENCE)) == "\n".join(parts)


def test_json_holds_the_files_and_the_accounts() -> None:
    told = json.loads(invoke(str(REFERENCE), "--json", "--slurm", "22.05.8", "--cgroup", "v1"))
    bundle = compile(load(REFERENCE), Facts(slurm_version=(22, 5, 8), cgroup="v1"))
    assert [(row["path"], row["mode"], row["text"]) for row in told["files"]] == [
        (file.path, f"{file.mode:04o}", file.text) for file in bundle.files
    ]
    assert [row["name"] for row in told["accounts"]["accounts"]] == [a.name for a in bundle.accounts.accounts]


def test_writing_tells_what_was_written_and_is_quiet_the_second_time(tmp_path: Path) -> None:
    names = ["slurm.conf", "gres.conf", "cgroup.conf", "slurmdbd.conf"]
    assert invoke(str(REFERENCE), "--out", str(tmp_path)) == "".join(f"wrote {tmp_path / n}\n" for n in names)
    assert invoke(str(REFERENCE), "--out", str(tmp_path)) == f"{tmp_path} is up to date\n"
    told = json.loads(invoke(str(REFERENCE), "--out", str(tmp_path), "--json"))
    assert told == {"folder": str(tmp_path), "written": []}


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'new' is not a Slurm release; name a release such as"):
        invoke(str(REFERENCE), "--slurm", "new")
    with pytest.raises(InvalidSiteError):
        invoke(str(tmp_path / "none.yaml"))


def test_warnings_stand_beside_the_output_and_only_the_first(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    people = "".join(f"  - {{name: d{number}, members: [u{number}]}}\n" for number in range(7))
    path.write_text(
        "cluster: {name: x, controllers: [a]}\n"
        "node_groups: [{name: n, instance_type: m5.large, count: 1}]\n"
        f"departments:\n{people}tiers: {{normal: {{priority: 1, default: true}}}}\n"
    )
    result = CliRunner().invoke(render, [str(path)], standalone_mode=False)
    assert result.stdout.startswith("==> slurm.conf (0644) <==\n")
    told = result.stderr.splitlines()
    assert [line.partition(": warning: ")[0] for line in told[:5]] == [
        f"{path}:{number + 4}: departments[{number}]" for number in range(5)
    ]
    assert told[5:] == [f"{path}: 2 more warnings; hpctools validate shows them"]
