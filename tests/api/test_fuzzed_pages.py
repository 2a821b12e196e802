"""What OpenAPI does not describe: pages and their forms, with input that nobody thought of.

No answer may be an error of the service's own. Every page is asked, as it is and with what its forms and
addresses may carry: the names of fields are read from the templates.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from fastapi import Request

from api.deps import COOKIE
from api.posting import form_token

FEW, MANY = 4, 100
NAMES = (
    "period",
    "month",
    "from",
    "to",
    "user",
    "cursor",
    "limit",
    "sort",
    "format",
    "node_group",
    "day",
    "next",
)
HOSTILE = (
    "",
    " ",
    "0",
    "-1",
    "1e309",
    "NaN",
    "9" * 40,
    "2026-11",
    "2026-13",
    "2026-02-30",
    "9999-12",
    "0000-00-00",
    "2026-Q4",
    "nlp",
    "root",
    "../../etc/passwd",
    "' OR 1=1 --",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "%00",
    "\x00",
    "\r\nSet-Cookie: a=b",
    "\ud7ff\u202eü😀",
    "x" * 5000,
    "[]",
    "12.34",
    "12,34",
    "١٢",
)
# Signing in and out ends the session; the provider's answer has its own tests.
APART = {"/login", "/logout", "/login/oidc", "/login/oidc/callback"}


def pages(app: Any) -> list[tuple[str, str]]:
    described = set(app.openapi()["paths"])

    def walk(router: Any) -> Iterator[tuple[str, str]]:
        for route in router.routes:
            inner = getattr(route, "original_router", route)
            if hasattr(inner, "routes"):
                yield from walk(inner)
            else:
                yield from ((method, route.path) for method in sorted(route.methods - {"HEAD"}))

    return sorted(each for each in walk(app) if each[1] not in described | APART)


def fields() -> list[str]:
    """Names that forms of pages send."""
    found = set(NAMES)
    for template in (files("api.pages") / "templates").iterdir():
        found |= set(re.findall(r'name="(\w+)"', template.read_text()))
    return sorted(found)


def address(path: str, dice: random.Random) -> str:
    def value(match: re.Match[str]) -> str:
        return quote(dice.choice(("nlp", "nlp", "root", "2026-11", "101", *HOSTILE)) or "x", safe="")

    return re.sub(r"\{\w+\}", value, path)


def values(names: list[str], dice: random.Random) -> list[tuple[str, str]]:
    return [(dice.choice(names), dice.choice(HOSTILE)) for _ in range(dice.randrange(5))]


@pytest.mark.timeout(900)
def test_no_input_makes_a_page_fail(
    november_service: Any, thorough: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    browser = november_service.browser(None)
    cookie = f"{COOKIE}={browser.cookies[COOKIE]}".encode()
    token = form_token(Request({"type": "http", "headers": [(b"cookie", cookie)]}))
    dice, names = random.Random(20261122), fields()
    assert len(names) > len(NAMES)
    failed = []
    asked = pages(november_service.app)
    assert ("GET", "/") in asked
    for method, path in asked:
        for _ in range(MANY if thorough else FEW):
            url = f"{address(path, dice)}?{urlencode(values(names, dice))}"
            data = dict(values(names, dice)) | {"form": token} if method == "POST" else None
            answer = browser.request(method, url, data=data)
            if answer.status_code >= 500:
                failed.append((method, url, data, answer.status_code))
    assert failed == []
