"""The page "from nothing to a first job on HyperPod", word by word, with moto for AWS."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from urllib.parse import urlparse

import boto3
import pytest

from hpctools.sandbox.hosts import Fleet, hosts
from hpctools.slurm.run import run
from tests.hyperpod.aws_rig import Server, _server, server
from tests.system.bootstrap_rig import Bootstrap, need_cgroups
from tests.system.harness import until
from tests.system.page import SECONDS, Block, blocks, follow, on_host

__all__ = ["_server", "server"]
PAGE = "bootstrap-hyperpod.md"
FLEET = Fleet(cluster="physics", partition="worker")
REGION = "eu-central-1"
# The release of the page is that of HyperPod's nodes; ours are machines of Debian.
HYPERPODS, DEBIANS = 'slurm: "24.11"', 'slurm: "22.05"'


class Computer:
    """The sysadmin's own, in a folder, with credentials of moto's account."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def follow(self, block: Block) -> str:
        if block.kind == "yaml":
            assert block.text.count(HYPERPODS) == 1
            (self.folder / block.where[0]).write_text(block.text.replace(HYPERPODS, DEBIANS))
            return ""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        script = ["bash", "-euo", "pipefail", "-c", block.text]
        return run(script, timeout=SECONDS, cwd=self.folder, env={**os.environ, "PATH": path}).stdout


def download(cluster: str, folder: Path) -> Path:
    """What HyperPod copies to each node: the objects at the place that the request names, without modes."""
    sagemaker, s3 = (boto3.client(name, region_name=REGION) for name in ("sagemaker", "s3"))
    groups = sagemaker.describe_cluster(ClusterName=cluster)["InstanceGroups"]
    (place,) = {group["LifeCycleConfig"]["SourceS3Uri"] for group in groups}
    bucket, prefix = urlparse(place).netloc, urlparse(place).path.strip("/") + "/"
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for found in page["Contents"]:
            target = folder / found["Key"].removeprefix(prefix)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(s3.get_object(Bucket=bucket, Key=found["Key"])["Body"].read())
    return folder


@pytest.mark.long
def test_every_command_of_the_page(server: Server, tmp_path: Path) -> None:
    need_cgroups()
    computer, page = Computer(tmp_path), blocks(PAGE)
    created = next(index for index, block in enumerate(page) if "hyperpod create" in block.text)
    said = [computer.follow(block) for block in page[: created + 1]]
    assert "cluster physics is in service" in said[-1]
    with hosts(download("physics", tmp_path / "bundle"), FLEET) as machines:
        rig = Bootstrap(machines)
        done = rig.provision_all()
        assert {name: each.code for name, each in done.items()} == dict.fromkeys(done, 0)
        idle = ["sinfo", "-h", "-p", "astro", "-t", "idle", "-o", "%D"]
        until(lambda: rig["controller-1"].run(idle).stdout == "3\n")
        for block in page[created + 1 :]:
            here = "computer" in block.where
            said.append(computer.follow(block) if here else _on_login(rig, block))
    printed = next(text for text in said if "PARTITION" in text).splitlines()[-5:]
    workers = {host.hostname for host in FLEET.of_role("compute")}
    assert (len({*printed[:2]} & workers), printed[3] in workers, printed[4]) == (2, True, "0")
    assert re.fullmatch(r"Submitted batch job \d+", printed[2])
    assert "cluster physics is as the site says" in said[-2]
    assert "bucket" in said[-1]


def _on_login(rig: Bootstrap, block: Block) -> str:
    return follow(block, lambda name: on_host(rig[name], block))
