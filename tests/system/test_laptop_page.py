"""The page "from your laptop", its first submit in five minutes, followed word by word against real sshds."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from textwrap import dedent

import pytest

from tests.system.harness import Cluster, until
from tests.system.page import DOCS

USER = "nlp1"
NODES = ("login1.uni.example", "login2.uni.example")
JOB = '#!/bin/bash\n#SBATCH -p nlp\necho "computed on $SLURM_JOB_NUM_NODES"\n'
PAGE_ID = "job.sh-3fa9c1d20b7e"


def steps() -> list[str]:
    """The indented blocks of the page's first part, in order."""
    text = (DOCS / "laptop.md").read_text()
    part = text.partition("## First submit in five minutes\n")[2].partition("\n## ")[0]
    return [
        dedent(block).lstrip() for block in re.findall(r"(?:^(?: {4}.*)?\n)*^ {4}.*\n", part, re.MULTILINE)
    ]


def commands(block: str) -> list[str]:
    """What is typed: lines behind `$ `, or all of a block that shows no answers; no comments."""
    lines = block.splitlines()
    typed = [line[2:] for line in lines if line.startswith("$ ")] or lines
    return [line.partition(" #")[0].strip() for line in typed if line.strip()]


class Laptop:
    """A machine without Slurm, whose owner has a key and ssh's configuration, and nothing of ours."""

    def __init__(self, home: Path, cluster: Cluster) -> None:
        self.home = home
        running = cluster.sandbox.running().ports
        ssh = home / ".ssh"
        ssh.mkdir(mode=0o700)
        shutil.copy(cluster.sandbox.layout.key, ssh / "id_ed25519")
        hosts = "".join(
            f"Host {name}\n  HostName 127.0.0.1\n  Port {running[f'sshd-login-{number}']}\n"
            for number, name in enumerate(NODES, 1)
        )
        files = f"  IdentityFile {ssh}/id_ed25519\n  UserKnownHostsFile {ssh}/known_hosts\n"
        (ssh / "config").write_text(f"{hosts}Host *\n  User {USER}\n{files}")
        (home / "job.sh").write_text(JOB)
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH", "SSH_", "HPCTOOLS"))
        }
        told = {"HOME": str(home), "HPCTOOLS_SSH_CONFIG": str(ssh / "config")}
        self.environment = {**kept, **told, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}

    def types(self, line: str, answer: str = "") -> str:
        """Type a line at a terminal, and an answer; what is shown, which has to end well."""
        mine, theirs = pty.openpty()
        try:
            with subprocess.Popen(
                ["bash", "-c", line], cwd=self.home, env=self.environment, start_new_session=True,
                stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            ) as process:  # fmt: skip
                os.write(mine, answer.encode())
                shown, _ = process.communicate(timeout=120)
        finally:
            os.close(mine)
            os.close(theirs)
        assert process.returncode == 0, f"{line}\n{shown}"
        return shown


@pytest.fixture
def installed(cluster: Cluster, tmp_path: Path) -> Iterator[None]:
    """hp-submit in /opt/hpctools/bin and nowhere else: the sandbox has it on the PATH."""
    # pytest's folders are closed to other people.
    opt = cluster.sandbox.layout.tree / "tmp/opt"
    (opt / "hpctools/bin").mkdir(parents=True)
    (opt / "hpctools/bin/hp-submit").symlink_to(Path(sys.executable).parent / "hp-submit")
    cluster.inside("mount", "-t", "overlay", "-o", "lowerdir=/tmp/opt:/opt", "overlay", "/opt")
    hidden = [cluster.home(USER) / ".bashrc", cluster.sandbox.layout.tree / "usr/local/bin/hp-submit"]
    for each in hidden:
        each.rename(each.with_name(f".{each.name}-hidden"))
    try:
        yield
    finally:
        for each in hidden:
            each.with_name(f".{each.name}-hidden").rename(each)
        cluster.inside("umount", "/opt")
        shutil.rmtree(opt)


@pytest.fixture
def laptop(cluster: Cluster, tmp_path: Path, installed: None) -> Iterator[Laptop]:
    yield Laptop(tmp_path, cluster)
    cluster.inside("scancel", "-u", USER)


def test_what_is_installed_is_what_pip_knows() -> None:
    """The page's first step, from a copy: the extra and the commands are there."""
    made, line, path = commands(steps()[0])
    folder = made.removeprefix("python3 -m venv ")
    extra = re.fullmatch(re.escape(f"{folder}/bin/pip install ") + r"'\./hpctools\[(\w+)\]'", line)
    assert path == f'export PATH="{folder.replace("~", "$HOME")}/bin:$PATH"'
    ours = distribution("hpctools")
    assert extra is not None
    needed = [each for each in ours.requires or () if re.search(f"extra == .{extra[1]}.", each)]
    assert any(each.startswith("paramiko") for each in needed)
    typed = {each.split()[0] for block in steps()[2:] for each in commands(block)}
    assert typed <= {each.name for each in ours.entry_points}


def test_the_first_submit_in_five_minutes(laptop: Laptop, cluster: Cluster) -> None:
    """Every line that is typed works, shows what the page shows, and ends with the job's output here.

    The login nodes are as the pages for sysadmins leave them, with the PATH that their sshd gives.
    """
    found_there = ["ssh", "-F", str(laptop.home / ".ssh/config"), "-o", "StrictHostKeyChecking=no"]
    found_there += ["-o", "UserKnownHostsFile=/dev/null", NODES[0], "command -v hp-submit"]
    assert subprocess.run(found_there, capture_output=True, timeout=60, check=False).stdout == b""
    _, clusters, trust, submit, later = steps()
    place = laptop.home / ".config/hpctools/clusters.yaml"
    place.parent.mkdir(parents=True)
    place.write_text(clusters)

    (line,) = commands(trust)
    shown = laptop.types(line, "y\n")
    assert skeleton(shown) == skeleton(trust.split("\n", 1)[1].replace("/home/me", str(laptop.home)))

    (line,) = commands(submit)
    shown = laptop.types(line)
    assert skeleton(shown) == skeleton(submit.split("\n", 1)[1])
    found = re.search(r"Submitted batch job (\d+)\nSubmission (\S+),", shown)
    assert found is not None
    job, name = int(found[1]), found[2]
    assert cluster.ended(job, USER).state == "COMPLETED"

    status, logs, fetch, cancel = (each.replace(PAGE_ID, name) for each in commands(later))
    assert name in laptop.types(status)
    assert "computed on 1\n" in laptop.types(logs)
    assert f"{name}/job.sh\n" in laptop.types(fetch)
    assert (laptop.home / name / f"slurm-{job}.out").read_text() == "computed on 1\n"

    _, again = laptop.types(commands(submit)[0].replace("job.sh", "--hold job.sh")).split("\n", 1)
    name = again.split()[1].rstrip(",")
    assert f"{name}: cancelled job " in laptop.types(cancel.replace(found[2], name))
    until(lambda: cluster.inside("squeue", "-h", "-u", USER).stdout == "" or None)


def skeleton(text: str) -> list[str]:
    """Lines without what is another thing each time: numbers, ids, keys, ports, homes on the cluster."""
    for pattern, word in (
        (r"SHA256:\S+", "KEY"),
        (r"job\.sh-[0-9a-f]{12}", "ID"),
        (r"/home/\w+/", "/HOME/"),
        (r"batch job \d+", "batch job N"),
        (r"\[y/N\] y\n", "[y/N] "),
        (r"\[y/N\] ", "[y/N]\n"),
    ):
        text = re.sub(pattern, word, text)
    return [line.strip() for line in text.splitlines() if line.strip()]
