"""A site -> the files that HyperPod creates its cluster from. Pure; the same site gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.advise import Advice, advise, of_site
from hpctools.hyperpod.check import check
from hpctools.hyperpod.document import of_bytes
from hpctools.hyperpod.files import CLUSTER_CONFIG, PROVISIONING, Files
from hpctools.hyperpod.partitions import agent_partitions
from hpctools.hyperpod.surroundings import Database, FileSystem, Surroundings
from hpctools.hyperpod.tags import as_list, cluster_tags
from hpctools.site.hyperpod import Controller, GroupOptions, HyperPod, InstanceNetwork, InstanceOptions
from hpctools.site.instances import known_instance
from hpctools.site.model import Site
from hpctools.site.nodes import NodeGroup

Json = dict[str, Any]
ENTRY = "on_create.sh"
"""The lifecycle scripts' entry point."""
_CHECKS = {
    "instance-stress": "InstanceStress",
    "instance-connectivity": "InstanceConnectivity",
    "multi-node-training": "MultiNodeTrainingValidation",
}
_MOST_THREADS = 2  # botocore, CreateCluster: ThreadsPerCore 1-2


@dataclass(frozen=True)
class Rendered:
    """What a site's cluster is created from.

    Attributes:
        request: the request of CreateCluster.
        provisioning: provisioning_parameters.json, for the place of the lifecycle scripts; None where the
            request says everything.
        advice: why it is as it is.
    """

    request: Json
    provisioning: Json | None
    advice: Advice

    @property
    def files(self) -> Mapping[str, str]:
        """The files' texts by name."""
        texts = {CLUSTER_CONFIG: text_of(self.request)}
        if self.provisioning is not None:
            texts[PROVISIONING] = text_of(self.provisioning)
        return texts


