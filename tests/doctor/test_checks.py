"""Each check: a sick snapshot that it tells of, alone, and the healthy one that none speaks of."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from hpctools.doctor.installation import ConfFile, Installation, LocalDaemon, Missing
from hpctools.doctor.model import NotChecked, Report, Severity
from hpctools.doctor.registry import CHECKS, diagnose
from tests.doctor.healthy import FILES, HEALTHY, NODES, config, files, node
from tests.doctor.illnesses import ACCOUNTING, LATE, OLD, SICK, accounting


def told(installation: Installation) -> list[tuple[str, str]]:
    return [(check, finding.subject) for check, finding in diagnose(installation).findings]


def test_nothing_is_said_of_a_healthy_installation() -> None:
    report = diagnose(HEALTHY)
    assert report == Report((), (), tuple(check.name for check in CHECKS))
    assert report.exit_code == 0


@pytest.mark.parametrize(("check", "changes", "subject", "words"), SICK, ids=lambda value: str(value)[:40])
def test_an_illness_is_told_by_its_check_alone(
    check: str, changes: dict[str, Any], subject: str, words: str
) -> None:
    report = diagnose(replace(HEALTHY, **changes))
    assert [(name, finding.subject) for name, finding in report.findings] == [(check, subject)]
    finding = report.findings[0][1]
    assert re.search(words, finding.seen), finding.seen
    assert finding.why
    assert finding.remedy
    assert check not in report.passed
    assert report.exit_code == 1


@pytest.mark.parametrize(
    "reason",
    [
        "gres/gpu count reported lower than configured (4 < 8) [slurm@2026-11-21T15:38:20]",
        "gpu:a100_1g.5gb count too low (3 < 4)",
        "gres/shard count too low (1 < 4)",
    ],
)
def test_missing_gpus_and_slices_are_known_by_all_words_of_slurmctld(reason: str) -> None:
    (found,) = diagnose(replace(HEALTHY, **node("DOWN", ("INVALID_REG",), reason))).findings
    assert "nvidia-smi -L" in found[1].remedy


@pytest.mark.parametrize(
    "reason", ["NVMe device error", "out of service until Monday", "MIG slice lost, see notice of the vendor"]
)
def test_a_part_of_a_word_is_no_cause(reason: str) -> None:
    """What a person drained is left to the person, and no device is a machine that the cloud lacked."""
    assert told(replace(HEALTHY, **node("IDLE", ("DRAIN",), reason))) == []
    (found,) = diagnose(replace(HEALTHY, **node("DOWN", (), reason))).findings
    assert found[1].why == "no job starts there"


@pytest.mark.parametrize("reason", ["ICE: no p4d.24xlarge", "(Code:InsufficientInstanceCapacity)Failure"])
def test_a_cloud_without_machines_is_told_as_such(reason: str) -> None:
    (found,) = diagnose(replace(HEALTHY, **node("DOWN", ("CLOUD",), reason))).findings
    assert "power_down" in found[1].remedy


def test_each_check_has_an_illness_here() -> None:
    assert {check.name for check in CHECKS} == {check for check, *_ in SICK}


def test_the_page_counts_the_checks_that_there_are() -> None:
    page = (Path(__file__).parents[2] / "docs/doctor.md").read_text(encoding="utf-8")
    assert f"1 finding, {len(CHECKS)} checks made" in page


@pytest.mark.parametrize("field", [field.name for field in fields(Installation)])
def test_what_was_not_seen_never_passes(field: str) -> None:
    """A check either needs a part and says that it was missing, or does as if it were there."""
    report = diagnose(replace(HEALTHY, **{field: Missing("no reason", unreachable=True)}))
    blind = [check.name for check in CHECKS if field in check.needs]
    assert report.not_checked == tuple(NotChecked(name, "no reason", True) for name in blind)
    assert set(report.passed) == {check.name for check in CHECKS} - set(blind)
    assert report.exit_code == (3 if blind else 0)


def test_every_need_is_a_part_of_the_snapshot() -> None:
    known = {field.name for field in fields(Installation)}
    assert {need for check in CHECKS for need in check.needs} <= known


def test_the_worst_comes_first() -> None:
    sick = replace(HEALTHY, strangers=("eve",), credential="broken", **config(MessageTimeout="5 sec"))
    severities = [finding.severity for _, finding in diagnose(sick).findings]
    assert severities == [Severity.ERROR, Severity.WARNING, Severity.WARNING]


def test_nodes_with_one_reason_are_one_finding() -> None:
    down = [replace(node, state="DOWN", flags=(), reason="Not responding") for node in NODES[:3]]
    assert told(replace(HEALTHY, nodes=tuple(down))) == [("nodes-are-up", "reserved-[1-2],shared-1")]


@pytest.mark.parametrize(
    "changes",
    [
        # NVML finds the GPUs; a record for every node; a file that Slurm does not read there.
        files(ConfFile("gres.conf", "AutoDetect=nvml\nName=shard Count=16")),
        files(ConfFile("gres.conf", "Name=gpu File=/dev/nvidia[0-3]\nName=shard Count=16")),
        files(ConfFile("plugstack.conf", "include /etc/slurm/plugstack.conf.d/*.conf")),
        files(ConfFile("unrelated.conf", "A=b", changed=LATE)),
        {"files": tuple(replace(file, changed=LATE - 1) for file in FILES)},
        {"nodes": (replace(NODES[3], flags=("CLOUD", "POWERING_UP", "NOT_RESPONDING")), *NODES[:3])},
        config(TopologyPlugin="topology/default", ReturnToService="2"),
        config(AccountingStorageEnforce="all"),
        config(PrivateData="none"),  # from 23.02 on nobody is hidden
        {**OLD, **config(SLURM_VERSION="22.05.8")},
        {"adopts": (), **config(PrologFlags="(null)")},
        {"rdma": False, "daemons": (LocalDaemon("slurmd", 5, 65536, 65536),)},
        {"paths": {}},
        files(ConfFile("topology.yaml", "- topology: flat\n  flat: true\n")),
        files(ConfFile("topology.yaml", "    - block: b\n      nodes: 'reserved-[1-2],shared-[1-2]'\n")),
        accounting(default_accounts={**ACCOUNTING.default_accounts, "elsewhere": ""}),
    ],
)
def test_what_is_unusual_and_no_illness(changes: dict[str, Any]) -> None:
    assert told(replace(HEALTHY, **changes)) == []
