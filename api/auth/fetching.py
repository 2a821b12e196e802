"""What is asked of an OpenID provider over HTTP: https or this machine, no redirects, answers with an end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from hpctools.errors import UsageError

_TIMEOUT = 10.0
_MOST_BYTES = 1_000_000
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def check_url(url: object) -> None:
    """Refuse what would send keys or codes through an open network.

    Raises:
        UsageError: it is no https URL, nor one of this machine itself.
    """
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        host = parts.hostname if parts else None
    except ValueError:
        parts = host = None
    if parts and host and (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)):
        return
    raise UsageError(f"{url!r} cannot be an OpenID provider", "give an https URL")


def fetch_bytes(url: str, headers: Mapping[str, str] | None = None) -> bytes:
    """What is at a URL; redirects are not followed, and what has no end is not read to it."""
    return _answer(Request(url, headers=dict(headers or {})))  # noqa: S310 - check_url was asked before


def post_form(url: str, fields: Mapping[str, str], headers: Mapping[str, str]) -> bytes:
    """What a URL answers to a form; as `fetch_bytes`."""
    body = urlencode(fields).encode()
    return _answer(Request(url, body, {**headers, "Accept": "application/json"}))  # noqa: S310


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> Request | None:
        return None


def _answer(request: Request) -> bytes:
    with build_opener(_NoRedirect).open(request, timeout=_TIMEOUT) as answer:
        data: bytes = answer.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{request.full_url} answers more than {_MOST_BYTES} bytes")
    return data
