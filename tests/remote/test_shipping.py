"""hp-submit's words on a laptop, and what is sent for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpctools.errors import HpctoolsError, UsageError
from hpctools.remote import shipping
from hpctools.remote.shipping import Shipment, pack, read_wish

JOB = "#!/bin/bash\n#SBATCH --job-name=fine\necho hello\n"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "job.sh").write_text(JOB)
    (tmp_path / "train.py").write_text("print('hello')\n")
    (tmp_path / "data/deep").mkdir(parents=True)
    (tmp_path / "data/a b.csv").write_text("1,2\n")
    (tmp_path / "data/deep/c.csv").write_text("3\n")
    return tmp_path


def packed(here: Path, *words: str, stdin: bytes | None = None, said: list[str] | None = None) -> Shipment:
    wish = read_wish(["--cluster", "uni", *words])
    assert wish is not None
    told = [] if said is None else said
    return pack(wish, "python3", here, lambda: stdin, told.append)


def asked(shipment: Shipment) -> dict[str, Any]:
    kept = {key: shipment.request[key] for key in ("options", "script", "arguments", "command", "trial")}
    return {**kept, "files": [each.path for each in shipment.files]}


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (
            ["-p", "nlp", "job.sh", "a b", "--nodes", "2:8"],
            {"options": ["-p", "nlp"], "script": "job.sh", "arguments": ["a b", "--nodes", "2:8"]},
        ),
        (
            ["--gpus=4", "--", "python", "train.py", "x\ny"],
            {"options": ["--gpus=4", "--job-name=train.py"], "script": "command.sh"},
        ),
        (["--wrap", "echo 'a  b'", "-t", "5"], {"options": ["-t", "5"], "script": "wrap"}),
        (["--wra", "hostname", "-t", "5"], {"options": ["-t", "5"], "script": "wrap"}),
        (["-t", "5", "--wr=hostname"], {"options": ["-t", "5"], "script": "wrap"}),
        (
            ["--upload", "data", "--upload=train.py", "job.sh"],
            {"script": "job.sh", "files": ["job.sh", "data/a b.csv", "data/deep/c.csv", "train.py"]},
        ),
        (
            ["train.py", "--nodes", "2:8", "--epochs", "3"],
            {
                "options": ["--nodes=2:8"],
                "command": ["python3", "train.py", "--epochs", "3"],
                "files": ["train.py"],
            },
        ),
        (
            ["train.py", "--nodes", "3"],
            {
                "options": ["--job-name=train.py"],
                "script": "command.sh",
                "files": ["command.sh", "train.py"],
            },
        ),
        (["--dry-run", "job.sh"], {"options": ["--dry-run"], "script": "job.sh", "trial": True}),
        (["--test-only", "job.sh"], {"options": ["--test-only"], "script": "job.sh", "trial": True}),
    ],
)
def test_what_is_sent(here: Path, words: list[str], wanted: dict[str, Any]) -> None:
    usual = {"options": [], "script": "", "arguments": [], "command": [], "trial": False}
    files = [wanted.get("script") or "train.py"]
    if wanted.get("script") == "command.sh":
        files.append("train.py")
    assert asked(packed(here, *words)) == {**usual, "files": files, **wanted}


def test_a_script_from_standard_input_has_sbatchs_name_for_it(here: Path) -> None:
    shipment = packed(here, stdin=JOB.encode())
    assert (shipment.request["script"], shipment.files[0].data) == ("sbatch", JOB.encode())


def test_a_range_behind_a_python_file_is_told(here: Path) -> None:
    said: list[str] = []
    packed(here, "train.py", "--nodes", "2:8", said=said)
    assert said == ["--nodes 2:8 is taken for hp-submit's own, not for train.py's"]


def test_a_python_program_that_names_its_python_is_one_when_a_range_stands_behind_it(here: Path) -> None:
    """Without one it is a batch script, as ever; and one with #SBATCH lines can only be that."""
    path = here / "train.py"
    path.write_text("#!/usr/bin/env python3\nprint('hello')\n")
    shipment = packed(here, "train.py", "--nodes", "2:8", "--epochs", "3")
    assert asked(shipment)["options"] == ["--nodes=2:8"]
    assert asked(shipment)["command"] == ["python3", "train.py", "--epochs", "3"]
    assert asked(packed(here, "train.py", "--epochs", "3"))["script"] == "train.py"
    path.write_text("#!/usr/bin/env python3\n#SBATCH -p nlp\n")
    with pytest.raises(UsageError, match=r"write it before: --nodes 2:8 train\.py"):
        packed(here, "train.py", "--nodes=2:8")
    path.write_text("#!/bin/sh\n")
    assert asked(packed(here, "train.py", "--nodes=2:8"))["arguments"] == ["--nodes=2:8"]


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (["torchrun", "--nproc-per-node", "4", "train.py", "--lr", "1"], ["train.py"]),
        (["torchrun", "--nnodes=2", "--standalone", "--", "data/../train.py"], ["train.py"]),
        (["python", "-m", "torch.distributed.run", "train.py"], ["train.py"]),
        (["torchrun", "-m", "train"], []),
        (["torchrun", "--no-python", "train.py"], []),
        (["torchrun", "--what", "train.py"], []),
        (["torchrun"], []),
        (["python", "-m", "train", "train.py"], []),
        (["./train.py"], []),
    ],
)
@pytest.mark.parametrize("nodes", ["2:6", "2"])
def test_the_python_file_that_torchrun_starts_goes_along(
    here: Path, words: list[str], sent: list[str], nodes: str
) -> None:
    files = asked(packed(here, "--nodes", nodes, "--", *words))["files"]
    assert [each for each in files if each != "command.sh"] == sent


