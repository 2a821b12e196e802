"""docs/elastic-site.md: with its tiers hp-submit has nothing to say of a cluster; else it says what lacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.harness import Cluster, cluster_of
from tests.system.page import blocks

SITE = """\
cluster: {name: physics, controllers: [ctl-1]}
node_groups:
  - name: worker
    count: 3
    hardware: {sockets: 1, cores_per_socket: 2, threads_per_core: 1, memory_mib: 2000}
departments:
  - name: astro
    supervisor: ada
    partition: {node_groups: [worker], max_time: 1-00:00:00}
    labs: [{name: stars, supervisor: cleo, members: [ben]}]
"""
DRY = ("hp-submit", "--dry-run", "-p", "astro", "-t", "10", "--nodes", "1:3", "--", "python", "train.py")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, slurm_release: str) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("page")
    (tiers,) = (block.text for block in blocks("elastic-site.md") if block.kind == "yaml")
    site = folder / "site.yaml"
    site.write_text(SITE + tiers)
    with cluster_of(folder, site, 3, slurm_release) as cluster:
        yield cluster


def test_with_the_tiers_of_the_page_nothing_is_said_but_the_scripts(cluster: Cluster) -> None:
    done = cluster.inside(*DRY, user="ben")
    assert done.stderr == ""
    assert "--qos=elastic" in done.stdout


@pytest.mark.parametrize(
    ("undo", "change", "said"),
    [
        ("AllocNodes=ALL", "AllocNodes=login-1", "the run will stay at its smallest size: partition astro"),
        ("AllowQos=ALL", "AllowQos=urgent,normal", "partition astro is not for jobs of QoS elastic"),
    ],
    ids=["AllocNodes", "AllowQos"],
)
def test_what_a_partition_lacks_is_said(cluster: Cluster, undo: str, change: str, said: str) -> None:
    cluster.inside("scontrol", "update", "PartitionName=astro", change)
    try:
        done = cluster.inside(*DRY, user="ben", check=False)
    finally:
        cluster.inside("scontrol", "update", "PartitionName=astro", undo)
    assert said in done.stderr


def test_what_the_tier_lacks_is_said(cluster: Cluster) -> None:
    cluster.inside("sacctmgr", "-i", "modify", "qos", "elastic", "set", "GraceTime=0")
    try:
        done = cluster.inside(*DRY, user="ben")
    finally:
        cluster.inside("sacctmgr", "-i", "modify", "qos", "elastic", "set", "GraceTime=8")
    assert "a replica that is preempted gets 0 s to leave" in done.stderr
