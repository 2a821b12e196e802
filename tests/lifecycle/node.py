"""A node in a folder: HyperPod's files below $HPCTOOLS_ROOT, stand-ins for its commands on PATH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[2] / "lifecycle-scripts"
if str(SCRIPTS) not in sys.path:
    sys.path.insert(0, str(SCRIPTS))  # as the runner does; the scripts import nothing of hpctools

CONTROLLER, WORKER, LOGIN = "10.1.1.1", "10.1.1.17", "10.1.1.171"
RESOURCE_CONFIG: Mapping[str, Any] = {
    "ClusterConfig": {"ClusterName": "uni-gpu", "ClusterArn": "arn:aws:sagemaker:eu-west-1:1:cluster/x"},
    "SlurmConfig": {"PrimaryControllerIp": CONTROLLER, "SecondaryControllerIps": None},
    "InstanceGroups": [
        {
            "Name": "controller",
            "InstanceType": "ml.m5.xlarge",
            "Instances": [
                {"InstanceName": "controller-1", "InstanceId": "i-1", "CustomerIpAddress": CONTROLLER}
            ],
        },
        {
            "Name": "gpu",
            "InstanceType": "ml.g5.12xlarge",
            "Instances": [{"InstanceName": "gpu-1", "InstanceId": "i-2", "CustomerIpAddress": WORKER}],
        },
        {"Name": "gpu-2", "InstanceType": "ml.g5.12xlarge", "Instances": None},
        {
            "Name": "login",
            "InstanceType": "ml.m5.xlarge",
            "Instances": [{"InstanceName": "login-1", "InstanceId": "i-3", "CustomerIpAddress": LOGIN}],
        },
    ],
}
GROUPS = {"controller": "controller", "gpu": "compute", "gpu-2": "compute", "login": "login"}
USUAL = "/usr/sbin:/usr/bin:/sbin:/bin"


class Node:
    """One node.

    Attributes:
        root: what stands before every path of it.
        bin: stand-ins for its commands; they come first on PATH.
        bundle: where HyperPod has copied the lifecycle scripts.
    """

    def __init__(self, folder: Path, address: str = WORKER) -> None:
        self.root, self.bin, self.bundle = folder / "root", folder / "bin", folder / "bundle"
        self.bin.mkdir(parents=True)
        shutil.copytree(SCRIPTS, self.bundle, ignore=shutil.ignore_patterns("__pycache__"))
        self.settings: dict[str, Any] = {"version": 1, "cluster": {"name": "uni-gpu", "groups": GROUPS}}
        self.is_at(address)
        self.write("/opt/ml/config/resource_config.json", json.dumps(RESOURCE_CONFIG))

    def is_at(self, *addresses: str) -> None:
        """Give it these addresses beside the loopback's."""
        lines = "".join(
            f"        |-- {each}\n           /32 host LOCAL\n" for each in ("127.0.0.1", *addresses)
        )
        self.write("/proc/net/fib_trie", f"Local:\n  +-- 0.0.0.0/0 3 0 5\n{lines}     |-- 10.1.1.255\n")

    def path(self, path: str) -> Path:
        """Where a file of it really is."""
        return Path(f"{self.root}{path}")

    def write(self, path: str, text: str, mode: int = 0o644) -> Path:
        """Write a file of it."""
        found = self.path(path)
        found.parent.mkdir(parents=True, exist_ok=True)
        found.write_text(text)
        found.chmod(mode)
        return found

    def stand_in(self, name: str, script: str) -> None:
        """Put a command on PATH; a script without `#!` is bash."""
        path = self.bin / name
        path.write_text(script if script.startswith("#!") else f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def steps(self, **steps: str) -> None:
        """Replace all steps: `s10_name="# roles: ...\\n..."`; bash with a `case "$1"`."""
        shutil.rmtree(self.bundle / "steps")
        (self.bundle / "steps").mkdir()
        for name, body in steps.items():
            path = self.bundle / "steps" / name.removeprefix("s").replace("_", "-")
            path.write_text(body if body.startswith("#!") else f"#!/bin/bash\n{body}\n")
            path.chmod(0o755)

    def only_steps(self, *names: str) -> None:
        """Keep these of the real steps."""
        for path in (self.bundle / "steps").iterdir():
            if path.name not in names:
                path.unlink()

    @property
    def environment(self) -> dict[str, str]:
        """Of the scripts: nothing of ours."""
        self.bundle.joinpath("site").mkdir(exist_ok=True)
        (self.bundle / "site/settings.json").write_text(json.dumps(self.settings))
        path = f"{self.bin}:{USUAL}"
        return {"PATH": path, "HPCTOOLS_ROOT": str(self.root), "STAND_IN": str(self.root / "stand-in")}

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Start on_create.sh as HyperPod does."""
        return subprocess.Popen(
            ["bash", str(self.bundle / "on_create.sh"), "--backoff", "0.01", *words],
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
        )

    def run(self, *words: str, limit: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run on_create.sh to its end."""
        with self.start(*words, **environment) as process:
            out, _ = process.communicate(timeout=limit)
        return subprocess.CompletedProcess(process.args, process.returncode, out, "")

    def events(self, *names: str) -> list[dict[str, Any]]:
        """What the log says, of these kinds."""
        log = self.path("/var/log/provision/provisioning.log")
        found = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [event for event in found if not names or event["event"] in names]

    def calls(self, name: str = "") -> list[str]:
        """The command lines that the stand-ins have noted, one a line."""
        log = self.root / "stand-in" / "calls"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line for line in lines if line.split(" ")[0] == name or not name]

    def files(self) -> dict[str, str]:
        """Every file's text and mode, but logs and notes."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if path.is_file() and not name.startswith(("var/log", "var/lib/hpctools", "stand-in", "proc")):
                found[name] = f"{path.stat().st_mode & 0o7777:o} {path.read_text(errors='replace')}"
        return found


def has_ended(pid: int) -> bool:
    """Whether a process has ended, its remains aside."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def is_root() -> bool:
    """Whether these tests may change owners."""
    return os.geteuid() == 0
