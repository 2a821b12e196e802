"""The template of Session Manager's function says what docs/login.md and the handler say."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

import hpctools.login.session_manager

TEMPLATE = Path(hpctools.login.session_manager.__file__).parent / "function.yaml"
PAGE = (Path(__file__).parents[2] / "docs/login.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## On AWS: Session Manager\n")[2].partition("\n## ")[0]
MADE: dict[str, Any] = yaml.safe_load(TEMPLATE.read_text(encoding="utf-8"))


def properties(name: str) -> dict[str, Any]:
    found: dict[str, Any] = MADE["Resources"][name]["Properties"]
    return found


def test_aws_own_rules_hold() -> None:
    from cfnlint.api import lint
    from cfnlint.config import ManualArgs

    found = lint(TEMPLATE.read_text(encoding="utf-8"), config=ManualArgs(regions=["eu-central-1"]))
    assert [f"{each.rule.id} {each.path}: {each.message}" for each in found] == []


def test_a_sweep_has_time_for_a_thousand_sessions() -> None:
    """At 60 ms for each question, asked twice at worst, and the notice between."""
    assert (
        properties("Function")["Timeout"] >= 1000 * 0.06 * 2 + MADE["Parameters"]["NoticeSeconds"]["MaxValue"]
    )


def test_the_function_runs_the_handler_that_the_page_names() -> None:
    handler = properties("Function")["Handler"]
    module, _, name = handler.rpartition(".")
    assert f"handler `{handler}`" in SECTION
    assert callable(getattr(import_module(module), name))


def test_its_environment_is_the_pages() -> None:
    rows = [line.split("|")[1] for line in SECTION.splitlines() if line.startswith("| `HPCTOOLS_")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert set(properties("Function")["Environment"]["Variables"]) == named


def test_it_asks_for_one_login_node_at_least() -> None:
    """Sessions on compute nodes are none of its business, so it has to know which nodes are login nodes."""
    stated = MADE["Parameters"]["LoginNodes"]
    assert "Default" not in stated
    fits = {text: bool(re.fullmatch(stated["AllowedPattern"], text)) for text in ("{}", "", "{ }", "[]")}
    assert not any(fits.values())
    assert re.fullmatch(stated["AllowedPattern"], '{"i-0aaa111": "login-1", "i-0bbb222": "login-2"}')


def test_its_rights_are_the_pages_and_its_own_log() -> None:
    statements = properties("Role")["Policies"][0]["PolicyDocument"]["Statement"]
    allowed = {action: each["Resource"] for each in statements for action in each["Action"]}
    named = set(re.findall(r"`((?:ssm|iam|secretsmanager|logs):\w+)`", SECTION))
    assert set(allowed) == named
    assert allowed["secretsmanager:GetSecretValue"] == [{"Ref": "TokenSecret"}]
    assert allowed["logs:PutLogEvents"] == [{"Fn::GetAtt": ["LogGroup", "Arn"]}]
    assert [action for action, where in allowed.items() if "*" in where] == ["ssm:DescribeSessions"]


def test_sessions_that_begin_and_a_schedule_call_it() -> None:
    pattern = properties("Started")["EventPattern"]
    assert pattern["source"] == ["aws.ssm"]
    assert pattern["detail"] == {"eventName": ["StartSession"]}
    assert properties("Sweep")["ScheduleExpression"] == "rate(1 minute)"


@pytest.mark.parametrize("rule", ["Started", "Sweep"])
def test_each_rule_may_call_the_function_and_nobody_else(rule: str) -> None:
    assert properties(rule)["Targets"][0]["Arn"] == {"Fn::GetAtt": ["Function", "Arn"]}
    permission = properties(f"{rule}Permission")
    assert permission["SourceArn"] == {"Fn::GetAtt": [rule, "Arn"]}
    assert permission["Principal"] == "events.amazonaws.com"


def test_no_token_is_in_it_and_its_log_forgets() -> None:
    assert properties("LogGroup")["RetentionInDays"] == {"Ref": "KeepLogsDays"}
    assert MADE["Parameters"]["KeepLogsDays"]["Default"] == 90
    assert "HPCTOOLS_API_TOKEN" not in properties("Function")["Environment"]["Variables"]
