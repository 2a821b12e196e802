"""Rules between the request and provisioning_parameters.json.

CreateCluster answers "the instance group names provided by the request do not match the instance group names
provided by the provisioning_parameters.json file" half an hour after it was asked; the rest shows on nodes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from hpctools.hyperpod.document import Place
from hpctools.hyperpod.files import PROVISIONING, Files
from hpctools.hyperpod.findings import Finding
from hpctools.hyperpod.rules_cluster import Rule


def file_is_there(files: Files) -> Iterator[Finding]:
    """A Slurm cluster tells HyperPod of Slurm in one way or the other."""
    # An update that leaves SlurmConfig out keeps what the cluster has.
    if files.style == "legacy" and files.provisioning is None and files.groups and not files.updates:
        found = f"no SlurmConfig in any group, and no {PROVISIONING}"
        remedy = f"add SlurmConfig to each group, or name the {PROVISIONING} too"
        yield files.request.finding("no-slurm", remedy, found)


def request_is_there(files: Files) -> Iterator[Finding]:
    """The file alone cannot be checked against the groups that it names."""
    if files.cluster is None and files.provisioning is not None:
        remedy = "name the request too"
        yield files.legacy.warning("no-request", remedy, "no request whose groups could be compared")


def names_exist(files: Files) -> Iterator[Finding]:
    """Every name is that of an instance group, letter by letter."""
    if not _comparable(files):
        return
    known = [name for group in files.groups if (name := group.at("InstanceGroupName").text)]
    for _, place in _named(files):
        if place.text and place.text not in known:
            near = difflib.get_close_matches(place.text, known, n=1)
            hint = f" ({near[0]}?)" if near else ""
            remedy = f"write one of {', '.join(known[:8])}{hint}"
            yield place.finding("unknown-group", remedy, f"{place.text!a}, which is no instance group")


def every_group_is_named(files: Files) -> Iterator[Finding]:
    """Every instance group is the controller's, for login, or one of workers."""
    if not _comparable(files):
        return
    named = {place.text for _, place in _named(files)}
    for group in files.groups:
        name = group.at("InstanceGroupName")
        if name.text and name.text not in named:
            found = f"instance group {name.text!r}, which {PROVISIONING} does not name"
            remedy = "name it there: HyperPod refuses groups whose part it does not know"
            yield name.finding("group-without-part", remedy, found)


def one_part_each(files: Files) -> Iterator[Finding]:
    """A group has one part: the controller's, login, or workers in one partition."""
    first: dict[str, str] = {}
    for part, place in _named(files):
        if not place.text:
            continue
        if place.text in first:
            found = f"{place.text!a} again, which is {first[place.text]} already"
            yield place.finding("one-part-each", "give each group one part", found)
        first.setdefault(place.text, part)


def controllers(files: Files) -> Iterator[Finding]:
    """Several controllers share a database and a folder; one needs neither."""
    if files.style not in ("legacy", "mixed"):
        return
    shared = files.legacy.at("slurm_configurations")
    name = files.legacy.at("controller_group").text
    for group in files.groups:
        count = group.at("InstanceCount")
        if group.at("InstanceGroupName").text != name or count.number is None:
            continue
        if count.number == 0:
            yield count.finding("one-controller", "write 1", "no controller")
        if count.number > 1 and not shared.exists and files.provisioning:
            remedy = "add slurm_configurations: their database, shared folder and topic; or write 1"
            yield count.finding(
                "several-controllers", remedy, f"{count.number} controllers that share nothing"
            )
        if count.number == 1 and shared.exists:
            remedy = "write 2 in InstanceCount for a second controller, or leave slurm_configurations out"
            yield shared.warning("several-controllers", remedy, "what several controllers share, for one")


def shared_folder(files: Files) -> Iterator[Finding]:
    """What several controllers share is on a file system that nodes mount."""
    folder = files.legacy.at("slurm_configurations", "slurm_shared_directory")
    if folder.exists and not files.legacy.at("fsx_dns_name").exists:
        remedy = "add fsx_dns_name and fsx_mountname, or see to it that your own scripts mount it"
        yield folder.warning("shared-folder", remedy, f"{folder.text!a}, and no file system in the file")


def file_systems_agree(files: Files) -> Iterator[Finding]:
    """In the legacy style the file names the file systems; the request's own need SlurmConfig."""
    if files.style != "legacy":
        return
    dns, mount = files.legacy.at("fsx_dns_name"), files.legacy.at("fsx_mountname")
    for group in files.groups:
        for config in group.at("InstanceStorageConfigs").each():
            for kind in ("FsxLustreConfig", "FsxOpenZfsConfig"):
                if config.at(kind).exists:
                    remedy = f"name the file system in {PROVISIONING}, or add SlurmConfig to each group"
                    yield config.at(kind).finding("fsx-style", remedy, f"{kind} without SlurmConfig")
            lustre = config.at("FsxLustreConfig")
            yield from _same(lustre.at("DnsName"), dns)
            yield from _same(lustre.at("MountName"), mount)


def _same(request: Place, legacy: Place) -> Iterator[Finding]:
    if request.text and legacy.text and request.text != legacy.text:
        found = f"{request.text!a}, where {legacy.location[-1]} says {legacy.text!a}"
        yield request.finding("fsx-names", "name one file system in both files", found)


def lifecycle_is_there(files: Files) -> Iterator[Finding]:
    """HyperPod looks for the file where the lifecycle scripts are."""
    if files.style != "legacy":
        return
    for group in files.groups:
        if not group.at("LifeCycleConfig").exists:
            found = f"{group.at('InstanceGroupName').text or 'a group'} without LifeCycleConfig"
            remedy = f"add LifeCycleConfig: HyperPod looks for {PROVISIONING} under its SourceS3Uri"
            yield group.finding("lifecycle", remedy, found)


def _comparable(files: Files) -> bool:
    return bool(files.groups) and isinstance(files.legacy.value, dict) and files.provisioning is not None


def _named(files: Files) -> Iterator[tuple[str, Place]]:
    root = files.legacy
    if root.at("controller_group").exists:
        yield "the controller's", root.at("controller_group")
    if root.at("login_group").exists:
        yield "the login nodes'", root.at("login_group")
    for worker in root.at("worker_groups").each():
        yield "one of workers", worker.at("instance_group_name")


LEGACY_RULES: tuple[Rule, ...] = (
    file_is_there,
    request_is_there,
    names_exist,
    every_group_is_named,
    one_part_each,
    controllers,
    shared_folder,
    file_systems_agree,
    lifecycle_is_there,
)
