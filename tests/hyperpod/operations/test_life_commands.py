"""`hpctools hyperpod create, update, status, delete` as their user meets them, against moto."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpctools.cli.main import main
from tests.hyperpod.aws_rig import Server
from tests.hyperpod.stack.sites import SMALLEST

WAIT = 60


class Command:
    """The command with one site."""

    def __init__(self, folder: Path, server: Server, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capture = capture
        self.site = folder / "site.yaml"
        self.site.write_text(
            SMALLEST.replace("aws: {}", "aws: {region: eu-central-1, network: {internet: none}}")
        )
        self.environment = {**os.environ, **server.environment}
        self.started: list[subprocess.Popen[str]] = []

    def without_upload(self) -> None:
        """Scripts that are there already: what is tested has nothing to do with them."""
        stated = "hyperpod: {lifecycle_source: 's3://sagemaker-own/scripts/'}"
        self.site.write_text(self.site.read_text().replace("hyperpod: {}", stated))

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "hpctools.cli.main", "hyperpod", words[0], str(self.site), *words[1:]]
        process = subprocess.Popen(
            argv, env=self.environment | more, text=True, cwd=Path(__file__).parents[3],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(process)
        return process

    def on_terminal(self, typed: str, *words: str) -> tuple[int, str]:
        """Run it with a terminal, where somebody types an answer when it asks."""
        mine, its = pty.openpty()
        argv = [sys.executable, "-m", "hpctools.cli.main", "hyperpod", words[0], str(self.site), *words[1:]]
        process = subprocess.Popen(
            argv, env=self.environment, text=True, cwd=Path(__file__).parents[3],
            stdin=its, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.started.append(process)
        os.close(its)
        os.write(mine, f"{typed}\n".encode())
        told, _ = process.communicate(timeout=WAIT)
        os.close(mine)
        return process.returncode, told

    def end(self) -> None:
        """What a test that failed left behind."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=WAIT)

    def run(self, *words: str, **more: str) -> tuple[int, str, str]:
        """Run it here, as its own process would: exit code, what it printed, what it told."""
        argv = ["hpctools", "hyperpod", words[0], str(self.site), *words[1:]]
        with pytest.MonkeyPatch.context() as patch, Path(os.devnull).open() as nobody:
            patch.setattr(sys, "argv", argv)
            patch.setattr(sys, "stdin", nobody)
            for name, value in more.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = self.capture.readouterr()
        return int(ended.value.code or 0), out, err


@pytest.fixture
def command(tmp_path: Path, server: Server, capfd: pytest.CaptureFixture[str]) -> Iterator[Command]:
    made = Command(tmp_path, server, capfd)
    yield made
    made.end()


def wait_for(check: Any, what: str) -> None:
    deadline = time.monotonic() + WAIT
    while not check():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.05)