def test_a_policy_goes_along(here: Path) -> None:
    (here / "policy.yaml").write_text("elasticPolicy: {minReplicas: 1, maxReplicas: 2}\n")
    shipment = packed(here, "--elastic-policy", "policy.yaml", "--", "python", "train.py")
    assert asked(shipment)["files"] == ["policy.yaml", "train.py"]
    assert asked(shipment)["options"] == ["--elastic-policy=policy.yaml"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--wait", "job.sh"], "use --follow"),
        (["--follow", "--array", "0-3", "job.sh"], "--follow is not for arrays"),
        (["--follow", "--array=3", "job.sh"], "--follow is not for arrays"),
        (["--follow", "--array=0-1999%7", "job.sh"], "--follow is not for arrays"),
        (["--follow", "array.sh"], "--follow is not for arrays"),
        (["--follow", "--nodes=1:2", "--array=1,2", "--", "python", "train.py"], "is not for arrays"),
        (["--clusters", "other", "job.sh"], "clusters.yaml"),
        (["-M", "other", "job.sh"], "clusters.yaml"),
        (["-D", "/tmp", "job.sh"], "run folder"),
        (["--usage", "job.sh"], "on a login node"),
        (["--autocomplete", "-", "job.sh"], "on a login node"),
        (["nothing.sh"], "there is no script"),
        (["--upload", "nothing", "job.sh"], "there is no file"),
        (["--", "python", "../train.py"], "no path below the run folder"),
        (["--submission", "../../x", "job.sh"], "no submission's id"),
    ],
)
def test_what_cannot_be_sent_is_said(here: Path, words: list[str], why: str) -> None:
    (here.parent / "train.py").write_text("")
    (here / "array.sh").write_text("#!/bin/sh\n#SBATCH --array=1-5000\n")
    with pytest.raises(HpctoolsError, match=why):
        packed(here, *words)


