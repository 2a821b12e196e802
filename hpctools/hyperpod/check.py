"""All that can be said of a cluster's files without asking AWS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hpctools.hyperpod import service_model
from hpctools.hyperpod.files import Files, Style
from hpctools.hyperpod.findings import Finding
from hpctools.hyperpod.provisioning import check_provisioning
from hpctools.hyperpod.rules_cluster import CLUSTER_RULES, Rule
from hpctools.hyperpod.rules_groups import GROUP_RULES
from hpctools.hyperpod.rules_legacy import LEGACY_RULES
from hpctools.hyperpod.rules_slurmconfig import SLURMCONFIG_RULES
from hpctools.hyperpod.shapes import check_shape

RULES: tuple[Rule, ...] = (*CLUSTER_RULES, *GROUP_RULES, *SLURMCONFIG_RULES, *LEGACY_RULES)


@dataclass(frozen=True)
class Report:
    """What came of a check.

    Attributes:
        style: how the cluster tells HyperPod of Slurm.
        findings: everything, in the order of the files.
    """

    style: Style
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that make the request fail, or the cluster."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def and_also(self, more: Iterator[Finding] | tuple[Finding, ...]) -> Report:
        """Return the report with more findings."""
        return Report(self.style, _ordered((*self.findings, *more)))


def check(
    files: Files,
    faults: tuple[Finding, ...] = (),
) -> Report:
    """Check a cluster's files against SageMaker's service model and against each other.

    Args:
        files: the files.
        faults: what is wrong with their texts (`files.locate` tells).

    Raises:
        HpctoolsError: botocore is missing or too old.
    """
    return Report(files.style, _ordered((*faults, *_findings(files))))


def _findings(files: Files) -> Iterator[Finding]:
    if files.cluster is not None:
        yield from check_shape(files.request, service_model.request(files.operation))
    if files.provisioning is not None:
        yield from check_provisioning(files.legacy)
    for rule in RULES:
        yield from rule(files)


def _ordered(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(sorted(dict.fromkeys(findings)))
