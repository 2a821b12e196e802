"""Rules for each instance group, whatever the style."""

from __future__ import annotations

from collections.abc import Iterator

from hpctools.hyperpod.document import Place
from hpctools.hyperpod.files import Files
from hpctools.hyperpod.findings import Finding
from hpctools.hyperpod.rules_cluster import Rule

LIFECYCLE_PREFIX = "s3://sagemaker-"
_MOUNT_PATHS = {"FsxLustreConfig": "/fsx", "FsxOpenZfsConfig": "/home"}
"""Where HyperPod mounts a file system that names no MountPath."""


def one_kind_of_type(files: Files) -> Iterator[Finding]:
    """InstanceType and InstanceRequirements are mutually exclusive, and one of them is needed."""
    for group in files.groups:
        both = [key for key in ("InstanceType", "InstanceRequirements") if group.at(key).exists]
        if len(both) != 1:
            found = " and ".join(both) if both else "no InstanceType"
            remedy = "write InstanceType, or InstanceRequirements with several types, not both"
            yield group.finding("instance-type", remedy, found)
        seen: set[str] = set()
        for place in group.at("InstanceRequirements", "InstanceTypes").each():
            if place.text in seen:
                yield place.warning("repeated", "name each instance type once")
            seen.add(place.text or "")


def minimum_fits(files: Files) -> Iterator[Finding]:
    """A group is never in service when its minimum is above its count; continuous provisioning only."""
    for group in files.groups:
        least, count = group.at("MinInstanceCount"), group.at("InstanceCount").number
        if least.number is None:
            continue
        if count is not None and least.number > count:
            yield least.finding("min-count", f"write at most {count}, the group's InstanceCount")
        if not files.continuous and files.style != "eks":
            remedy = "take it away, or set NodeProvisioningMode to Continuous"
            yield least.finding("min-count", remedy, "MinInstanceCount without continuous provisioning")


def lifecycle_is_whole(files: Files) -> Iterator[Finding]:
    """A place without a script, or a script without a place, runs nothing."""
    for group in files.groups:
        place = group.at("LifeCycleConfig")
        if not isinstance(place.value, dict):
            continue
        source = place.at("SourceS3Uri").exists
        script = place.at("OnCreate").exists or place.at("OnInitComplete").exists
        if source != script:
            missing = "SourceS3Uri" if script else "OnCreate or OnInitComplete"
            yield place.finding("lifecycle", f"add {missing}", f"no {missing}")


def lifecycle_place(files: Files) -> Iterator[Finding]:
    """The managed policy of HyperPod's nodes reads only buckets whose names start with sagemaker-."""
    told: set[str] = set()
    for group in files.groups:
        source = group.at("LifeCycleConfig", "SourceS3Uri")
        if source.text is None or source.text in told:
            continue
        told.add(source.text)
        if not source.text.startswith("s3://"):
            yield source.finding("lifecycle-prefix", "write s3://<bucket>/<prefix>/")
        elif not source.text.startswith(LIFECYCLE_PREFIX):
            remedy = f"use a bucket {LIFECYCLE_PREFIX}..., or let the execution role read this one"
            yield source.warning("lifecycle-prefix", remedy)


def lifecycle_script(files: Files) -> Iterator[Finding]:
    """A script is named as it is below its place."""
    for group in files.groups:
        for key in ("OnCreate", "OnInitComplete"):
            script = group.at("LifeCycleConfig", key)
            if script.text is not None and (script.text.startswith("/") or ".." in script.text.split("/")):
                yield script.finding("lifecycle", "write the script's name below SourceS3Uri")


def storage(files: Files) -> Iterator[Finding]:
    """At most one root volume, one second volume, one Lustre and one OpenZFS, at places of their own."""
    for group in files.groups:
        configs = [place for place in group.at("InstanceStorageConfigs").each() if place.keys]
        yield from _once(configs)
        for config in configs:
            yield from _volume(config.at("EbsVolumeConfig"))
        yield from _mounts(configs)


