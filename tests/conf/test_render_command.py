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
