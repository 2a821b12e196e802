"""What the service's answers are like: those that are read, by whom they are read, and what is no answer."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpctools.budget.answers import SHAPES, ByName, Each, OrNull, Plain, Shape
from hpctools.budget.service import Service
from hpctools.cli import (
    budget,
    budget_enforce,
    budget_jobs,
    hp_login,
    login,
    login_drain,
    login_forget,
)
from hpctools.cli.login_nlb import former_addresses, login_nodes
from hpctools.cli.main import hpctools as cli
from hpctools.errors import UnreachableError, UsageError
from hpctools.login.agent.reporting import _heard

AGES = {"heard_seconds_ago": 4, "sessions": 12, "users": 9, "cpu": 0.25, "memory": 0.5}
NODE = {
    "name": "login-1", "address": "login-1", "state": "up", "silent": False, **AGES, "unlimited": False,
    "why": "",
}  # fmt: skip
FORMER = {"address": "10.0.0.5", "node": "login-1", "left_seconds_ago": 300}
SESSION = {
    "id": 812, "user": "nlp1", "node": "login-1", "kind": "ssh", "origin": "192.0.2.7",
    "since": "2026-11-21T09:00:00Z", "ending": False,
}  # fmt: skip
PLACED = {
    "node": "login-1", "address": "login-1.uni.example", "why": "It has room.", "others": ["login-2"],
    "addresses": {"login-2": "10.0.0.6"},
}  # fmt: skip
HEARD = {"taken": True, "draining": False, "why": "", "end": ["1-2"], "tell": {"1-2": "too many"}}
HEARD |= {"lease_seconds": 30, "drained": False}
FORECAST = {"expected": "90.00", "low": "80", "high": "100.5", "covers_percent": 80, "days": 28}
OUTLOOK = {
    "account": "nlp", "last": "2026-11-30", "spent": "40", "allowed": "100", "currency": "USD", "left": "60",
    "percent_used": "40.0", "forecast": FORECAST, "policy": "warn",
}  # fmt: skip
VERSION = {
    "budget": {
        "amount": "100.00", "currency": "USD", "period": "monthly", "carry_over": "surplus",
        "enforce": {"policy": "warn"},
    },
    "effective": "2026-11-01", "made_by": "jane", "why": "new grant",
}  # fmt: skip
ALERT = {
    "at": "2026-11-20T09:00:00Z", "account": "nlp", "kind": "spent", "threshold_percent": 90,
    "reached": "90.00", "allowed": "100.00", "currency": "USD",
    "deliveries": [{"target": "head@uni.example", "state": "sent"}],
}  # fmt: skip
STEP = {
    "action": "take", "kind": "limit", "subject": "nlp", "key": "GrpSubmitJobs", "before": "20", "after": "0",
    "why": "spent",
}  # fmt: skip
ENFORCEMENT = {
    "steps": [STEP], "frozen": None, "waiting": [{"account": "nlp", "until": "2026-11-22T09:00:00Z"}],
}  # fmt: skip
COST = {
    "user": "nlp1", "account": "nlp", "start": "2026-11-20T09:00:00Z", "node_hours": "12.500",
    "amount": "400.00", "currency": "USD",
}  # fmt: skip
JOB_COST = {**COST, "job_id": "48211_4", "state": "COMPLETED"}
PART = {"day": "2026-11-20", "node_group": "reserved", "amount": "400.00"}
JOB = {
    **JOB_COST, "end": None, "quality": {"status": "final"}, "days": [{**PART, "capacity": "reserved"}],
    "entries": [{**PART, "as_of": "2026-11-21T09:00:00Z", "reason": "first"}],
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "GET /v1/login/nodes": {"nodes": [NODE, {**NODE, "heard_seconds_ago": None}], "former": [FORMER]},
    "GET /v1/login/sessions": {"sessions": [SESSION], "next": None},
    "POST /v1/login/sessions": PLACED,
    "DELETE /v1/login/sessions/*": SESSION,
    "PUT /v1/login/nodes/*/drain": {"node": "login-1", "known": True},
    "DELETE /v1/login/nodes/*": {"node": "login-1"},
    "PUT /v1/login/nodes/*/report": HEARD,
    "POST /v1/login/leases": {"granted": False, "message": "two are open"},
    "GET /v1/accounts": {"accounts": [{"name": "nlp"}]},
    "GET /v1/accounts/*/outlook": OUTLOOK,
    "GET /v1/accounts/*/forecast": FORECAST,
    "GET /v1/accounts/*/budget": {"account": "nlp", "versions": [VERSION]},
    "PUT /v1/accounts/*/budget": VERSION,
    "PUT /v1/accounts/*/split": [VERSION],
    "POST /v1/accounts/*/approvals": {"amount": "500.00", "until": "2026-12-31"},
    "GET /v1/accounts/*/jobs": {
        "jobs": [JOB_COST], "total": 2, "sums": [{"amount": "400.00", "currency": "USD"}],
    },
    "GET /v1/accounts/*/runs": {"runs": [{**COST, "run": "train-1a2b3c", "jobs": 7}], "total": 1},
    "GET /v1/jobs/*": {"jobs": [JOB]},
    "GET /v1/alerts": {"alerts": [ALERT]},
    "GET /v1/enforcement/plan": ENFORCEMENT,
    "POST /v1/enforcement/apply": ENFORCEMENT,
    "POST /v1/enforcement/accounts/*/undo": [STEP],
}  # fmt: skip
"""One of each, as the service says them, with all that is read of them."""


def key_of(method: str, path: str) -> str:
    """Of a question, in `ANSWERS`; empty for one whose answer nobody reads."""
    return next((key for key in ANSWERS if _is(key.split("/"), f"{method} {path.partition('?')[0]}")), "")


def _is(wanted: list[str], asked: str) -> bool:
    names = asked.split("/")
    return len(names) == len(wanted) and all(
        each in ("*", name) for each, name in zip(wanted, names, strict=True)
    )


@dataclass(frozen=True)
class Answering(Service):
    """The service, with these answers in the place of what comes over HTTP."""

    said: Mapping[str, Any] = None  # type: ignore[assignment]

    def _exchange(self, method: str, path: str, *_: Any) -> tuple[int, str, str]:
        return 200, json.dumps(self.said.get(key_of(method, path), {})), "tag"


def answering(said: Mapping[str, Any]) -> Answering:
    return Answering("https", "api.uni.example", "", "token", said=said)


@contextmanager
def asked(service: Service) -> Iterator[None]:
    """All commands ask this one."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (budget, budget_enforce, budget_jobs, login, login_drain, login_forget):
            patched.setattr(module, "find_service", lambda environment: service)
        patched.setattr(hp_login, "_service", lambda api: service)
        patched.setenv("HPCTOOLS_CLUSTERS", "/nonexistent")
        yield


COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "GET /v1/login/nodes": (("login", "nodes"),),
    "GET /v1/login/sessions": (("login", "sessions"),),
    "DELETE /v1/login/sessions/*": (("login", "end", "812"),),
    "PUT /v1/login/nodes/*/drain": (("login", "drain", "login-1"), ("login", "undrain", "login-1")),
    "DELETE /v1/login/nodes/*": (("login", "forget", "login-1"),),
    "GET /v1/accounts": (("budget", "status"),),
    "GET /v1/accounts/*/outlook": (("budget", "status", "nlp"),),
    "GET /v1/accounts/*/forecast": (("budget", "forecast", "nlp"),),
    "GET /v1/accounts/*/budget": (("budget", "show", "nlp"), ("budget", "status")),
    "PUT /v1/accounts/*/budget": (("budget", "set", "nlp", "--enforce", "warn", "--why", "x"),),
    "PUT /v1/accounts/*/split": (("budget", "split", "nlp", "a=1", "--why", "x"),),
    "POST /v1/accounts/*/approvals": (
        ("budget", "approve", "nlp", "--amount", "5", "--until", "2026-12-31", "--why", "x"),
    ),
    "GET /v1/accounts/*/jobs": (("budget", "jobs", "nlp"),),
    "GET /v1/accounts/*/runs": (("budget", "runs", "nlp"),),
    "GET /v1/jobs/*": (("budget", "job", "4711"),),
    "GET /v1/alerts": (("budget", "alerts"),),
    "GET /v1/enforcement/plan": (("budget", "enforce", "plan"),),
    "POST /v1/enforcement/apply": (("budget", "enforce", "apply"),),
    "POST /v1/enforcement/accounts/*/undo": (("budget", "enforce", "undo", "nlp"),),
}