def test_a_python_file_by_its_whole_path_is_sent_from_below_and_refused_from_elsewhere(here: Path) -> None:
    """The shell makes a whole path of ~/proj/train.py."""
    shipment = packed(here, str(here / "train.py"), "--lr", "1")
    assert "train.py" in asked(shipment)["files"]
    assert asked(shipment) == asked(packed(here, "train.py", "--lr", "1"))
    (here.parent / "other.py").write_text("")
    with pytest.raises(UsageError, match=r"other\.py is a path of this machine"):
        packed(here, str(here.parent / "other.py"))
    said: list[str] = []
    packed(here, "--", "python", str(here / "train.py"), said=said)
    assert said == [f"{here / 'train.py'} is not sent: it is run as it lies on the cluster"]


@pytest.mark.parametrize(
    "words", [["job.sh", "--cluster", "uni"], ["--", "x", "--cluster=uni"], ["-p", "a", "b"]]
)
def test_a_scripts_own_cluster_is_the_scripts(words: list[str]) -> None:
    assert read_wish(words) is None


def test_a_cluster_without_a_name_is_a_mistake() -> None:
    with pytest.raises(UsageError):
        read_wish(["--cluster"])


@pytest.mark.parametrize("name", ["cluster", "upload", "submission"])
@pytest.mark.parametrize("joined", [True, False])
def test_a_variable_that_is_not_set_is_no_name(here: Path, name: str, joined: bool) -> None:
    """It meant the usual cluster, all of the present folder, another job."""
    (here / "secret").write_text("mine")
    with pytest.raises(UsageError, match=f"--{name} is given an empty name"):
        packed(here, *([f"--{name}="] if joined else [f"--{name}", ""]), "job.sh")


def test_an_id_is_a_jobs_name_and_chance(here: Path) -> None:
    ids = {packed(here, "-J", "My Job/../x", "job.sh").id for _ in range(5)}
    assert len(ids) == 5
    assert all(each.startswith("my-job-") for each in ids)


@pytest.mark.parametrize("name", ["train.py", "job.sh"])
def test_no_file_is_lost_to_another_of_its_name(here: Path, name: str) -> None:
    (here / "other").mkdir()
    (here / "other" / name).write_text((here / name).read_text())
    words = ("--upload", "train.py", "--upload", str(here / "other" / name), "job.sh")
    assert sorted(asked(packed(here, *words))["files"]) == ["job.sh", "train.py"]
    (here / "other" / name).write_text("something else")
    with pytest.raises(UsageError, match=f"would both be {name}"):
        packed(here, *words)


def test_a_link_to_a_folder_that_stays_here_is_told(here: Path) -> None:
    (here / "data/big").symlink_to(here / "data/deep")
    said: list[str] = []
    shipment = packed(here, "--upload", "data", "job.sh", said=said)
    assert asked(shipment)["files"] == ["job.sh", "data/a b.csv", "data/deep/c.csv"]
    assert [line.partition(" is not sent")[0] for line in said] == [str(here / "data/big")]


def test_a_request_that_the_cluster_would_not_take_is_refused_here(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was sent, and each time the cluster hung up in the middle: five attempts, for nothing."""
    monkeypatch.setattr(shipping, "_LINE", 600)
    assert len(packed(here, "job.sh").files) == 1
    (here / "data" / ("n" * 200)).write_text("4\n")
    with pytest.raises(UsageError, match=r"^4 files' names, .* may have 8 MiB of them; pack the files: tar"):
        packed(here, "--upload", "data", "job.sh")


def test_the_cluster_is_told_what_its_runs_are_called(here: Path) -> None:
    """An id of a person's own says nothing of that."""
    own = "--submission=mine-0123456789ab"
    asked = [("--nodes=1:2", "job.sh"), ("--nodes=1:2", "-Jx", "-a0-4:2", "job.sh"), ("job.sh",)]
    told = [packed(here, own, *words).request["runs"] for words in asked]
    assert told == [{"name": "fine", "count": 1}, {"name": "x", "count": 3}, {}]