def test_from_nothing_to_a_cluster_and_back(command: Command, server: Server) -> None:
    code, out, _ = command.run("status")
    assert (code, out) == (
        1,
        "stack    hpctools-tiny (eu-central-1): absent\ncluster  tiny (eu-central-1): absent\n",
    )

    code, out, err = command.run("create")
    assert (code, out) == (0, "cluster tiny is in service\n")
    assert "stack hpctools-tiny: brought up to date" in err
    assert "cluster tiny: creating  controller 1, gpu 2" in err

    code, out, _ = command.run("status", "--json")
    told = json.loads(out)
    assert (code, told["good"], told["cluster"]) == (0, True, "InService")
    assert [(each["group"], each["wanted"]) for each in told["groups"]] == [("controller", 1), ("gpu", 2)]

    command.site.write_text(command.site.read_text().replace("count: 2", "count: 3"))
    code, _, err = command.run("update")
    assert (code, err.splitlines()[-1]) == (2, "hpctools: there is nobody to ask; add --yes")
    code, out, err = command.run("update", "--yes")
    assert (code, out.partition(":")[0]) == (0, "cluster tiny")
    assert "  ~ group gpu InstanceCount: 2 -> 3" in err

    code, out, _ = command.run("delete", "--dry-run")
    assert code == 0
    assert "cluster tiny (InService), with its jobs and its nodes' disks: controller 1, gpu 2" in out
    assert "kept, and paid for (--delete-data deletes them):" in out
    assert "S3 Bucket tiny-data-123456789012-eu-central-1 (eu-central-1): 0 objects, 0 B" in out
    code, _, err = command.run("delete")
    assert (code, err) == (2, "hpctools: there is nobody to ask; add --yes\n")
    assert "DeleteCluster" not in server.log

    code, out, _ = command.run("delete", "--yes")
    assert (code, out.splitlines()[-1]) == (
        0,
        "deleted; 3 resources with data are left in stack hpctools-tiny",
    )
    code, out, _ = command.run("status")
    assert (code, "its cluster was deleted, and what has data is left" in out) == (1, True)
    code, out, _ = command.run("delete", "--yes", "--delete-data")
    assert (code, out.splitlines()[-1]) == (0, "deleted; nothing is left")
    code, out, _ = command.run("delete", "--yes")
    assert (code, out) == (0, "there is no cluster tiny and no stack of it in eu-central-1\n")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_while_it_waits_it_goes_on_where_it_was(
    command: Command, server: Server, ending: signal.Signals
) -> None:
    command.without_upload()
    server.rules(hold={"stack": 10_000})
    process = command.start("create", "--poll", "0.1")
    wait_for(lambda: server.log.count("DescribeStackEvents") >= 3, "waiting for the stack")
    process.send_signal(ending)
    _, err = process.communicate(timeout=WAIT)
    if ending == signal.SIGINT:
        assert process.returncode == 130
        assert "AWS goes on with what was begun; `hpctools hyperpod create" in err
        assert "Traceback" not in err
    server.rules()
    code, out, err = command.run("create", "--poll", "0.1")
    # Whoever is late to hear of the end finds it done.
    assert (code, out) == (0, "cluster tiny is in service\n"), err
    assert "ExecuteChangeSet" not in server.log or server.log.count("ExecuteChangeSet") == 1


@pytest.mark.parametrize("at", ["CreateChangeSet", "CreateCluster"])
def test_killed_right_after_a_request_it_goes_on_where_it_was(
    command: Command, server: Server, at: str
) -> None:
    command.without_upload()
    pid_file = command.folder / "pid"
    server.rules(kill={"pid_file": str(pid_file), "action": at})
    process = command.start("create")
    pid_file.write_text(str(process.pid))
    process.communicate(timeout=WAIT)
    assert process.returncode == -signal.SIGKILL
    assert server.log[-1] == at
    server.rules()
    code, out, err = command.run("create", "--poll", "0.1")
    assert (code, out) == (0, "cluster tiny is in service\n"), err
    assert server.log.count("CreateCluster") == (0 if at == "CreateCluster" else 1)


def test_what_is_left_of_a_creation_that_was_given_up_is_deleted(command: Command, server: Server) -> None:
    """A stack that only has a plan, as one whose creation failed, has no template and may cost money."""
    command.without_upload()
    server.rules(refuse=[{"action": "ExecuteChangeSet", "code": "AccessDenied", "times": 9}])
    assert command.run("create")[0] == 1
    server.rules()
    code, out, _ = command.run("delete", "--yes")
    assert (code, out.splitlines()) == (
        0,
        [
            "lost:",
            "  stack hpctools-tiny, which was never made: all that is left of the attempt",
            "deleted; of an attempt, empty buckets and logs may be left, which create takes up again",
        ],
    )
    assert "stack    hpctools-tiny (eu-central-1): absent" in command.run("status")[1]


OWN = """hyperpod:
  execution_role: arn:aws:iam::123456789012:role/nodes
  network: {subnets: [subnet-0a1b2c3d4e5f60718], security_groups: [sg-0a1b2c3d4e5f60718]}
  lifecycle_source: s3://sagemaker-own/scripts/
"""