def run(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code in (0, 1)


def nlb(service: Service) -> None:
    told = service.ask("GET", "/v1/login/nodes")
    login_nodes(told["nodes"], {})
    former_addresses(told.get("former", ()))


def way(service: Service) -> None:
    """Who is not sent anywhere by the service goes by the list, and nothing that is said is an option."""
    with asked(service):
        found = hp_login.find_way("nlp1", service, ("login-9",), lambda node: True)
    assert hp_login.ssh_command("nlp1", found, [])[-1] == found.address


def own(*words: str) -> Callable[[Service], None]:
    def call(service: Service) -> None:
        with asked(service):
            code = hp_login._login(hp_login.parser().parse_args(words))
        assert code == 0

    return call


def avoided(service: Service) -> None:
    from hpctools.cli.login_avoid import Avoided, nodes_of

    with asked(service), suppress(UsageError):  # it is none of those that were answered
        theirs = nodes_of(service)
        Avoided(strange=("login-1",)).check(["login-9"], theirs)
        Avoided(strange=("login-1",)).beside(theirs)


OTHERS: dict[str, tuple[Callable[[Service], None], ...]] = {
    "GET /v1/login/nodes": (nlb, avoided),
    "GET /v1/login/sessions": (own("--sessions"),),
    "DELETE /v1/login/sessions/*": (own("--end", "812"),),
    "POST /v1/login/sessions": (way,),
    "PUT /v1/login/nodes/*/report": (
        lambda service: _ignore(_heard(service.ask("PUT", "/v1/login/nodes/login-1/report", {}))),
    ),
    "POST /v1/login/leases": (
        lambda service: _ignore(str(service.ask("POST", "/v1/login/leases", {})["message"])),
    ),
}


def _ignore(answer: object) -> None:
    """Only that it can be read counts."""


def places(value: Any, shape: Shape) -> Iterator[tuple[Any, ...]]:
    """Ways to all that is read of an answer, itself the first."""
    yield ()
    if isinstance(shape, OrNull):
        shape = shape.shape
    inner: dict[Any, tuple[Any, Shape]] = {}
    if isinstance(shape, Each) and isinstance(value, list):
        inner = {place: (each, shape.shape) for place, each in enumerate(value)}
    elif isinstance(shape, ByName):
        inner = {name: (each, shape.shape) for name, each in value.items()}
    elif not isinstance(shape, (Plain, Each, OrNull)) and isinstance(value, dict):
        inner = {word.rstrip("?"): (value[word.rstrip("?")], each) for word, each in shape.items()}
    for name, (each, deeper) in inner.items():
        yield from ((name, *rest) for rest in places(each, deeper))


def put(answer: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    changed = copy.copy(answer)
    changed[place[0]] = put(answer[place[0]], place[1:], value)
    return changed


ALL = [(key, place) for key in ANSWERS for place in places(ANSWERS[key], SHAPES[key])]
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**4000), 1e300])
STRANGE = (
    "",
    "-oProxyCommand=x",
    "a\0b",
    "\ud800",
    "1e999999999",
    "NaN",
    "0001-01-01",
    "9999-12-31T23:59:59-23:59",
)
TEXTS = st.text() | st.sampled_from(STRANGE)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def test_what_the_service_says_is_read() -> None:
    assert ANSWERS.keys() == SHAPES.keys() == COMMANDS.keys() | OTHERS.keys()
    with asked(answering(ANSWERS)):
        for words in [each for several in COMMANDS.values() for each in several]:
            run(words)
    for call in [each for several in OTHERS.values() for each in several]:
        call(answering(ANSWERS))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(where=st.sampled_from(ALL), value=VALUES)
def test_any_value_at_any_place_is_an_answer_or_said_to_be_none(
    where: tuple[str, tuple[Any, ...]], value: Any
) -> None:
    """Nobody who reads a traceback of it can do anything about it."""
    key, place = where
    said = answering({**ANSWERS, key: put(ANSWERS[key], place, value)})
    with asked(said):
        for words in COMMANDS.get(key, ()):
            for more in ((), ("--json",)) if words[1] != "undrain" else ((),):
                _told(lambda words=words, more=more: run((*words, *more)))  # type: ignore[misc]
    for call in OTHERS.get(key, ()):
        _told(lambda call=call: call(said))  # type: ignore[misc]


def _told(call: Callable[[], None]) -> None:
    with suppress(UnreachableError):
        call()


def test_it_is_said_what_is_wrong_and_where(capsys: pytest.CaptureFixture[str]) -> None:
    said = answering(
        {**ANSWERS, "GET /v1/login/sessions": {"sessions": [{**SESSION, "since": 7}], "next": ""}}
    )
    with asked(said):
        assert hp_login.main(["--sessions"]) == 3
    assert capsys.readouterr().err == (
        "hp-login: https://api.uni.example/v1/login/sessions answers with `sessions[0].since` that is no "
        "time: it is not the service that answers (maintenance? a sign-in before it?), or it is of another "
        "release; try again, or ask its operator\n"
    )


def test_pages_that_come_again_and_again_are_nobodys() -> None:
    said = answering({**ANSWERS, "GET /v1/login/sessions": {"sessions": [SESSION], "next": "a"}})
    with asked(said), pytest.raises(UnreachableError, match="a page that it has answered before"):
        run(("login", "sessions"))
