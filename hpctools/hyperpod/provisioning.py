"""provisioning_parameters.json by itself: keys, types, what belongs together.

Source: the HyperPod developer guide, "Configuration form for provisioning_parameters.json" and the page on
several controllers. HyperPod itself checks nothing of it before nodes fail.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping

from hpctools.hyperpod import service_model
from hpctools.hyperpod.document import Place
from hpctools.hyperpod.findings import Finding
from hpctools.hyperpod.shapes import check_shape, compiled

_TEXT = "a text in double quotes"
_KEYS: Mapping[str, bool] = {
    "version": True,
    "workload_manager": True,
    "controller_group": True,
    "worker_groups": True,
    "login_group": False,
    "fsx_dns_name": False,
    "fsx_mountname": False,
    "fsx_openzfs_dns_name": False,
    "slurm_configurations": False,
}
"""Key -> whether it has to be there."""
_WORKER_KEYS = {"instance_group_name": True, "partition_name": True}
_CONTROLLER_KEYS = dict.fromkeys(
    (
        "slurm_database_secret_arn",
        "slurm_database_endpoint",
        "slurm_database_user",
        "slurm_shared_directory",
        "slurm_sns_arn",
    ),
    True,
)
_FIXED = {"version": "1.0.0", "workload_manager": "slurm"}
_SHAPES = {
    "controller_group": "ClusterInstanceGroupName",
    "fsx_dns_name": "ClusterDnsName",
    "fsx_mountname": "ClusterMountName",
    "fsx_openzfs_dns_name": "ClusterDnsName",
}
_CONTROLLER_PATTERNS = {
    "slurm_database_secret_arn": r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]*:\d{12}:secret:.+",
    "slurm_shared_directory": r"/[a-zA-Z0-9._/-]+",
    "slurm_sns_arn": r"arn:aws[a-z-]*:sns:[a-z0-9-]*:\d{12}:.+",
}
_PARTITION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


def check_provisioning(root: Place) -> Iterator[Finding]:
    """Yield everything that is wrong with the file by itself."""
    if not root.readable:
        return
    if not isinstance(root.value, dict):
        yield root.finding("type", "write an object with controller_group and worker_groups in it")
        return
    yield from _keys(root, _KEYS)
    yield from _values(root)
    yield from _workers(root.at("worker_groups"))
    yield from _pair(root)
    yield from _controllers(root.at("slurm_configurations"))


def _keys(place: Place, known: Mapping[str, bool]) -> Iterator[Finding]:
    for key in place.keys:
        if key not in known:
            near = difflib.get_close_matches(key.lower().replace("-", "_"), known, n=1, cutoff=0.8)
            remedy = f"write {near[0]}?" if near else "mind that only scripts of your own can read it"
            yield place.at(key).warning(
                "unknown-key", remedy, f"the key {key[:60]!a}, which HyperPod ignores"
            )
    for key, required in known.items():
        if required and not place.at(key).exists:
            yield place.finding("missing-key", f"add {key}", f"no {key}")


def _values(root: Place) -> Iterator[Finding]:
    for key, wanted in _FIXED.items():
        place = root.at(key)
        if place.exists and place.readable and place.value != wanted:
            yield place.finding("choice", f'write "{wanted}"')
    for key, name in _SHAPES.items():
        if root.at(key).exists:
            yield from check_shape(root.at(key), service_model.shape(name))
    login = root.at("login_group")
    if login.value == "":
        yield login.warning("empty", "leave the key out when there are no login nodes", "an empty name")
    elif login.exists:
        yield from check_shape(login, service_model.shape("ClusterInstanceGroupName"))


def _workers(place: Place) -> Iterator[Finding]:
    if not place.exists or not place.readable:
        return
    if not isinstance(place.value, list):
        yield place.finding("type", "write a list of objects, in square brackets")
        return
    if not place.value:
        yield place.finding("limit", "name one group of workers or more")
    for worker in place.each():
        if not isinstance(worker.value, dict):
            yield worker.finding("type", "write an object with instance_group_name and partition_name")
            continue
        yield from _keys(worker, _WORKER_KEYS)
        name, partition = worker.at("instance_group_name"), worker.at("partition_name")
        if name.exists:
            yield from check_shape(name, service_model.shape("ClusterInstanceGroupName"))
        yield from _partition(partition)


def _partition(place: Place) -> Iterator[Finding]:
    if not place.exists or not place.readable:
        return
    if place.text is None or not _PARTITION.fullmatch(place.text):
        yield place.finding(
            "partition-name", "write letters, digits, '.', '-' and '_', as slurm.conf takes them"
        )
    elif place.text.lower() in ("default", "all"):
        yield place.finding("partition-name", "write another name: this one means something to Slurm")


def _pair(root: Place) -> Iterator[Finding]:
    dns, mount = root.at("fsx_dns_name"), root.at("fsx_mountname")
    for present, missing, name in ((dns, mount, "fsx_mountname"), (mount, dns, "fsx_dns_name")):
        if present.exists and not missing.exists:
            found = f"{present.location[-1]} without {name}"
            yield root.finding("fsx-pair", f"add {name}, or leave both out", found)


def _controllers(place: Place) -> Iterator[Finding]:
    if not place.exists or not place.readable:
        return
    if not isinstance(place.value, dict):
        yield place.finding("type", "write an object")
        return
    yield from _keys(place, _CONTROLLER_KEYS)
    for key in _CONTROLLER_KEYS:
        value, pattern = place.at(key), _CONTROLLER_PATTERNS.get(key, r"\S+")
        if not value.exists or not value.readable:
            continue
        if value.text is None:
            yield value.finding("type", f"write {_TEXT}")
        elif not compiled(pattern).fullmatch(value.text):
            yield value.finding("pattern", f"write something like {pattern}")
