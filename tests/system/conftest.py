"""One real cluster for all system tests; a test that breaks it on purpose makes its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpctools.sandbox import namespace
from hpctools.sandbox.blueprint import example_site
from tests.system.applied import Applied
from tests.system.harness import Cluster, cluster_of

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests here; without root they fail, since a skipped test would look like a passed one."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("system")
            item.add_marker(pytest.mark.timeout(240))


@pytest.fixture(scope="session", autouse=True)
def ends_with_us() -> Iterator[None]:
    """What tests bring up ends with them, also when they are killed and clear nothing up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(namespace, "UNSHARE", ("setpriv", "--pdeathsig=KILL", "--", *namespace.UNSHARE))
        yield


@pytest.fixture(scope="session")
def site_file() -> Path:
    """The reference site."""
    path = example_site()
    assert path is not None
    return path


@pytest.fixture(scope="session")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str
) -> Iterator[Cluster]:
    """A cluster of six nodes, shared by the whole session."""
    with cluster_of(tmp_path_factory.mktemp("cluster"), site_file, 6, slurm_release) as cluster:
        yield cluster


@pytest.fixture
def small(tmp_path: Path, site_file: Path, slurm_release: str) -> Iterator[Cluster]:
    """A cluster of two nodes of a test's own, to break."""
    with cluster_of(tmp_path, site_file, 2, slurm_release) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def applied(
    tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str
) -> Iterator[Applied]:
    """Two nodes, for all tests of a file that applies."""
    with cluster_of(tmp_path_factory.mktemp("apply"), site_file, 2, slurm_release) as cluster:
        yield Applied(cluster, site_file)


@pytest.fixture
def box(applied: Applied) -> Applied:
    """The cluster as its first site says, whatever a test before it left."""
    applied.apply(applied.base, "--yes", "--prune", "--discard-edits")
    assert applied.max_time() == "2-00:00:00"
    return applied
