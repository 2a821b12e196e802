"""A stack is brought to what it should be from whatever state an earlier call, or somebody, left it in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.hyperpod.operations.aws import Aws, RefusedError
from hpctools.hyperpod.operations.stacks import Change, Stacks, Wanted
from hpctools.hyperpod.operations.watch import Watch
from hpctools.hyperpod.stack import as_yaml
from tests.hyperpod.aws_rig import FastClock, Server, Told

TOPIC = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic", "Properties": {"TopicName": "one"}}}}
TWO = {"Resources": TOPIC["Resources"] | {"Other": {"Type": "AWS::SNS::Topic"}}}


@dataclass
class Scripted:
    """CloudFormation by heart: each operation gives its answers in turn, and the last one for ever."""

    answers: dict[str, list[Any]]
    name: str = "cloudformation"
    region: str = "eu-central-1"
    asked: list[str] = field(default_factory=list)

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        self.asked.append(operation)
        answers = self.answers.get(operation, [{}])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    def pages(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        yield self.ask(operation, **arguments)


def state(status: str, reason: str = "") -> dict[str, Any]:
    return {"Stacks": [{"StackStatus": status, "StackStatusReason": reason, "StackId": "id", "Outputs": []}]}


def event(number: int, name: str, status: str, reason: str = "") -> dict[str, Any]:
    made = {
        "EventId": str(number),
        "StackId": "id",
        "PhysicalResourceId": "id" if name == "stack" else f"p-{name}",
        "LogicalResourceId": name,
        "ResourceStatus": status,
    }
    return made | ({"ResourceStatusReason": reason} if reason else {})


NOTHING = RefusedError("Stack with id a does not exist", "ValidationError")
NO_SET = RefusedError("no such change set", "ChangeSetNotFound")
READY = {"Status": "CREATE_COMPLETE", "ExecutionStatus": "AVAILABLE", "Changes": [
    {"ResourceChange": {"Action": "Add", "LogicalResourceId": "Topic", "ResourceType": "AWS::SNS::Topic"}}
]}  # fmt: skip
EVENTS = {"StackEvents": [event(1, "stack", "CREATE_IN_PROGRESS")]}


def stacks(watch: Watch, **answers: list[Any]) -> tuple[Stacks, Scripted]:
    service = Scripted({"describe_stack_events": [EVENTS], **answers})
    return Stacks(service, watch), service  # type: ignore[arg-type]


def test_a_stack_is_made_then_left_alone_then_changed(aws: Aws, watch: Watch, told: Told) -> None:
    """In moto."""
    found = Stacks(aws.service("cloudformation"), watch)
    shown: list[tuple[Change, ...]] = []
    assert found.bring(Wanted("a", TOPIC, {"ClusterName": "x"}), shown.append) is True
    assert found.bring(Wanted("a", TOPIC, {"ClusterName": "x"}), shown.append) is False
    assert found.bring(Wanted("a", TWO, {"ClusterName": "x"}), shown.append) is True
    assert shown == [
        (Change("Add", "Topic", "AWS::SNS::Topic"),),
        (Change("Add", "Other", "AWS::SNS::Topic"),),
    ]
    assert len(aws.service("sns").ask("list_topics")["Topics"]) == 2
    found.delete("a")
    assert aws.service("sns").ask("list_topics")["Topics"] == []
    assert found.find("a") is None
    found.delete("a")
    assert [line for line in told.lines() if line.startswith("stack a")][-1] == "stack a: deleted"


def test_slow_stacks_are_waited_for(aws: Aws, server: Server, watch: Watch, clock: FastClock) -> None:
    server.rules(hold={"stack": 3})
    found = Stacks(aws.service("cloudformation"), watch)
    found.bring(Wanted("a", TOPIC))
    assert clock.waits == 3
    assert (found.find("a") or {})["StackStatus"] == "CREATE_COMPLETE"


def test_somebody_who_does_not_agree_changes_nothing(aws: Aws, watch: Watch) -> None:
    found = Stacks(aws.service("cloudformation"), watch)

    def refuse(changes: tuple[Change, ...]) -> None:
        raise HpctoolsError("no")

    with pytest.raises(HpctoolsError, match="no"):
        found.bring(Wanted("a", TOPIC), refuse)
    assert aws.service("sns").ask("list_topics")["Topics"] == []
    assert found.bring(Wanted("a", TOPIC)) is True  # the change set of before is found and used


def test_what_is_under_way_is_waited_for_before_anything_is_asked(watch: Watch, told: Told) -> None:
    found, service = stacks(
        watch,
        describe_stacks=[state("UPDATE_IN_PROGRESS"), state("UPDATE_IN_PROGRESS"), state("UPDATE_COMPLETE")],
        describe_change_set=[
            NO_SET,
            {"Status": "FAILED", "StatusReason": "The submitted information didn't contain changes."},
        ],
    )
    assert found.bring(Wanted("a", TOPIC)) is False
    assert told.lines()[0] == "stack a: UPDATE_IN_PROGRESS begun earlier; waiting for it"
    assert "execute_change_set" not in service.asked


def test_what_is_left_of_a_creation_that_failed_is_taken_away_first(watch: Watch) -> None:
    found, service = stacks(
        watch,
        describe_stacks=[
            *[state("ROLLBACK_COMPLETE")] * 5, state("DELETE_COMPLETE"), NOTHING,
        ],
        describe_change_set=[NO_SET, READY],
    )  # fmt: skip
    with pytest.raises(RefusedError):  # after the creation the script has no stack to tell of
        found.bring(Wanted("a", TOPIC))
    assert service.asked.index("delete_stack") < service.asked.index("create_change_set")


def test_a_stack_that_could_not_roll_back_needs_a_person(watch: Watch) -> None:
    found, service = stacks(watch, describe_stacks=[state("UPDATE_ROLLBACK_FAILED", "role is gone")])
    with pytest.raises(
        HpctoolsError, match=r"UPDATE_ROLLBACK_FAILED: role is gone; mend that.*continue-update-rollback"
    ):
        found.bring(Wanted("a", TOPIC))
    assert "create_change_set" not in service.asked


def test_a_deletion_that_failed_is_not_taken_for_an_attempt_that_may_go(watch: Watch) -> None:
    found, service = stacks(watch, describe_stacks=[state("DELETE_FAILED", "Vpc has dependencies")])
    with pytest.raises(HpctoolsError, match=r"DELETE_FAILED: Vpc has dependencies; .*delete-stack"):
        found.bring(Wanted("a", TOPIC))
    assert "delete_stack" not in service.asked


@pytest.mark.parametrize(
    ("status", "made"),
    [
        ("CREATE_COMPLETE", True),
        ("UPDATE_ROLLBACK_COMPLETE", True),
        ("DELETE_FAILED", True),
        ("REVIEW_IN_PROGRESS", False),
        ("ROLLBACK_COMPLETE", False),
        ("DELETE_COMPLETE", False),
    ],
)
def test_what_was_never_made_has_no_template(watch: Watch, status: str, made: bool) -> None:
    found, _ = stacks(watch, describe_stacks=[state(status)], get_template=[{"TemplateBody": TOPIC}])
    assert found.was_made("a") is made
    assert found.template("a") == (TOPIC if made else None)


def test_a_template_that_was_deployed_by_hand_is_read(watch: Watch) -> None:
    """`aws cloudformation deploy --template-file infrastructure.yaml` keeps the YAML."""
    whole = {"AWSTemplateFormatVersion": "2010-09-09", **TOPIC}
    body = {"TemplateBody": as_yaml(whole)}
    found, _ = stacks(watch, describe_stacks=[state("CREATE_COMPLETE")], get_template=[body])
    assert found.template("a") == whole


@pytest.mark.parametrize("body", ["Resources: {X: !Ref Y}", "- a list", "Resources: []"])
def test_a_template_of_somebody_else_is_told(watch: Watch, body: str) -> None:
    found, _ = stacks(
        watch, describe_stacks=[state("CREATE_COMPLETE")], get_template=[{"TemplateBody": body}]
    )
    with pytest.raises(
        HpctoolsError, match=r"a template that hpctools did not make; state another name in aws\.stack"
    ):
        found.template("a")


def test_the_first_failures_are_told_not_what_was_cancelled_for_them(watch: Watch) -> None:
    events = [
        event(9, "stack", "ROLLBACK_COMPLETE"),
        event(5, "Other", "CREATE_FAILED", "Resource creation cancelled"),
        event(4, "Nat", "CREATE_FAILED", "The maximum number of addresses has been reached."),
        event(1, "stack", "CREATE_IN_PROGRESS"),
        event(0, "Old", "CREATE_FAILED", "of an attempt long ago"),
    ]
    found, _ = stacks(
        watch,
        describe_stacks=[NOTHING, NOTHING, state("CREATE_IN_PROGRESS"), state("ROLLBACK_COMPLETE")],
        describe_change_set=[NO_SET, READY],
        describe_stack_events=[{"StackEvents": events}],
    )
    with pytest.raises(HpctoolsError) as told:
        found.bring(Wanted("a", TOPIC))
    assert told.value.message == (
        "stack a is ROLLBACK_COMPLETE: Nat: The maximum number of addresses has been reached."
    )


def test_a_change_set_that_aws_refuses_is_told_with_its_reason(watch: Watch) -> None:
    failed = {"Status": "FAILED", "StatusReason": "Bucket x already exists"}
    found, service = stacks(
        watch, describe_stacks=[state("CREATE_COMPLETE")], describe_change_set=[NO_SET, failed]
    )
    with pytest.raises(HpctoolsError, match="stack a cannot be changed so: Bucket x already exists"):
        found.bring(Wanted("a", TOPIC))
    assert service.asked[-1] == "delete_change_set"


def test_a_change_set_that_was_carried_out_is_no_longer_used(watch: Watch) -> None:
    done = READY | {"ExecutionStatus": "EXECUTE_COMPLETE"}
    found, service = stacks(
        watch,
        describe_stacks=[state("UPDATE_COMPLETE")],
        describe_change_set=[done, READY],
    )
    assert found.bring(Wanted("a", TOPIC)) is True
    assert service.asked.index("delete_change_set") < service.asked.index("create_change_set")


def test_waiting_ends_and_says_that_aws_goes_on(told: Told, clock: FastClock) -> None:
    found, _ = stacks(
        Watch(told, clock, limit_seconds=100),
        describe_stacks=[NOTHING, NOTHING, state("CREATE_IN_PROGRESS")],
        describe_change_set=[NO_SET, READY],
    )
    with pytest.raises(
        UnreachableError, match="took more than 2 minutes; AWS goes on with it; run the same command"
    ):
        found.bring(Wanted("a", TOPIC))
    assert 100 <= clock.seconds <= 120


def test_events_are_told_once_each_and_only_those_of_this_change(watch: Watch, told: Told) -> None:
    first = [event(1, "stack", "UPDATE_IN_PROGRESS"), event(0, "Topic", "CREATE_COMPLETE")]
    found, _ = stacks(
        watch,
        describe_stacks=[
            *[state("CREATE_COMPLETE")] * 2,
            state("UPDATE_IN_PROGRESS"),
            state("UPDATE_COMPLETE"),
        ],
        describe_change_set=[NO_SET, READY],
        describe_stack_events=[
            {"StackEvents": first},
            {"StackEvents": [event(2, "Topic", "UPDATE_COMPLETE"), *first]},
        ],
    )
    found.bring(Wanted("a", TOPIC))
    assert told.lines() == [
        "stack a: changing 1 resources",
        "stack: UPDATE_IN_PROGRESS",
        "Topic: UPDATE_COMPLETE",
        "stack a: brought up to date",
    ]


@pytest.mark.parametrize(
    ("found_by_aws", "action"),
    [
        ({"Action": "Modify", "Replacement": "True"}, "Replace"),
        ({"Action": "Modify", "Replacement": "Conditional"}, "Replace"),
        ({"Action": "Modify", "Replacement": "False"}, "Modify"),
        ({"Action": "Remove"}, "Remove"),
    ],
)
def test_a_change_that_replaces_is_called_so(watch: Watch, found_by_aws: dict[str, str], action: str) -> None:
    change = {"ResourceChange": found_by_aws | {"LogicalResourceId": "X", "ResourceType": "AWS::X::Y"}}
    found, _ = stacks(
        watch,
        describe_stacks=[state("UPDATE_COMPLETE")],
        describe_change_set=[NO_SET, READY | {"Changes": [change]}],
    )
    shown: list[tuple[Change, ...]] = []
    found.bring(Wanted("a", TOPIC), shown.append)
    assert [each.action for each in shown[0]] == [action]


def test_a_change_of_outputs_alone_is_carried_out(watch: Watch) -> None:
    """Such a change set lists no resource; one that changes nothing fails."""
    found, service = stacks(
        watch,
        describe_stacks=[state("UPDATE_COMPLETE")],
        describe_change_set=[NO_SET, READY | {"Changes": []}],
    )
    shown: list[tuple[Change, ...]] = []
    assert found.bring(Wanted("a", TOPIC), shown.append) is True
    assert [each.name for each in shown[0]] == ["Outputs"]
    assert "execute_change_set" in service.asked


def changing(watch: Watch, *events: dict[str, Any]) -> Stacks:
    """A stack whose change comes to its end, with these events, the last one first."""
    return stacks(
        watch,
        describe_stacks=[state("UPDATE_COMPLETE")],
        describe_change_set=[NO_SET, READY],
        describe_stack_events=[{"StackEvents": [*events, event(1, "stack", "UPDATE_IN_PROGRESS")]}],
    )[0]


def test_what_an_update_could_not_delete_is_told_since_nobody_finds_it_again(watch: Watch) -> None:
    """CloudFormation tries three times, and then the stack is UPDATE_COMPLETE without it."""
    events = [event(n, "Nat", "DELETE_FAILED", "it is in use") for n in (4, 3, 2)]
    with pytest.raises(HpctoolsError) as told:
        changing(watch, *events).bring(Wanted("a", TOPIC))
    assert str(told.value) == (
        "stack a is UPDATE_COMPLETE, and could not delete what it no longer has: Nat p-Nat (it is in use);"
        " delete that by hand, it may cost money; then run the same command again"
    )


def test_what_was_deleted_at_last_is_not_left_behind(watch: Watch) -> None:
    events = [event(3, "Nat", "DELETE_COMPLETE"), event(2, "Nat", "DELETE_FAILED", "it is in use")]
    assert changing(watch, *events).bring(Wanted("a", TOPIC)) is True


def test_the_same_wish_has_the_same_change_set() -> None:
    wishes: list[Callable[[], Wanted]] = [
        lambda: Wanted("a", TOPIC, {"k": "v"}),
        lambda: Wanted("a", TWO, {"k": "v"}),
        lambda: Wanted("a", TOPIC, {"k": "w"}),
    ]
    assert [wish().change_set("1") for wish in wishes] == [wish().change_set("1") for wish in wishes]
    assert len({wish().change_set(since) for wish in wishes for since in ("1", "2")}) == 6