def _once(configs: list[Place]) -> Iterator[Finding]:
    seen: set[str] = set()
    for config in configs:
        kind = config.keys[0]
        if kind == "EbsVolumeConfig":
            root = config.at(kind, "RootVolume").value is True
            kind = "EbsVolumeConfig of the root volume" if root else "EbsVolumeConfig of the second volume"
        if kind in seen:
            yield config.finding("storage", "keep one of them: a group has at most one", f"another {kind}")
        seen.add(kind)


def _volume(place: Place) -> Iterator[Finding]:
    if not isinstance(place.value, dict):
        return
    size, key = place.at("VolumeSizeInGB"), place.at("VolumeKmsKeyId")
    if place.at("RootVolume").value is True:
        if size.exists:
            remedy = "take VolumeSizeInGB away: HyperPod chooses the size of the root volume"
            yield size.finding("storage", remedy, "a size of the root volume")
        if not key.exists:
            remedy = "add VolumeKmsKeyId, or leave the root volume out"
            yield place.finding("storage", remedy, "a root volume without a key")
    elif not size.exists:
        yield place.finding("storage", "add VolumeSizeInGB", "a second volume without a size")


def _mounts(configs: list[Place]) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for config in configs:
        for kind, usual in _MOUNT_PATHS.items():
            system = config.at(kind)
            if not isinstance(system.value, dict):
                continue
            path = system.at("MountPath")
            where = path.text.rstrip("/") if path.text else usual
            if seen.setdefault(where, kind) != kind:
                yield system.finding(
                    "storage", "mount them at two places", f"{where}, where {seen[where]} is too"
                )


def file_systems_need_a_vpc(files: Files) -> Iterator[Finding]:
    """The network that HyperPod makes by itself reaches no file system of yours."""
    if files.cluster is None or files.updates or files.request.at("VpcConfig").exists:
        return
    remedy = "add VpcConfig: without it nodes are in a network that reaches no FSx"
    for group in files.groups:
        for config in group.at("InstanceStorageConfigs").each():
            for kind in _MOUNT_PATHS:
                if config.at(kind).exists and not group.at("OverrideVpcConfig").exists:
                    yield config.at(kind).finding("fsx-needs-vpc", remedy, f"{kind} without a VpcConfig")
    for key in ("fsx_dns_name", "fsx_openzfs_dns_name"):
        if files.legacy.at(key).exists:
            yield files.legacy.at(key).finding("fsx-needs-vpc", remedy, f"{key} without a VpcConfig")


def capacity(files: Files) -> Iterator[Finding]:
    """A group is spot or on demand; what a training plan reserves is neither spot nor for sale elsewhere."""
    for group in files.groups:
        place = group.at("CapacityRequirements")
        if isinstance(place.value, dict) and len({"Spot", "OnDemand"} & set(place.keys)) > 1:
            yield place.finding("capacity", "write one of Spot and OnDemand", "both Spot and OnDemand")
        plan = group.at("TrainingPlanArn")
        if plan.exists and place.at("Spot").exists:
            yield plan.finding("capacity", "take Spot or the plan away", "a training plan for spot capacity")
        if plan.exists and group.at("InstanceRequirements").exists:
            remedy = "write the InstanceType that the plan reserves"
            yield plan.finding("capacity", remedy, "a training plan for several instance types")


def health_checks(files: Files) -> Iterator[Finding]:
    """Each check stands once."""
    for group in files.groups:
        checks = [place for place in group.at("OnStartDeepHealthChecks").each() if place.text]
        for index, place in enumerate(checks):
            if place.text in [before.text for before in checks[:index]]:
                yield place.finding("repeated", "name each check once")


GROUP_RULES: tuple[Rule, ...] = (
    one_kind_of_type,
    minimum_fits,
    lifecycle_is_whole,
    lifecycle_place,
    lifecycle_script,
    storage,
    file_systems_need_a_vpc,
    capacity,
    health_checks,
)
