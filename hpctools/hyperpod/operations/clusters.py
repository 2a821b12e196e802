"""One HyperPod cluster: created, changed, waited for, deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.operations.aws import RefusedError, Service
from hpctools.hyperpod.operations.watch import Watch

Json = dict[str, Any]

_MOVING = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting"})
_GONE = frozenset({"ResourceNotFound", "ResourceNotFoundException"})

# DescribeCluster's other words for what CreateCluster is told (botocore).
_DESCRIBED = {
    "InstanceCount": "TargetCount",
    "MinInstanceCount": "MinCount",
    "ImageId": "DesiredImageId",
    "ImageReleaseVersion": "DesiredImageReleaseVersion",
}
_ANY_IMAGE = "default"


@dataclass(frozen=True)
class NodeCount:
    """Nodes of one group: wanted, and how many there are by state (Running, Pending, Failure, ...)."""

    group: str
    wanted: int
    states: Mapping[str, int]


@dataclass(frozen=True)
class Difference:
    """What UpdateCluster would be asked for.

    Attributes:
        lines: one for each thing that changes, for people.
        removed: instance groups that would go, with all their nodes.
        request: UpdateCluster's arguments; None when nothing changes.
    """

    lines: tuple[str, ...]
    removed: tuple[str, ...]
    request: Json | None


def difference(
    wanted: Mapping[str, Any], described: Mapping[str, Any], ranges: Mapping[str, tuple[int, int]]
) -> Difference:
    """Compare a cluster as it should be with what it is. Pure.

    Args:
        wanted: CreateCluster's arguments.
        described: DescribeCluster's answer.
        ranges: fewest and most nodes by group; a count between them is left as it is, since nodes of such
            groups come and go with the work.
    """
    is_now = {group["InstanceGroupName"]: group for group in described.get("InstanceGroups", ())}
    groups, lines = [], []
    for group in wanted["InstanceGroups"]:
        name = group["InstanceGroupName"]
        settled = _with_count(group, is_now.get(name, {}), ranges.get(name))
        groups.append(settled)
        if name not in is_now:
            lines.append(f"+ group {name}: {settled['InstanceCount']} nodes")
        lines += [f"~ group {name} {line}" for line in _differing(settled, is_now.get(name, settled))]
    removed = tuple(sorted(is_now.keys() - {group["InstanceGroupName"] for group in groups}))
    lines += [f"- group {name}: {is_now[name].get('CurrentCount', '?')} nodes are ended" for name in removed]
    recovery = wanted.get("NodeRecovery")
    if recovery and described.get("NodeRecovery") and recovery != described["NodeRecovery"]:
        lines.append(f"~ NodeRecovery: {described['NodeRecovery']} -> {recovery}")
    if _strategy_differs(wanted, described):
        lines.append(
            f"~ Orchestrator: {_short(described.get('Orchestrator'))} -> {_short(wanted['Orchestrator'])}"
        )
    if not lines:
        return Difference((), (), None)
    request: Json = {"ClusterName": wanted["ClusterName"], "InstanceGroups": groups}
    request |= {"NodeRecovery": recovery} if recovery else {}
    request |= {"Orchestrator": wanted["Orchestrator"]} if _strategy_differs(wanted, described) else {}
    request |= {"InstanceGroupsToDelete": list(removed)} if removed else {}
    return Difference(tuple(lines), removed, request)


def _strategy_differs(wanted: Mapping[str, Any], described: Mapping[str, Any]) -> bool:
    stated = wanted.get("Orchestrator")
    return bool(stated) and "Orchestrator" in described and not _alike(stated, described["Orchestrator"])


def _with_count(group: Mapping[str, Any], is_now: Mapping[str, Any], span: tuple[int, int] | None) -> Json:
    count = is_now.get("TargetCount")
    if count is None or span is None or not span[0] <= count <= span[1]:
        return dict(group)
    return {**group, "InstanceCount": count}


def _differing(wanted: Mapping[str, Any], is_now: Mapping[str, Any]) -> Iterator[str]:
    for key, value in wanted.items():
        found = _found(key, is_now)
        if value != _ANY_IMAGE and not _alike(value, found) and (value or found):
            yield f"{key}: {_short(found)} -> {_short(value)}"


def _found(key: str, is_now: Mapping[str, Any]) -> Any:
    """What DescribeCluster says of something that CreateCluster was told."""
    if key == "InstanceRequirements" and key in is_now:
        return {"InstanceTypes": is_now[key].get("DesiredInstanceTypes")}
    return is_now.get(_DESCRIBED.get(key, key), is_now.get(key))


def _alike(wanted: Any, found: Any) -> bool:
    """Whether all that is wanted is so; AWS tells more than it was told."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return all(_alike(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_alike, wanted, found))
    return bool(wanted == found)


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_short(each)}" for key, each in sorted(value.items())) or "nothing"
    return "nothing" if value is None else str(value)


