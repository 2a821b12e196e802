"""Rules for clusters that tell HyperPod of Slurm in the request.

Source: the HyperPod developer guide, "SageMaker HyperPod Slurm configuration", "Migrating to API-driven Slurm
configuration" (with the messages of failed requests) and "Continuous provisioning with Slurm".
"""

from __future__ import annotations

from collections.abc import Iterator

from hpctools.hyperpod.document import Place
from hpctools.hyperpod.files import Files
from hpctools.hyperpod.findings import Finding
from hpctools.hyperpod.rules_cluster import Rule

DEV_PARTITION = "dev"
"""HyperPod puts every node into it. Said here too, since a check of files needs nothing of a site."""
_GUIDE = "with SlurmConfig or Orchestrator.Slurm in the request"


def _in_request(files: Files) -> bool:
    return files.style in ("slurmconfig", "mixed")


def _of_type(files: Files, kind: str) -> list[Place]:
    return [group for group in files.groups if group.at("SlurmConfig", "NodeType").value == kind]


def not_both_styles(files: Files) -> Iterator[Finding]:
    """HyperPod refuses the file beside SlurmConfig, and rolls the cluster back when it finds it in S3."""
    if files.style == "mixed":
        found = f"provisioning_parameters.json {_GUIDE}"
        remedy = "take the file away, here and under every SourceS3Uri, or SlurmConfig and Orchestrator.Slurm"
        yield files.legacy.finding("both-styles", remedy, found)


def every_group_has_a_type(files: Files) -> Iterator[Finding]:
    """A group without SlurmConfig beside groups that have one is no part of the Slurm cluster."""
    if not _in_request(files):
        return
    for group in files.groups:
        if not group.at("SlurmConfig").exists:
            remedy = "add SlurmConfig with NodeType Controller, Login or Compute"
            yield group.finding("node-type", remedy, f"{_name(group)} without SlurmConfig")


def one_controller(files: Files) -> Iterator[Finding]:
    """Exactly one group is the controller's, and it has exactly one node."""
    if not _in_request(files) or not files.groups:
        return
    controllers = _of_type(files, "Controller")
    if not controllers and not files.updates:
        remedy = "set NodeType to Controller in exactly one group"
        yield files.request.at("InstanceGroups").finding("one-controller", remedy, "no controller group")
    for group in controllers[1:]:
        remedy = "keep one: several controllers exist in the legacy style only"
        yield group.at("SlurmConfig", "NodeType").finding(
            "one-controller", remedy, f"another controller group {_name(group)}"
        )
    for group in controllers[:1]:
        count = group.at("InstanceCount").number
        if count is not None and count != 1:
            remedy = "write 1: several controllers exist in the legacy style only"
            yield group.at("InstanceCount").finding("one-controller", remedy, f"{count} controllers")


def one_login_group(files: Files) -> Iterator[Finding]:
    """At most one group is for login."""
    for group in _of_type(files, "Login")[1:]:
        place = group.at("SlurmConfig", "NodeType")
        yield place.finding("one-login-group", "keep one", f"another login group {_name(group)}")


def some_compute(files: Files) -> Iterator[Finding]:
    """A cluster that runs jobs has a group that runs them."""
    if _in_request(files) and files.groups and not files.updates and not _of_type(files, "Compute"):
        remedy = "set NodeType to Compute in the groups that run jobs"
        yield files.request.at("InstanceGroups").warning("no-compute", remedy, "no compute group")


def partitions_on_compute(files: Files) -> Iterator[Finding]:
    """Compute groups name their partition; for others the request is refused."""
    for group in files.groups:
        config = group.at("SlurmConfig")
        kind, names = config.at("NodeType").text, config.at("PartitionNames")
        if kind == "Compute" and (not names.exists or names.value == []):
            found = f"compute group {_name(group)} without PartitionNames"
            yield config.finding("partition-names", "add PartitionNames with one name", found)
        if kind in ("Controller", "Login") and names.exists and names.value != []:
            found = f"PartitionNames of {kind.lower()} nodes"
            yield names.finding("partition-names", "take it away: only compute groups have partitions", found)
        for name in names.each():
            if name.text == DEV_PARTITION:
                remedy = "choose another name: HyperPod puts every node into dev by itself"
                yield name.warning("partition-name", remedy)
            elif name.text and name.text.lower() in ("default", "all"):
                yield name.finding("partition-name", "write another name: this one means something to Slurm")


def strategy_fits(files: Files) -> Iterator[Finding]:
    """Continuous provisioning refuses any strategy; elsewhere the guide's pages disagree on the default."""
    slurm = files.request.at("Orchestrator", "Slurm")
    strategy = slurm.at("SlurmConfigStrategy")
    if files.continuous and strategy.exists:
        remedy = "take it away: continuous provisioning always merges, and refuses any strategy"
        yield strategy.finding("strategy", remedy, f"{strategy.text} with continuous provisioning")
    if files.style == "slurmconfig" and not files.continuous and not strategy.exists:
        remedy = (
            "write SlurmConfigStrategy: AWS's pages name both Managed and Merge as what counts without it"
        )
        place = slurm if slurm.exists else files.request
        yield place.warning("strategy", remedy, "no SlurmConfigStrategy")
    if slurm.exists and files.groups and not any(group.at("SlurmConfig").exists for group in files.groups):
        remedy = "add SlurmConfig to the groups, or take Orchestrator.Slurm away"
        yield slurm.finding("node-type", remedy, "Orchestrator.Slurm, and no group with SlurmConfig")


def continuous_fits(files: Files) -> Iterator[Finding]:
    """Continuous provisioning needs Slurm in the request; a database outside the cluster needs it in turn."""
    mode = files.request.at("NodeProvisioningMode")
    if files.continuous and files.style in ("legacy", "mixed"):
        remedy = "put node types and partitions into the request (hpctools hyperpod convert)"
        yield mode.finding("continuous", remedy, "continuous provisioning with provisioning_parameters.json")
    database = files.request.at("Orchestrator", "Slurm", "AccountingDatabase")
    if database.exists and not files.continuous:
        remedy = "set NodeProvisioningMode to Continuous, or take it away"
        yield database.finding(
            "accounting-database", remedy, "AccountingDatabase without continuous provisioning"
        )


def _name(group: Place) -> str:
    return repr(group.at("InstanceGroupName").text or "")


SLURMCONFIG_RULES: tuple[Rule, ...] = (
    not_both_styles,
    every_group_has_a_type,
    one_controller,
    one_login_group,
    some_compute,
    partitions_on_compute,
    strategy_fits,
    continuous_fits,
)
