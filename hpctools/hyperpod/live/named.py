"""What a cluster's files name at AWS, with the places that name it."""

from __future__ import annotations

from collections.abc import Iterator

from hpctools.hyperpod.document import MISSING, Place
from hpctools.hyperpod.files import Files


def networks(files: Files) -> list[Place]:
    """The cluster's network, then those of groups of their own."""
    places = [files.request.at("VpcConfig"), *(group.at("OverrideVpcConfig") for group in files.groups)]
    return [place for place in places if place.keys]


def network_of(files: Files, group: Place) -> Place:
    """The network of a group."""
    own = group.at("OverrideVpcConfig")
    return own if own.keys else files.request.at("VpcConfig")


def subnets(network: Place) -> list[Place]:
    """The subnets of a network."""
    return [place for place in network.at("Subnets").each() if place.text]


def security_groups(network: Place) -> list[Place]:
    """The security groups of a network."""
    return [place for place in network.at("SecurityGroupIds").each() if place.text]


def types(group: Place) -> list[Place]:
    """The instance types of a group, the first choice first."""
    several = group.at("InstanceRequirements", "InstanceTypes").each()
    return [place for place in (group.at("InstanceType"), *several) if place.text]


def networks_of(files: Files, place: Place) -> list[Place]:
    """The networks of the nodes that mount what a place names: its group's, or those of all groups."""
    if place.location[:1] == ("InstanceGroups",):
        return [network_of(files, group) for group in files.groups if group.location == place.location[:2]]
    each = {network.location: network for network in (network_of(files, group) for group in files.groups)}
    return list(each.values())


def file_systems(files: Files) -> Iterator[tuple[Place, Place, str]]:
    """Every mention of a file system: the place of its DNS name, that of its mount name, and its kind."""
    for group in files.groups:
        for config in group.at("InstanceStorageConfigs").each():
            lustre, openzfs = config.at("FsxLustreConfig"), config.at("FsxOpenZfsConfig")
            yield lustre.at("DnsName"), lustre.at("MountName"), "LUSTRE"
            yield openzfs.at("DnsName"), openzfs.at("MountName"), "OPENZFS"
    yield files.legacy.at("fsx_dns_name"), files.legacy.at("fsx_mountname"), "LUSTRE"
    nothing = Place(files.legacy.document, MISSING)
    yield files.legacy.at("fsx_openzfs_dns_name"), nothing, "OPENZFS"


def identifier(dns_name: str) -> str:
    """The id of a file system, of its DNS name."""
    return dns_name.split(".", 1)[0]


def texts(files: Files, *keys: str) -> list[Place]:
    """A text of each group that has it."""
    return [place for group in files.groups if (place := group.at(*keys)).text]


def distinct(places: list[Place]) -> list[str]:
    """The texts of places, each once."""
    return list(dict.fromkeys(place.text for place in places if place.text))