@dataclass(frozen=True)
class Clusters:
    """SageMaker HyperPod in one region."""

    service: Service
    watch: Watch

    def find(self, name: str) -> Json | None:
        """What DescribeCluster says; None when there is no such cluster."""
        try:
            return self.service.ask("describe_cluster", ClusterName=name)
        except RefusedError as error:
            if error.code in _GONE or "not find" in error.message or "does not exist" in error.message:
                return None
            raise

    def nodes(self, name: str) -> tuple[NodeCount, ...]:
        """The nodes of a cluster by group, in the cluster's order; none when there is no cluster."""
        found = self.find(name)
        if found is None:
            return ()
        states: dict[str, Counter[str]] = {}
        for page in self.service.pages("list_cluster_nodes", ClusterName=name):
            for node in page["ClusterNodeSummaries"]:
                state = node["InstanceStatus"]["Status"]
                states.setdefault(node["InstanceGroupName"], Counter())[state] += 1
        return tuple(
            NodeCount(
                group["InstanceGroupName"],
                group.get("TargetCount", group.get("CurrentCount", 0)),
                dict(states.get(group["InstanceGroupName"], {})),
            )
            for group in found.get("InstanceGroups", ())
        )

    def create(self, request: Mapping[str, Any]) -> bool:
        """Create a cluster, or wait for it where that has begun; whether it was created now.

        Raises:
            HpctoolsError: it failed, with HyperPod's reason; or AWS refuses the request.
        """
        name = request["ClusterName"]
        found = self.find(name)
        if found is not None and found["ClusterStatus"] == "Deleting":
            self._wait_gone(name)
            found = None
        if found is None:
            self.watch.tell(f"cluster {name}", "creating", _counted(request))
            self.service.ask("create_cluster", **request)
        self.wait(name)
        return found is None

    def change(
        self,
        wanted: Mapping[str, Any],
        ranges: Mapping[str, tuple[int, int]],
        agree: Callable[[Difference], None] = lambda found: None,
    ) -> Difference:
        """Make a cluster what it should be, and wait until it is; what was changed.

        Raises:
            HpctoolsError: there is no such cluster; HyperPod failed, or took it back, with its reason.
        """
        name = wanted["ClusterName"]
        if self.find(name) is None:
            raise HpctoolsError(f"there is no cluster {name}", "create it: hpctools hyperpod create")
        self.wait(name)
        before = self.find(name) or {}
        found = difference(wanted, before, ranges)
        if found.request is None:
            self.watch.tell(f"cluster {name}", "unchanged")
            return found
        agree(found)
        self.watch.tell(f"cluster {name}", "changing", f"{len(found.lines)} changes")
        self.service.ask("update_cluster", **found.request)
        rolled_back, now = self.wait(name), self.find(name) or {}
        reason = now.get("FailureMessage") or ""
        news = reason and reason != before.get("FailureMessage")
        if rolled_back or (news and difference(wanted, now, ranges).lines == found.lines):
            raise _taken_back(name, reason)
        return found

    def delete(self, name: str) -> bool:
        """Delete a cluster and wait until it is gone; whether there was one."""
        found = self.find(name)
        if found is None:
            return False
        if found["ClusterStatus"] in _MOVING - {"Deleting"}:
            self.watch.tell(f"cluster {name}", found["ClusterStatus"], "begun earlier; waiting for it")
            self.watch.until(lambda: self._status(name) not in _MOVING - {"Deleting"}, f"cluster {name}")
        if self._status(name) not in ("", "Deleting"):
            self.watch.tell(f"cluster {name}", "deleting")
            self.service.ask("delete_cluster", ClusterName=name)
        self._wait_gone(name)
        return True

    def wait(self, name: str) -> bool:
        """Wait until nothing moves any more, telling of nodes as they come; whether it was rolling back.

        Raises:
            HpctoolsError: the cluster failed.
        """
        told: set[tuple[str, str, str]] = set()
        seen: set[str] = set()

        def over() -> bool:
            seen.add(status := self._status(name))
            moving = status in _MOVING
            for line in self._node_lines(name) if moving else ():
                if line not in told:
                    told.add(line)
                    self.watch.tell(*line)
            return not moving

        self.watch.until(over, f"cluster {name}")
        found = self.find(name)
        if found is None:
            raise HpctoolsError(
                f"cluster {name} went while it was waited for", "somebody deleted it; ask them"
            )
        if found["ClusterStatus"] == "Failed":
            reason = found.get("FailureMessage") or "HyperPod tells no reason"
            raise HpctoolsError(
                f"cluster {name} failed: {reason}",
                f"see the nodes' log (/aws/sagemaker/Clusters/{name} in CloudWatch), mend the cause,"
                " `hpctools hyperpod delete` and create it again",
            )
        self.watch.tell(f"cluster {name}", found["ClusterStatus"])
        return "RollingBack" in seen

    def _node_lines(self, name: str) -> Iterator[tuple[str, str, str]]:
        for group in self.nodes(name):
            states = ", ".join(f"{count} {state}" for state, count in sorted(group.states.items()))
            yield (f"group {group.group}", f"{group.wanted} wanted", states or "none yet")

    def _status(self, name: str) -> str:
        return str((self.find(name) or {}).get("ClusterStatus", ""))

    def _wait_gone(self, name: str) -> None:
        self.watch.until(lambda: self._status(name) != "Deleting", f"the end of cluster {name}")
        if self._status(name):
            raise HpctoolsError(
                f"cluster {name} could not be deleted, it is {self._status(name)}",
                "run the same command again",
            )
        self.watch.tell(f"cluster {name}", "deleted")


def _taken_back(name: str, reason: str) -> HpctoolsError:
    return HpctoolsError(
        f"HyperPod took the change of cluster {name} back: {reason or 'it tells no reason'}",
        f"see the nodes' log (/aws/sagemaker/Clusters/{name} in CloudWatch), mend the cause and"
        " run the same command again",
    )


def _counted(request: Mapping[str, Any]) -> str:
    counts = [f"{each['InstanceGroupName']} {each['InstanceCount']}" for each in request["InstanceGroups"]]
    return ", ".join(counts)
