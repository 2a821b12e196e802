"""How tests are spread over processes (`-n`): what shares a file and a Slurm release stays together.

Most of a system test is waiting for daemons, so that more processes than cores pay. A module's own cluster is
started once only if all tests that share it run in one process; those of another release need another cluster
anyhow and may run elsewhere.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

RELEASE = re.compile(r"\[(?:[^\]]*-)?(own|\d\d\.\d\d)(?:-[^\]]*)?\]$")


class ByFileAndRelease(LoadScopeScheduling):
    """One scope for each pair of file and Slurm release."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


def scope(nodeid: str) -> str:
    """The file of a test, with the Slurm release if it runs on several.

    >>> scope("tests/system/test_plan.py::test_it[24.11]"), scope("tests/site/test_load.py::test_it[a-b]")
    ('tests/system/test_plan.py 24.11', 'tests/site/test_load.py')
    """
    release = RELEASE.search(nodeid)
    return " ".join([nodeid.partition("::")[0], *(release.groups() if release else ())])


def slowest_first(items: list[pytest.Item]) -> None:
    """Put what waits for daemons first, so that the short tests fill the gaps at the end."""
    items.sort(key=lambda item: "/system/" not in item.nodeid)


class Spread:
    """The plugin that is registered when tests run in several processes.

    It also names each failure at once: the details come only when all is over, half an hour later.
    """

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> ByFileAndRelease:
        config.option.loadscopereorder = False
        return ByFileAndRelease(config, log)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            print(f"\n{report.nodeid}: failed in its {report.when} after {report.duration:.0f} s", flush=True)
