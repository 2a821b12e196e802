"""From one of HyperPod's two configuration styles to the other. Pure.

Source of the mapping: the HyperPod developer guide, "Map your legacy configuration to the API format". What
the other style has no word for is said in notes; nothing is lost in silence.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.check import check
from hpctools.hyperpod.document import Document
from hpctools.hyperpod.files import CLUSTER_CONFIG, PROVISIONING, Files
from hpctools.hyperpod.findings import Finding

Json = dict[str, Any]
LUSTRE_PATH, OPENZFS_PATH = "/fsx", "/home"
"""Where nodes mount file systems when nothing else is said."""
_PARTITION = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*", re.ASCII)
_CARRIED = frozenset(
    {
        "version",
        "workload_manager",
        "controller_group",
        "login_group",
        "worker_groups",
        "fsx_dns_name",
        "fsx_mountname",
        "fsx_openzfs_dns_name",
        "slurm_configurations",
    }
)


@dataclass(frozen=True)
class Converted:
    """A cluster in the other style.

    Attributes:
        request: the request.
        provisioning: provisioning_parameters.json; None where the request says everything.
        lost: what could not be carried over, a sentence each.
        changed: what is spelled differently now, or has to be done beside it, a sentence each.
    """

    request: Json
    provisioning: Json | None
    lost: tuple[str, ...]
    changed: tuple[str, ...]


@dataclass
class _Notes:
    lost: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


def to_slurmconfig(files: Files, errors: Iterable[Finding] = ()) -> Converted:
    """Put all that a legacy cluster's file says of Slurm into its request.

    Args:
        files: a cluster in the legacy style.
        errors: what a check found wrong with them; there may be none.

    Raises:
        HpctoolsError: the files have errors, are not of the legacy style, or have several controllers.
    """
    request, legacy = _sound(files, "legacy", errors)
    notes = _Notes()
    parts = _parts(legacy, notes)
    for group in request["InstanceGroups"]:
        part = parts[group["InstanceGroupName"]]
        if part["NodeType"] == "Controller" and group["InstanceCount"] > 1:
            raise HpctoolsError(
                f"{group['InstanceCount']} controllers: SlurmConfig has one only",
                "stay with the legacy style, or go down to one controller first",
            )
        group["SlurmConfig"] = part
        _mount(group, legacy)
    request.setdefault("Orchestrator", {}).setdefault("Slurm", {})["SlurmConfigStrategy"] = "Merge"
    if "slurm_configurations" in legacy:
        notes.lost.append(
            "slurm_configurations: SlurmConfig knows no database, folder and topic of several controllers"
        )
    notes.lost += [f"{key}: only scripts of your own read it" for key in legacy if key not in _CARRIED]
    notes.changed.append("SlurmConfigStrategy is Merge, which does what the legacy style did")
    notes.changed.append(f"take {PROVISIONING} away under every SourceS3Uri: HyperPod refuses it from now on")
    return _sound_result(Converted(request, None, tuple(notes.lost), tuple(notes.changed)))


def _sound(files: Files, style: str, errors: Iterable[Finding]) -> tuple[Json, Json]:
    found = [str(error) for error in errors if error.severity == "error"]
    if found:
        raise HpctoolsError("the files have errors:\n" + "\n".join(found), "correct them first")
    if files.style != style or (style == "legacy" and files.provisioning is None) or not files.groups:
        named = {"legacy": "the request and provisioning_parameters.json", "slurmconfig": "the request"}[
            style
        ]
        raise HpctoolsError(f"these files are not of the style {style}", f"name {named} of such a cluster")
    request: Any = copy.deepcopy(files.request.value)
    return request, copy.deepcopy(dict[str, Any](files.legacy.value))  # type: ignore[call-overload]


def _sound_result(made: Converted) -> Converted:
    """Refuse what the other style does not take: nobody should find out by creating the cluster."""
    provisioning = Document(PROVISIONING, made.provisioning) if made.provisioning is not None else None
    errors = check(Files(Document(CLUSTER_CONFIG, made.request), provisioning)).errors
    if errors:
        told = "\n".join(map(str, errors))
        raise HpctoolsError(f"the other style does not take this cluster:\n{told}", "correct it first")
    return made


def _parts(legacy: Mapping[str, Any], notes: _Notes) -> dict[str, Json]:
    parts: dict[str, Json] = {legacy["controller_group"]: {"NodeType": "Controller"}}
    if legacy.get("login_group"):
        parts[legacy["login_group"]] = {"NodeType": "Login"}
    workers = legacy["worker_groups"]
    names = _partition_names([worker["partition_name"] for worker in workers], notes)
    for worker in workers:
        partition = names[worker["partition_name"]]
        parts[worker["instance_group_name"]] = {"NodeType": "Compute", "PartitionNames": [partition]}
    return parts


def _partition_names(wanted: Iterable[str], notes: _Notes) -> dict[str, str]:
    """Names that the request takes; those that it takes already keep theirs."""
    old = list(dict.fromkeys(wanted))
    names = {name: name for name in old if _PARTITION.fullmatch(name)}
    for name in (each for each in old if each not in names):
        plain = re.sub(r"[^a-zA-Z0-9]+", "-", name).strip("-") or "partition"
        new, number = plain, 2
        while new in names.values():
            new, number = f"{plain}-{number}", number + 1
        names[name] = new
        notes.changed.append(
            f"partition {name} is called {new}: jobs and scripts that name it have to follow"
        )
    return names


def _mount(group: Json, legacy: Mapping[str, Any]) -> None:
    systems: list[Json] = []
    if "fsx_dns_name" in legacy:
        lustre = {"DnsName": legacy["fsx_dns_name"], "MountName": legacy["fsx_mountname"]}
        systems.append({"FsxLustreConfig": lustre | {"MountPath": LUSTRE_PATH}})
    if "fsx_openzfs_dns_name" in legacy:
        openzfs = {"DnsName": legacy["fsx_openzfs_dns_name"], "MountPath": OPENZFS_PATH}
        systems.append({"FsxOpenZfsConfig": openzfs})
    if systems:
        group["InstanceStorageConfigs"] = [*group.get("InstanceStorageConfigs", []), *systems]


def to_legacy(files: Files, errors: Iterable[Finding] = ()) -> Converted:
    """Put all that a request says of Slurm into a provisioning_parameters.json.

    Args:
        files: a cluster with SlurmConfig in its request.
        errors: what a check found wrong with it; there may be none.

    Raises:
        HpctoolsError: the request has errors, says nothing of Slurm, or is none that the legacy style takes.
    """
    request, _ = _sound(files, "slurmconfig", errors)
    notes = _Notes()
    groups = request["InstanceGroups"]
    provisioning: Json = {"version": "1.0.0", "workload_manager": "slurm"}
    provisioning |= _roles(groups)
    provisioning |= _unmount(groups, notes)
    for group in groups:
        group.pop("SlurmConfig", None)
        if group.pop("MinInstanceCount", None) is not None:
            notes.lost.append(
                f"MinInstanceCount of {group['InstanceGroupName']}: continuous provisioning only"
            )
    _without_slurm(request, notes)
    notes.changed.append(f"upload {PROVISIONING} under every SourceS3Uri before the cluster is created")
    return _sound_result(Converted(request, provisioning, tuple(notes.lost), tuple(notes.changed)))


def _roles(groups: Iterable[Json]) -> Json:
    made: Json = {}
    workers: list[Json] = []
    for group in groups:
        name, config = group["InstanceGroupName"], group["SlurmConfig"]
        if config["NodeType"] == "Compute":
            workers.append({"instance_group_name": name, "partition_name": config["PartitionNames"][0]})
        else:
            made["controller_group" if config["NodeType"] == "Controller" else "login_group"] = name
    return made | {"worker_groups": workers}


def _unmount(groups: list[Json], notes: _Notes) -> Json:
    """Take the file systems out of the groups; the legacy style has one of each kind, for all nodes."""
    lustre = _taken(groups, "FsxLustreConfig", LUSTRE_PATH, notes)
    openzfs = _taken(groups, "FsxOpenZfsConfig", OPENZFS_PATH, notes)
    made: Json = {}
    if lustre is not None:
        made |= {"fsx_dns_name": lustre["DnsName"], "fsx_mountname": lustre["MountName"]}
    if openzfs is not None:
        made["fsx_openzfs_dns_name"] = openzfs["DnsName"]
    return made


def _taken(groups: list[Json], kind: str, usual: str, notes: _Notes) -> Json | None:
    first: Json | None = None
    without: list[str] = []
    for group in groups:
        found = _take(group, kind)
        if found is None:
            without.append(group["InstanceGroupName"])
            continue
        path = found.setdefault("MountPath", usual)
        if path != usual:
            notes.lost.append(
                f"MountPath {path} of {group['InstanceGroupName']}: the scripts choose the place"
            )
        if first is not None and found["DnsName"] != first["DnsName"]:
            lost = (
                f"{found['DnsName']} of {group['InstanceGroupName']}: the legacy style has one for all nodes"
            )
            notes.lost.append(lost)
        first = first or found
    if first is not None and without:
        notes.changed.append(
            f"{', '.join(without)} mount {first['DnsName']} too, as all nodes do from now on"
        )
    return first


def _take(group: Json, kind: str) -> Json | None:
    configs = group.get("InstanceStorageConfigs", [])
    taken: Json | None = next((config[kind] for config in configs if kind in config), None)
    if taken is not None:
        rest = [config for config in configs if kind not in config]
        group["InstanceStorageConfigs"] = rest
        if not rest:
            del group["InstanceStorageConfigs"]
    return taken


def _without_slurm(request: Json, notes: _Notes) -> None:
    slurm = request.pop("Orchestrator", {}).get("Slurm", {})
    strategy = slurm.get("SlurmConfigStrategy")
    if strategy in ("Managed", "Overwrite"):
        notes.lost.append(f"SlurmConfigStrategy {strategy}: the legacy style always merges")
    if "AccountingDatabase" in slurm:
        notes.lost.append("AccountingDatabase: the lifecycle scripts have to set slurmdbd up")
    if request.pop("NodeProvisioningMode", None) is not None:
        notes.lost.append("NodeProvisioningMode Continuous: it reads no provisioning_parameters.json")
