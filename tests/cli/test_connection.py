"""Which client the site file asks for, and what happens where it says nothing that can be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpctools.cli.connection import connect, site_client
from hpctools.errors import ReleaseError


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cluster:\n  name: c\n  slurm_client: commands  # until pyslurm is built\n", "commands"),
        ("cluster: {slurm_client: pyslurm}\n", "pyslurm"),
        ("cluster:\n  name: c\n  # slurm_client: pyslurm\n", "auto"),
        ("departments:\n  - {name: slurm_client}\n", "auto"),
        ("cluster: {slurm_client: [pyslurm]}\n", "auto"),
        ("cluster: {slurm_client: carrier pigeon}\n", "auto"),
        ("cluster: {slurm_client: commands", "auto"),
        ("- slurm_client\n", "auto"),
        ("", "auto"),
    ],
)
def test_the_site_says_it(tmp_path: Path, text: str, wanted: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(text)
    assert site_client({"HPCTOOLS_SITE": str(path)}) == wanted


@pytest.mark.parametrize("content", [None, b"\xff\xfe slurm_client"])
def test_a_file_that_is_away_or_no_text_says_nothing(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "site.yaml"
    if content is not None:
        path.write_bytes(content)
    assert site_client({"HPCTOOLS_SITE": str(path)}) == "auto"


def test_the_connection_is_what_the_site_says_unless_the_variable_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site.yaml").write_text("cluster: {slurm_client: pyslurm}\n")
    monkeypatch.setenv("HPCTOOLS_SITE", str(tmp_path / "site.yaml"))
    monkeypatch.setattr("hpctools.slurm.choose._installed", lambda: None)
    with pytest.raises(ReleaseError, match="pyslurm is not installed"):
        connect()
    monkeypatch.setenv("HPCTOOLS_SLURM_CLIENT", "commands")
    assert type(connect()).__name__ == "CommandClient"


def test_a_site_that_does_not_speak_of_it_costs_no_yaml(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("cluster: {name: c}\n")
    code = (
        "import sys; from hpctools.cli.connection import site_client;"
        f"site_client({{'HPCTOOLS_SITE': {str(tmp_path / 'site.yaml')!r}}});"
        "print(*{'yaml', 'click', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.split() == []
