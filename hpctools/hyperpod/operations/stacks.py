"""One CloudFormation stack, brought to what it should be; by change sets, so that it can be shown first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.operations.aws import RefusedError, Service
from hpctools.hyperpod.operations.watch import Watch
from hpctools.hyperpod.stack.intrinsic import BODY_LIMIT, Json, as_body

_ABSENT = frozenset({"DELETE_COMPLETE"})
_MADE = "REVIEW_IN_PROGRESS"  # a change set is there, and nothing else yet
_GOOD = frozenset({"CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE"})
_NEVER_MADE = frozenset({"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED"})
_CAPABILITIES = ("CAPABILITY_IAM",)
_MOST_REASONS = 3

Action = Literal["Add", "Modify", "Replace", "Remove"]


@dataclass(frozen=True)
class Change:
    """What would happen to one resource."""

    action: Action
    name: str
    kind: str


@dataclass(frozen=True)
class Wanted:
    """A stack as it should be.

    Attributes:
        name: its name.
        template: its template.
        tags: tags of the stack and, through it, of all its resources.
    """

    name: str
    template: Json
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> str:
        """The template as it is sent; where that is too long, without tags that the stack itself has.

        Raises:
            HpctoolsError: it is too long for CloudFormation all the same.
        """
        whole = as_body(self.template)
        if len(whole) <= BODY_LIMIT:
            return whole
        lean = as_body(_without_tags(self.template, self.tags))
        if len(lean) > BODY_LIMIT:
            raise HpctoolsError(
                f"the template of stack {self.name} has {len(lean)} characters, and AWS takes {BODY_LIMIT}",
                "have fewer ranges in allow_from, fewer endpoints or fewer groups",
            )
        return lean

    def change_set(self, since: str = "") -> str:
        """The change set's name; the same for the same wish, so that a second call finds the first one's.

        Args:
            since: when the stack was changed last; a change set that was carried out is not found again.
        """
        text = self.body + json.dumps(dict(self.tags), sort_keys=True) + since
        return f"hpctools-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _without_tags(value: Any, tags: Mapping[str, str]) -> Any:
    """A template without tags that the stack has itself: CloudFormation puts them on every resource.

    Not on the volumes of instances that a launch template makes: their tags stay.
    """
    if isinstance(value, dict) and value.get("ResourceType") == "volume":
        return value
    if isinstance(value, dict):
        kept = {key: _without_tags(each, tags) for key, each in value.items()}
        return {
            key: each for key, each in kept.items() if not (key in ("Tags", "ResourceTags") and each == [])
        }
    if isinstance(value, list):
        return [_without_tags(each, tags) for each in value if not _is_tag_of(each, tags)]
    return value


def _is_tag_of(value: Any, tags: Mapping[str, str]) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() - {"PropagateAtLaunch"} == {"Key", "Value"}
        and isinstance(value["Key"], str)
        and tags.get(value["Key"]) == value["Value"]
    )


_ONLY_OUTPUTS = Change("Modify", "Outputs", "what the stack tells; no resource changes")
"""AWS lists no resource of such a change set, and it is one all the same: it did not fail."""

Agree = Callable[[tuple[Change, ...]], None]
"""Is shown what would change, and raises to stop it."""


@dataclass(frozen=True)
class _Proposal:
    """A change set of this name that makes a stack what is wanted."""

    wanted: Wanted
    name: str

    @property
    def stack(self) -> str:
        return self.wanted.name

    @property
    def names(self) -> dict[str, str]:
        return {"StackName": self.stack, "ChangeSetName": self.name}


def _changed_at(stack: Mapping[str, Any] | None) -> str:
    return str(stack.get("LastUpdatedTime", stack.get("CreationTime", ""))) if stack else ""


@dataclass(frozen=True)
class Stacks:
    """CloudFormation in one region."""

    service: Service
    watch: Watch

    def find(self, name: str) -> dict[str, Any] | None:
        """What DescribeStacks says of a stack; None when there is none."""
        try:
            found = self.service.ask("describe_stacks", StackName=name)["Stacks"]
        except RefusedError as error:
            if "does not exist" in error.message:
                return None
            raise
        stack: dict[str, Any] = found[0]
        return None if stack["StackStatus"] in _ABSENT else stack

    def outputs(self, name: str) -> dict[str, str]:
        """A stack's outputs; none when there is no stack."""
        found = self.find(name) or {}
        return {each["OutputKey"]: each["OutputValue"] for each in found.get("Outputs", ())}

    def was_made(self, name: str) -> bool:
        """Whether there is a stack, and its creation did not fail; what is under way is waited for."""
        self._wait_over(name)
        status = (self.find(name) or {}).get("StackStatus", _MADE)
        return status != _MADE and status not in _NEVER_MADE

    def template(self, name: str) -> Json | None:
        """The template that a stack has now; None when there is none, or it was never made."""
        status = (self.find(name) or {}).get("StackStatus", _MADE)
        if status == _MADE or status in _NEVER_MADE:
            return None
        body = self.service.ask("get_template", StackName=name)["TemplateBody"]
        return dict(body) if isinstance(body, Mapping) else _read(body, name)

    def bring(self, wanted: Wanted, agree: Agree = lambda changes: None) -> bool:
        """Make a stack what it should be, and wait until it is.

        Args:
            wanted: the stack.
            agree: is asked before anything is changed.

        Returns:
            Whether anything was changed.

        Raises:
            HpctoolsError: CloudFormation could not, with its reasons; it has rolled back.
            UnreachableError: AWS does not answer, or takes too long.
        """
        found = self._settle(wanted.name)
        proposal = _Proposal(wanted, wanted.change_set(_changed_at(found)))
        changes = self._prepare(proposal, found is not None)
        if not changes:
            self.watch.tell(f"stack {wanted.name}", "unchanged")
            return False
        agree(changes)
        self.watch.tell(f"stack {wanted.name}", "changing", f"{len(changes)} resources")
        self.service.ask("execute_change_set", StackName=wanted.name, ChangeSetName=proposal.name)
        self._wait(wanted.name, "brought up to date")
        return True

    def delete(self, name: str) -> None:
        """Delete a stack and wait until it is gone; nothing happens when there is none.

        Raises:
            HpctoolsError: something in it could not be deleted, with the reasons.
        """
        if self.find(name) is None:
            return
        self._wait_over(name)
        found = self.find(name)
        if found is None:
            return
        # By its id, since a deleted stack is no longer found by its name.
        self.service.ask("delete_stack", StackName=found["StackId"])
        self._wait(found["StackId"], "deleted", gone=True, shown=name)

    def _settle(self, name: str) -> dict[str, Any] | None:
        """Wait for what is under way; the stack that there is then, None when it has to be created."""
        self._wait_over(name)
        found = self.find(name)
        if found is None or found["StackStatus"] == _MADE:
            return None
        status = found["StackStatus"]
        if status in _NEVER_MADE:
            self.watch.tell(f"stack {name}", "deleting", f"what is left of an attempt that failed ({status})")
            self.delete(name)
            return None
        if status not in _GOOD:
            reason = found.get("StackStatusReason", "no reason is told")
            deed = "delete-stack" if status == "DELETE_FAILED" else "continue-update-rollback"
            raise HpctoolsError(
                f"stack {name} is {status}: {reason}",
                f"mend that, then: aws cloudformation {deed} --stack-name {name}",
            )
        return found

    def _wait_over(self, name: str) -> None:
        def over() -> bool:
            status = (self.find(name) or {}).get("StackStatus", "")
            if status.endswith("_IN_PROGRESS") and status != _MADE:
                self.watch.tell(f"stack {name}", status, "begun earlier; waiting for it")
                return False
            return True

        self.watch.until(over, f"what stack {name} was doing")

    def _prepare(self, proposal: _Proposal, exists: bool) -> tuple[Change, ...]:
        """Make the change set, or find the one of an earlier call; no changes when there are none."""
        found = self._change_set(proposal)
        if found is None or found["Status"] == "FAILED" or found.get("ExecutionStatus") not in _USABLE:
            if found is not None:
                self._drop(proposal)
            self._propose(proposal, exists)
        status = self._computed(proposal)
        if status["Status"] == "FAILED":
            self._drop(proposal)
            if _nothing_to_do(status.get("StatusReason", "")):
                return ()
            reason = status.get("StatusReason", "no reason is told")
            raise HpctoolsError(
                f"stack {proposal.stack} cannot be changed so: {reason}", "see docs/infrastructure.md"
            )
        changes = tuple(_change(each["ResourceChange"]) for each in self._all_changes(proposal))
        return changes or (_ONLY_OUTPUTS,)

    def _change_set(self, proposal: _Proposal) -> dict[str, Any] | None:
        try:
            return self.service.ask("describe_change_set", **proposal.names)
        except RefusedError as error:
            if error.code in ("ChangeSetNotFound", "ChangeSetNotFoundException", "ValidationError"):
                return None
            raise

    def _drop(self, proposal: _Proposal) -> None:
        self.service.ask("delete_change_set", **proposal.names)

    def _propose(self, proposal: _Proposal, exists: bool) -> None:
        tags = sorted(proposal.wanted.tags.items())
        self.service.ask(
            "create_change_set",
            **proposal.names,
            ChangeSetType="UPDATE" if exists else "CREATE",
            TemplateBody=proposal.wanted.body,
            Capabilities=list(_CAPABILITIES),
            Tags=[{"Key": key, "Value": value} for key, value in tags],
            # Buckets that outlived a stack which somebody deleted by hand are taken up again.
            ImportExistingResources=True,
        )

    def _computed(self, proposal: _Proposal) -> dict[str, Any]:
        latest: dict[str, Any] = {}

        def computed() -> bool:
            latest.update(self._change_set(proposal) or {"Status": "CREATE_PENDING"})
            return latest["Status"] in ("CREATE_COMPLETE", "FAILED")

        self.watch.until(computed, f"the plan for stack {proposal.stack}")
        return latest

    def _all_changes(self, proposal: _Proposal) -> list[dict[str, Any]]:
        changes: list[dict[str, Any]] = []
        for page in self.service.pages("describe_change_set", **proposal.names):
            changes += [each for each in page.get("Changes", ()) if "ResourceChange" in each]
        return changes

    def _wait(self, name: str, about: str, *, gone: bool = False, shown: str = "") -> None:
        shown = shown or name
        seen: set[str] = set()
        last: dict[str, Any] = {}

        def over() -> bool:
            last.update(self.service.ask("describe_stacks", StackName=name)["Stacks"][0])
            self._tell_events(name, seen)
            return not str(last["StackStatus"]).endswith("_IN_PROGRESS")

        self.watch.until(over, f"stack {shown}")
        if last["StackStatus"] not in (_ABSENT if gone else _GOOD - {"UPDATE_ROLLBACK_COMPLETE"}):
            reasons = self._reasons(name) or last.get("StackStatusReason", "no reason is told")
            raise HpctoolsError(
                f"stack {shown} is {last['StackStatus']}: {reasons}",
                "mend the cause and run the same command again",
            )
        self.watch.tell(f"stack {shown}", about)
        left = "" if gone else self._left_behind(name)
        if left:
            raise HpctoolsError(
                f"stack {shown} is {last['StackStatus']}, and could not delete what it no longer has: {left}",
                "delete that by hand, it may cost money; then run the same command again",
            )

    def _left_behind(self, name: str) -> str:
        """What an update took out and could not delete: the stack is well, and knows of it no more."""
        last = {event["PhysicalResourceId"]: event for event in self._events(name)}
        left = [each for each in last.values() if each["ResourceStatus"] == "DELETE_FAILED"]
        return "; ".join(
            f"{each['LogicalResourceId']} {each['PhysicalResourceId']}"
            f" ({each.get('ResourceStatusReason', 'no reason is told')})"
            for each in left
        )

    def _events(self, name: str) -> list[dict[str, Any]]:
        """Events of the operation that is under way or came last, the first one first."""
        found: list[dict[str, Any]] = []
        for page in self.service.pages("describe_stack_events", StackName=name):
            for event in page["StackEvents"]:
                found.append(event)
                if event["PhysicalResourceId"] == event["StackId"] and event["ResourceStatus"] in _BEGINNINGS:
                    return found[::-1]
        return found[::-1]

    def _tell_events(self, name: str, seen: set[str]) -> None:
        for event in self._events(name):
            if event["EventId"] not in seen:
                seen.add(event["EventId"])
                reason = event.get("ResourceStatusReason", "")
                self.watch.tell(event["LogicalResourceId"], event["ResourceStatus"], reason)

    def _reasons(self, name: str) -> str:
        """The first failures; what came after them was only cancelled."""
        failed = [event for event in self._events(name) if event["ResourceStatus"].endswith("_FAILED")]
        reasons = [
            f"{event['LogicalResourceId']}: {event['ResourceStatusReason']}"
            for event in failed
            if "cancelled" not in event.get("ResourceStatusReason", "cancelled")
        ]
        return "; ".join(reasons[:_MOST_REASONS])


_BEGINNINGS = frozenset(
    {"CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS", "IMPORT_IN_PROGRESS"}
)
_USABLE = frozenset({"AVAILABLE", "UNAVAILABLE"})  # unavailable: it is still being computed


def _read(body: str, name: str) -> Json:
    """A template that was deployed by other means: as YAML, but ours."""
    try:
        found = yaml.safe_load(body)
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("Resources"), dict):
        raise HpctoolsError(
            f"stack {name} has a template that hpctools did not make", "state another name in aws.stack"
        )
    return found


def _nothing_to_do(reason: str) -> bool:
    return "didn't contain changes" in reason or "No updates are to be performed" in reason


def _change(told: Mapping[str, Any]) -> Change:
    replaced = told.get("Replacement") in ("True", "Conditional")
    action: Action = "Replace" if replaced and told["Action"] == "Modify" else told["Action"]
    return Change(action, told["LogicalResourceId"], told["ResourceType"])