def text_of(value: Json) -> str:
    """Spell an object as the files have it."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def render(site: Site, around: Surroundings) -> Rendered:
    """Render a site's files.

    Raises:
        HpctoolsError: the site asks for what HyperPod does not have, or the files would not pass their own
            check; all that is wrong is named. botocore is missing.
    """
    section = site.hyperpod or HyperPod()
    advice = advise(of_site(site))
    if advice.conflicts:
        raise HpctoolsError("; ".join(advice.conflicts), "correct the site's hyperpod section")
    legacy = advice.style == "legacy"
    request: Json = {
        "ClusterName": site.cluster.name,
        "InstanceGroups": list(_groups(site, section, around, legacy)),
        "VpcConfig": _network(around.subnets, around.security_groups),
        "Tags": as_list(cluster_tags(site)),
        "NodeRecovery": {"automatic": "Automatic", "none": "None"}[section.node_recovery],
    }
    if not legacy:
        request["Orchestrator"] = {"Slurm": _slurm(advice, section, around)}
    if section.continuous:
        request["NodeProvisioningMode"] = "Continuous"
    rendered = Rendered(request, _provisioning(site, section, around) if legacy else None, advice)
    _refuse_faults(rendered)
    return rendered


def files_of(rendered: Rendered) -> Files:
    """Return the rendered files as a check takes them."""
    texts = rendered.files
    read = {name: of_bytes(text.encode(), name)[0] for name, text in texts.items()}
    return Files(read[CLUSTER_CONFIG], read.get(PROVISIONING))


def _refuse_faults(rendered: Rendered) -> None:
    errors = check(files_of(rendered)).errors
    if errors:
        raise HpctoolsError(
            "HyperPod would refuse what comes of this site:\n" + "\n".join(map(str, errors)),
            "correct the site (or what its stack gave out)",
        )


def _slurm(advice: Advice, section: HyperPod, around: Surroundings) -> Json:
    slurm: Json = {"SlurmConfigStrategy": advice.strategy} if advice.strategy else {}
    if section.continuous and around.database is not None:
        database = around.database
        slurm["AccountingDatabase"] = {
            "Endpoint": database.endpoint,
            "Port": database.port,
            "Name": database.name,
            "SecretArn": database.secret,
        }
    return slurm


def _groups(site: Site, section: HyperPod, around: Surroundings, legacy: bool) -> Iterator[Json]:
    partitions = agent_partitions(site)
    yield _controller(section.controller, len(site.cluster.controllers), around, legacy)
    logins = [group for group in site.node_groups if group.role == "login"]
    for group in (*logins, *(each for each in site.node_groups if each.role != "login")):
        options = section.node_groups.get(group.name, GroupOptions())
        yield _group(group, options, around, None if legacy else partitions.get(group.name, ""))


def _controller(options: Controller, count: int, around: Surroundings, legacy: bool) -> Json:
    made: Json = {
        "InstanceGroupName": options.group,
        "InstanceType": options.instance_type,
        "InstanceCount": count,
    }
    if not legacy:
        made["SlurmConfig"] = {"NodeType": "Controller"}
    return made | _common(options, around, "controller", _threads(options.instance_type), legacy)


def _group(group: NodeGroup, options: GroupOptions, around: Surroundings, partition: str | None) -> Json:
    """One group; `partition` is None in the legacy style and empty for login nodes."""
    made: Json = {"InstanceGroupName": group.name, **_types(group, options)}
    made["InstanceCount"] = group.count.min
    if options.min_count is not None:
        made["MinInstanceCount"] = options.min_count
    if partition is not None:
        made["SlurmConfig"] = (
            {"NodeType": "Compute", "PartitionNames": [partition]} if partition else {"NodeType": "Login"}
        )
    if group.capacity == "spot":
        made["CapacityRequirements"] = {"Spot": {}}
    hardware = group.node_hardware
    threads = hardware.threads_per_core if hardware else _threads(group.instance_type or "")
    made |= _common(options, around, group.role, threads, legacy=partition is None)
    if options.deep_health_checks:
        made["OnStartDeepHealthChecks"] = [_CHECKS[name] for name in options.deep_health_checks]
    if options.training_plan is not None:
        made["TrainingPlanArn"] = options.training_plan
    return made


def _types(group: NodeGroup, options: GroupOptions) -> Json:
    if options.other_instance_types:
        return {
            "InstanceRequirements": {"InstanceTypes": [group.instance_type, *options.other_instance_types]}
        }
    return {"InstanceType": group.instance_type}


def _threads(instance_type: str) -> int | None:
    known = known_instance(instance_type)
    return known.threads if known else None


def _common(
    options: InstanceOptions, around: Surroundings, role: str, threads: int | None, legacy: bool
) -> Json:
    made: Json = {
        "LifeCycleConfig": {"SourceS3Uri": around.lifecycle, "OnCreate": ENTRY},
        "ExecutionRole": around.roles[role],
    }
    if threads is not None:
        # Slurm's node lines count these threads; HyperPod switches them off when nothing is said.
        made["ThreadsPerCore"] = min(threads, _MOST_THREADS)
    storage = [*_volumes(options), *([] if legacy else map(_mounted, around.file_systems))]
    optional = {
        "InstanceStorageConfigs": storage or None,
        "OverrideVpcConfig": _override(options.network),
        "ImageId": options.image,
        "ImageReleaseVersion": options.image_release,
        "ScheduledUpdateConfig": _schedule(options.update_schedule),
    }
    return made | {key: value for key, value in optional.items() if value is not None}


def _volumes(options: InstanceOptions) -> Iterator[Json]:
    if options.root_key is not None:
        yield {"EbsVolumeConfig": {"RootVolume": True, "VolumeKmsKeyId": options.root_key}}
    if options.ebs_gib is not None:
        key = {"VolumeKmsKeyId": options.ebs_key} if options.ebs_key else {}
        yield {"EbsVolumeConfig": {"VolumeSizeInGB": options.ebs_gib, **key}}


def _mounted(system: FileSystem) -> Json:
    if system.kind == "lustre":
        named = {"DnsName": system.dns_name, "MountName": system.mount_name, "MountPath": system.mount}
        return {"FsxLustreConfig": named}
    return {"FsxOpenZfsConfig": {"DnsName": system.dns_name, "MountPath": system.mount}}


def _override(network: InstanceNetwork | None) -> Json | None:
    return _network(network.subnets, network.security_groups) if network else None


def _network(subnets: tuple[str, ...], groups: tuple[str, ...]) -> Json:
    return {"SecurityGroupIds": list(groups), "Subnets": list(subnets)}


def _schedule(expression: str | None) -> Json | None:
    return {"ScheduleExpression": expression} if expression else None


def _provisioning(site: Site, section: HyperPod, around: Surroundings) -> Json:
    login = next((group.name for group in site.node_groups if group.role == "login"), None)
    made: Json = {
        "version": "1.0.0",
        "workload_manager": "slurm",
        "controller_group": section.controller.group,
    }
    if login is not None:
        made["login_group"] = login
    made["worker_groups"] = [
        {"instance_group_name": group, "partition_name": partition}
        for group, partition in agent_partitions(site).items()
    ]
    for system in around.file_systems:
        if system.kind == "lustre":
            made |= {"fsx_dns_name": system.dns_name, "fsx_mountname": system.mount_name}
        else:
            made["fsx_openzfs_dns_name"] = system.dns_name
    if len(site.cluster.controllers) > 1 and around.database is not None:
        made["slurm_configurations"] = _shared(section, around.database, around.topic)
    return made


def _shared(section: HyperPod, database: Database, topic: str | None) -> Json:
    return {
        "slurm_database_secret_arn": database.secret,
        "slurm_database_endpoint": database.endpoint,
        "slurm_shared_directory": section.failover.shared_folder if section.failover else "/fsx",
        "slurm_database_user": database.user,
        "slurm_sns_arn": topic,
    }
