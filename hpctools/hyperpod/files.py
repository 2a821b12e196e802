"""The files of one cluster: the request, and in the legacy style the file beside the lifecycle scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hpctools.errors import UsageError
from hpctools.hyperpod.document import Document, Place, read
from hpctools.hyperpod.findings import Finding

CLUSTER_CONFIG = "cluster-config.json"
PROVISIONING = "provisioning_parameters.json"
_CLUSTER_NAMES = (CLUSTER_CONFIG, "cluster_config.json", "create_cluster.json", "cluster.json")
_PROVISIONING_FOLDERS = ("", "lifecycle", "src", "base-config")

Style = Literal["slurmconfig", "legacy", "eks", "mixed", "unknown"]
"""How a cluster tells HyperPod of Slurm: in the request, in a file of its own, not at all (Kubernetes), in
both ways, or nobody knows since the request cannot be read."""


@dataclass(frozen=True)
class Files:
    """What is known of one cluster.

    Attributes:
        cluster: the request (CreateCluster or UpdateCluster); None when only the other file was given.
        provisioning: provisioning_parameters.json; None when there is none.
        updates: the request is for UpdateCluster, which may leave groups and the network out.
    """

    cluster: Document | None = None
    provisioning: Document | None = None
    updates: bool = False

    @property
    def operation(self) -> Literal["CreateCluster", "UpdateCluster"]:
        """What the request is for."""
        return "UpdateCluster" if self.updates else "CreateCluster"

    @property
    def request(self) -> Place:
        """The request's root; of an empty document when there is none."""
        return (self.cluster or Document("", {})).root

    @property
    def legacy(self) -> Place:
        """The root of provisioning_parameters.json; of an empty document when there is none."""
        return (self.provisioning or Document("", {})).root

    @property
    def groups(self) -> tuple[Place, ...]:
        """The instance groups that are objects, in the request's order."""
        return tuple(
            group for group in self.request.at("InstanceGroups").each() if isinstance(group.value, dict)
        )

    @property
    def continuous(self) -> bool:
        """Whether nodes are provisioned one by one."""
        return self.request.at("NodeProvisioningMode").value == "Continuous"

    @property
    def style(self) -> Style:
        """How the cluster tells HyperPod of Slurm."""
        if self.cluster is None and self.provisioning is not None:
            return "legacy"
        if self.cluster is None or not isinstance(self.request.value, dict):
            return "unknown"
        if self.request.at("Orchestrator", "Eks").exists:
            return "eks"
        slurm = self.request.at("Orchestrator", "Slurm").exists or any(
            group.at("SlurmConfig").exists for group in self.groups
        )
        if slurm:
            return "mixed" if self.provisioning is not None else "slurmconfig"
        # Continuous provisioning reads no provisioning_parameters.json.
        return "slurmconfig" if self.continuous and self.provisioning is None else "legacy"


def locate(paths: Sequence[Path]) -> tuple[Files, tuple[Finding, ...]]:
    """Read the files that a person named: one or two files in any order, or one folder with them.

    Which file is which is told by what it says, not by its name. Beside a request in the legacy style that is
    named alone, a provisioning_parameters.json in the same folder is read too.

    Returns:
        The files, and what is wrong with their texts.

    Raises:
        UsageError: there is no such file, nothing of a cluster in the folder, two files of one kind, or a
            site file.
    """
    for path in paths:
        if path.suffix in (".yaml", ".yml"):
            raise UsageError(
                f"{path}: is YAML, and HyperPod's files are JSON",
                "check a site with hpctools validate, or make its files with hpctools hyperpod render",
            )
    named = [each for path in paths for each in (_in_folder(path) if path.is_dir() else [path])]
    files, findings = _sort(read(path) for path in named)
    beside = named[0].with_name(PROVISIONING)
    if len(named) == 1 and files.cluster and files.style == "legacy" and beside.is_file():
        document, more = read(beside)
        return Files(files.cluster, document), (*findings, *more)
    return files, findings


def _in_folder(folder: Path) -> list[Path]:
    requests = [folder / name for name in _CLUSTER_NAMES if (folder / name).is_file()][:1]
    beside = [folder / name / PROVISIONING for name in _PROVISIONING_FOLDERS]
    found = requests + [path for path in beside if path.is_file()][:1]
    if not found:
        names = f"{', '.join(_CLUSTER_NAMES)} or {PROVISIONING}"
        raise UsageError(f"{folder}: holds no file of a cluster ({names})", "name the files themselves")
    return found


def _sort(found: Iterable[tuple[Document, tuple[Finding, ...]]]) -> tuple[Files, tuple[Finding, ...]]:
    cluster: Document | None = None
    provisioning: Document | None = None
    findings: list[Finding] = []
    for document, faults in found:
        findings += faults
        if _is_provisioning(document):
            provisioning = _only(provisioning, document, PROVISIONING)
        else:
            cluster = _only(cluster, document, CLUSTER_CONFIG)
    return Files(cluster, provisioning), tuple(findings)


def _only(first: Document | None, second: Document, kind: str) -> Document:
    if first is not None:
        found = f"{first.file} and {second.file} are both a {kind}"
        raise UsageError(found, "name one request, and at most one provisioning_parameters.json")
    return second


def _is_provisioning(document: Document) -> bool:
    keys = set(document.root.keys)
    if keys & {"ClusterName", "InstanceGroups", "VpcConfig", "Orchestrator"}:
        return False
    told = keys & {"workload_manager", "controller_group", "worker_groups", "login_group", "fsx_dns_name"}
    return bool(told) or (not keys and Path(document.file).name == PROVISIONING)