def test_a_cluster_in_ones_own_surroundings_has_no_stack_and_gets_no_scripts(
    command: Command, server: Server
) -> None:
    command.site.write_text(SMALLEST.replace("hyperpod: {}\naws: {}\n", OWN))
    server.rules()
    code, out, err = command.run("create", "--json", AWS_REGION="eu-west-1")
    assert code == 0, err
    assert json.loads(out.splitlines()[-1]) == {
        "cluster": "tiny",
        "region": "eu-west-1",
        "entry": "",
        "missing": 0,
    }
    assert {"CreateChangeSet", "DescribeStacks"} & set(server.log) == set()
    assert not [action for action in server.log if action.startswith("PUT ")]
    code, out, _ = command.run("delete", "--yes", "--json", AWS_REGION="eu-west-1")
    assert code == 0
    assert json.loads(out.splitlines()[0])["losses"]["cluster"] == "InService"


def test_slow_clusters_are_told_of_while_they_come(command: Command, server: Server) -> None:
    command.without_upload()
    server.rules(hold={"cluster": 4})
    code, _, err = command.run("create", "--poll", "0.1")
    assert code == 0
    assert "group gpu: 2 wanted  2 Running" in err


@pytest.mark.parametrize(
    ("word", "typed", "code", "deleted"),
    [
        ("delete --delete-data", "y", 0, False),
        ("delete --delete-data", "tiny", 0, True),
        ("delete", "n", 0, False),
    ],
)
def test_who_is_asked_may_say_no(
    command: Command, server: Server, word: str, typed: str, code: int, deleted: bool
) -> None:
    """On a terminal; to delete data one types the cluster's name."""
    command.without_upload()
    assert command.run("create")[0] == 0
    server.rules()
    got, told = command.on_terminal(typed, *word.split())
    assert got == code, told
    assert ("DeleteCluster" in server.log) == deleted
    assert ("nothing was deleted" in told) == (not deleted)


@pytest.mark.parametrize(
    ("change", "environment", "code", "said"),
    [
        (("region: eu-central-1, ", ""), {}, 3, "no AWS region is named; state aws.region in the site file"),
        (("hyperpod: {}", ""), {}, 2, "has no hyperpod section; add one"),
        (("eu-central-1", "frankfurt"), {}, 1, "expected an AWS region, for example eu-central-1"),
        (("", ""), {"AWS_PROFILE": "nobody"}, 3, "set AWS_PROFILE to one of"),
        (
            ("", ""),
            {"AWS_ACCESS_KEY_ID": "", "AWS_EC2_METADATA_DISABLED": "true"},
            3,
            "there are no AWS credentials",
        ),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    command: Command, change: tuple[str, str], environment: dict[str, str], code: int, said: str
) -> None:
    command.site.write_text(command.site.read_text().replace(*change))
    got, out, err = command.run("create", **environment)
    assert (got, out) == (code, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err


def test_credentials_that_expired_are_told_before_anything_is_begun(command: Command, server: Server) -> None:
    server.rules(refuse=[{"action": "*", "code": "ExpiredToken", "times": 99}])
    for word in ("create", "update", "status", "delete"):
        code, out, err = command.run(word)
        assert (code, out) == (3, "")
        assert "the AWS credentials have expired; sign in again (aws sso login)" in err
    assert set(server.log) == {"GetCallerIdentity"}


def test_the_template_is_shown_and_written_alike(command: Command) -> None:
    code, shown, _ = command.run("template")
    assert code == 0
    folder = command.folder / "out"
    code, out, _ = command.run("template", "--out", str(folder))
    assert (code, out) == (0, f"wrote {folder}/infrastructure.yaml\n")
    assert (folder / "infrastructure.yaml").read_text() == shown
    code, _, err = command.run("template", "--copies")
    assert (code, "the site has no copies of its checkpoints" in err) == (2, True)
