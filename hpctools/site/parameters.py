"""The way out: settings in Slurm's own words, where the site file has none for them.

A value ends up on one line of a Slurm file, between spaces, so it can hold neither a line break nor a `#`,
and a space only in quotes. Keys that the site file says in words of its own are refused, with those words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from hpctools.site.scalars import refuse

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}", re.ASCII)
_VALUE = re.compile(r'(?:[!-~]{0,4000}|"[ !-~]{0,4000}")', re.ASCII)
_FORBIDDEN = re.compile(r'[#\\]|(?!^)"(?!$)')
_SETTING = re.compile(r"[A-Za-z0-9_.,=/:+-]{0,400}", re.ASCII)


def _key(value: object) -> str:
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        refuse("a key of Slurm's, letters and digits only")
    return value


def _value(value: object) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _VALUE.fullmatch(text) or _FORBIDDEN.search(text):
        refuse('one line of text without # and \\, and with spaces only in quotes ("a b"), or a whole number')
    if text.startswith('"') != text.endswith('"') or text == '"':
        refuse("quotes on both sides or on none")
    return text


def _setting(value: object) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _SETTING.fullmatch(text):
        refuse("a value for sacctmgr: letters, digits and _.,=/:+-")
    return text


ParameterName = Annotated[str, BeforeValidator(_key)]
"""A key of a Slurm file or of sacctmgr; Slurm does not tell upper from lower case."""

ParameterValue = Annotated[str, BeforeValidator(_value)]
SettingValue = Annotated[str, BeforeValidator(_setting)]


def _without(owned: Mapping[str, str]) -> Callable[[dict[str, str]], dict[str, str]]:
    """Refuse keys that have another place, and keys that differ in case only."""
    places = {key.lower(): place for key, place in owned.items()}

    def check(value: dict[str, str]) -> dict[str, str]:
        seen: set[str] = set()
        for key in value:
            if key.lower() in places:
                refuse(f"no {key} here: {places[key.lower()]}")
            if key.lower() in seen:
                refuse(f"{key} once, in upper or lower case")
            seen.add(key.lower())
        return value

    return check


_CONTROLLERS = "the site says it in cluster.controllers"
_NODES = "the site says it in node_groups"
_SECRET = "a password never stands in the site file"  # noqa: S105

ClusterParameters = Annotated[
    dict[ParameterName, ParameterValue],
    AfterValidator(
        _without(
            {
                "ClusterName": "the site says it in cluster.name",
                "SlurmctldHost": _CONTROLLERS,
                "ControlMachine": _CONTROLLERS,
                "ControlAddr": _CONTROLLERS,
                "BackupController": _CONTROLLERS,
                "BackupAddr": _CONTROLLERS,
                "SlurmUser": "the site says it in cluster.slurm_user",
                "StateSaveLocation": "the site says it in cluster.configuration.state_folder",
                "NodeName": _NODES,
                "NodeSet": _NODES,
                "FrontendName": _NODES,
                "DownNodes": "tell scontrol",
                "PartitionName": "the site says it in partitions and departments",
                "Include": "one site file makes the whole configuration",
                "AccountingStoragePass": _SECRET,
                "JobCompPass": _SECRET,
                "JobCompPassScript": _SECRET,
                "TopologyPlugin": "the site says it in cluster.topology",
                "JobContainerType": "the site says it in cluster.job_container",
                "NamespaceType": "the site says it in cluster.job_container",
            }
        )
    ),
]
"""Settings of slurm.conf."""

_DATABASE = "the site says it in cluster.accounting"
AccountingParameters = Annotated[
    dict[ParameterName, ParameterValue],
    AfterValidator(
        _without(
            {
                **dict.fromkeys(("DbdHost", "DbdPort", "StorageHost", "StoragePort"), _DATABASE),
                **dict.fromkeys(("StorageLoc", "StorageUser"), _DATABASE),
                "StoragePass": _SECRET,
                "StoragePassScript": _SECRET,
                "SlurmUser": "the site says it in cluster.slurm_user",
            }
        )
    ),
]
"""Settings of slurmdbd.conf."""

ContainmentParameters = Annotated[dict[ParameterName, ParameterValue], AfterValidator(_without({}))]
"""Settings of cgroup.conf."""

NodeParameters = Annotated[
    dict[ParameterName, ParameterValue],
    AfterValidator(_without({"NodeName": "the site says it in nodes"})),
]
"""Settings of a node line."""

PartitionParameters = Annotated[
    dict[ParameterName, ParameterValue],
    AfterValidator(
        _without(
            {
                "PartitionName": "the site says it in name",
                "Nodes": "the site says it in node_groups",
                "Default": "the site says it in default",
            }
        )
    ),
]
"""Settings of a partition line."""

_GRES_LINE = re.compile(r"[A-Za-z]+=[!-~]+(?: [A-Za-z]+=[!-~]+){0,15}", re.ASCII)


def _gres_line(value: object) -> str:
    if not isinstance(value, str) or not _GRES_LINE.fullmatch(value) or _FORBIDDEN.search(value):
        refuse("a line of gres.conf: Key=value pairs with a space between them")
    if re.search(r"(?:^| )(?:NodeName|Include)=", value, re.IGNORECASE):
        refuse("no NodeName here: the line counts for the nodes of the group")
    return value


GresLine = Annotated[str, BeforeValidator(_gres_line)]
"""A line of gres.conf without NodeName."""

_TREE = "the site says it by where the department, lab or member stands"

AccountSettings = Annotated[
    dict[ParameterName, SettingValue],
    AfterValidator(
        _without(
            {
                **dict.fromkeys(
                    ("Name", "Names", "Account", "Accounts", "User", "Users", "Cluster", "Clusters"), _TREE
                ),
                **dict.fromkeys(("Parent", "DefaultAccount", "Partition", "Partitions"), _TREE),
                "Coordinator": "the site says it in supervisor",
                "AdminLevel": "nobody gets the rights of an administrator from a site file",
                "RawUsage": "usage is what Slurm counted",
            }
        )
    ),
]
"""Settings of a QoS, an account's association or a person's association, in sacctmgr's words."""
