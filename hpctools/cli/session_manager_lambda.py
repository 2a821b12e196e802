"""The AWS Lambda function of Session Manager sessions: handler `hpctools.cli.session_manager_lambda.handler`.

EventBridge calls it for each StartSession event of CloudTrail's, and on a schedule for the sweep
(docs/login.md).
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hpctools.budget.service import find_service
from hpctools.errors import HpctoolsError, UnreachableError, UsageError
from hpctools.hyperpod.operations.aws import Aws, Patience, RefusedError, TooManyRequestsError, connect
from hpctools.identity.run_as import TAG
from hpctools.login.session_manager.enforcement import NOTICE_SECONDS, Absent, Enforcement, LeaseService
from hpctools.login.session_manager.owners import Principal, unix_account
from hpctools.login.session_manager.started import started_by
from hpctools.login.session_manager.targets import node_of

_log = logging.getLogger("hpctools.login")
_SECONDS = 10.0
_PATIENCE = Patience(retries=1, connect=3, read=5)
"""A part of AWS that hangs must not take all of the function's time."""
_MOST_NOTICE = 25.0
_TAG_SECONDS = 600.0
_MOST_TAGS = 4096
_known_tags: dict[Principal, tuple[str, float]] = {}
"""Tags, and when they were asked for (monotonic). A warm function keeps them from one sweep to the next: IAM
limits the rate of questions, and a sweep that it stopped goes on where it was."""
_listed: dict[str, str] = {}
"""What the last sweep of this warm function saw: what is there no more is over, and counts no longer."""


def handler(event: Mapping[str, Any], context: object = None) -> dict[str, Any]:
    """Take in one event; what became of the sessions that it is about.

    Raises:
        HpctoolsError: something does not answer; Lambda tries again.
    """
    _log.setLevel(logging.INFO)
    enforcement = make_enforcement(os.environ)
    if event.get("detail-type") == "Scheduled Event":
        return {"sessions": dict(enforcement.sweep())}
    started = started_by(event)
    return {"sessions": {started.id: enforcement.admit(started)} if started is not None else {}}


def make_enforcement(environment: Mapping[str, str]) -> Enforcement:
    """From the function's environment.

    HPCTOOLS_API, HPCTOOLS_API_TOKEN_SECRET (a secret's ARN), HPCTOOLS_RUN_AS (JSON: Unix accounts by
    principal), HPCTOOLS_LOGIN_NODES (JSON: login nodes by instance id), HPCTOOLS_WHEN_UNREACHABLE (open or
    refuse), HPCTOOLS_ADMINISTRATORS (JSON: accounts), HPCTOOLS_FORWARDING_DOCUMENTS (JSON: names),
    HPCTOOLS_NOTICE_SECONDS.

    Raises:
        UsageError: a variable has a value that it cannot have.
    """
    aws = connect(environment.get("AWS_REGION"), _PATIENCE)
    stated, nodes = (_object(environment, name) for name in ("HPCTOOLS_RUN_AS", "HPCTOOLS_LOGIN_NODES"))
    if not nodes:
        raise UsageError("HPCTOOLS_LOGIN_NODES names no login node", 'say such as {"i-0abc": "login-1"}')
    tag_of = _tags(aws)
    choice = environment.get("HPCTOOLS_WHEN_UNREACHABLE", "open")
    if choice not in ("open", "refuse"):
        raise UsageError(f"HPCTOOLS_WHEN_UNREACHABLE={choice!r} cannot be used", "set it to open or refuse")
    return Enforcement(
        aws.service("ssm"),
        _service(aws, environment),
        lambda arn: unix_account(arn, stated, tag_of),
        lambda target: node_of(target, nodes),
        "refuse" if choice == "refuse" else "open",
        frozenset({"root", *_names(environment, "HPCTOOLS_ADMINISTRATORS")}),
        frozenset(_names(environment, "HPCTOOLS_FORWARDING_DOCUMENTS")),
        _notice(environment),
        listed=_listed,
    )


def _service(aws: Aws, environment: Mapping[str, str]) -> LeaseService:
    """The service; one that cannot be asked is as one that is away, for the site has said what is so then."""
    try:
        service = find_service({**environment, **_token(aws, environment)})
        return replace(service, seconds=_SECONDS, within=_SECONDS)
    except HpctoolsError as error:
        _log.error("the service cannot be asked: %s", error)
        return Absent(error)


def _token(aws: Aws, environment: Mapping[str, str]) -> Mapping[str, str]:
    """The token from Secrets Manager: a function's environment is there for many to read."""
    secret = environment.get("HPCTOOLS_API_TOKEN_SECRET")
    if not secret:
        return {}
    found = aws.service("secretsmanager").ask("get_secret_value", SecretId=secret)
    return {"HPCTOOLS_API_TOKEN": str(found.get("SecretString", "")).strip()}


def _tags(aws: Aws) -> Callable[[Principal], str]:
    """Asks IAM for tags; when it did not answer once it is not waited for again, but for a limit of rates."""
    silence: list[UnreachableError] = []

    def tag_of(principal: Principal) -> str:
        who = Principal(principal.kind, principal.name)  # the session has no part in the tag
        tag, asked = _known_tags.get(who, ("", -_TAG_SECONDS))
        if asked > time.monotonic() - _TAG_SECONDS:
            return tag
        if silence:
            raise silence[0]
        try:
            tag = _tag(aws, who)
        except TooManyRequestsError:
            raise
        except UnreachableError as error:
            silence.append(error)
            raise
        if len(_known_tags) >= _MOST_TAGS:
            _known_tags.clear()
        _known_tags[who] = tag, time.monotonic()
        return tag

    return tag_of


def _tag(aws: Aws, principal: Principal) -> str:
    name = "RoleName" if principal.kind == "role" else "UserName"
    try:
        found = aws.service("iam").ask(f"list_{principal.kind}_tags", **{name: principal.name})
    except RefusedError as error:
        if error.denied:  # by the function's own rights: whose the session is could be known
            raise
        return ""  # a role of another account, or one that is gone
    return next((str(each["Value"]) for each in found["Tags"] if each["Key"] == TAG), "")


def _notice(environment: Mapping[str, str]) -> float:
    text = environment.get("HPCTOOLS_NOTICE_SECONDS") or str(NOTICE_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _MOST_NOTICE:
        raise UsageError(f"HPCTOOLS_NOTICE_SECONDS={text!r} cannot be used", "set it to 0 to 25")
    return seconds


def _object(environment: Mapping[str, str], name: str) -> Mapping[str, str]:
    found = _json(environment.get(name) or "{}")
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise UsageError(f"{name} is no JSON object of texts", 'expected such as {"i-0abc": "login-1"}')
    return found


def _names(environment: Mapping[str, str], name: str) -> list[str]:
    found = _json(environment.get(name) or "[]")
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise UsageError(f"{name} is no JSON list of texts", 'expected such as ["one", "two"]')
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
