"""The keys that an OpenID provider signs with: found by discovery, kept, and fetched again in time."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from threading import Lock
from typing import Any
from urllib.error import URLError

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from api.auth.fetching import check_url, fetch_bytes
from hpctools.errors import UnreachableError

FRESH_SECONDS = 3600.0
"""Keys are fetched again after this time."""
STALE_SECONDS = 24 * 3600.0
"""Keys are used this long while the provider does not answer."""
PAUSE_SECONDS = 30.0
"""At least this long lies between two attempts, whatever tokens are sent to us."""

_LEAST_RSA_BITS = 2048

# The key type, and the curve where there is one, of each algorithm that we accept.
KEY_OF: Mapping[str, tuple[str, str | None]] = {
    "RS256": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "EdDSA": ("OKP", "Ed25519"),
}

_log = logging.getLogger("hpctools.api")

Fetch = Callable[[str], bytes]


class Keys:
    """One provider's keys.

    Args:
        issuer: its URL, as it stands in its tokens.
        fetch: the bytes at a URL.
        monotonic: seconds, never going back.
    """

    def __init__(
        self, issuer: str, fetch: Fetch | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        check_url(issuer)
        self._issuer = issuer
        self._fetch = fetch or fetch_bytes
        self._monotonic = monotonic
        self._lock = Lock()
        self._keys: tuple[Mapping[str, Any], ...] = ()
        self._fetched: float | None = None
        self._tried: float | None = None

    def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """The one key that a token can be signed with; None when there is none, or more than one.

        Raises:
            UnreachableError: there are no keys, and the provider does not answer.
        """
        with self._lock:
            if self._age() > FRESH_SECONDS:
                self._refresh()
            found = self._fitting(kid, algorithm)
            if not found and self._may_try():
                # It may have begun to sign with a new key.
                self._refresh()
                found = self._fitting(kid, algorithm)
            if self._age() > STALE_SECONDS:
                raise UnreachableError(
                    f"the OpenID provider {self._issuer} does not answer", "check HPCTOOLS_API_OIDC_ISSUER"
                )
        return _usable(found[0], algorithm) if len(found) == 1 else None

    def _fitting(self, kid: str | None, algorithm: str) -> list[Mapping[str, Any]]:
        return [key for key in self._keys if _fits(key, kid, algorithm)]

    def _age(self) -> float:
        return float("inf") if self._fetched is None else self._monotonic() - self._fetched

    def _may_try(self) -> bool:
        return self._tried is None or self._monotonic() - self._tried >= PAUSE_SECONDS

    def _refresh(self) -> None:
        if not self._may_try():
            return
        self._tried = self._monotonic()
        try:
            found = self._discover()
        except (URLError, HTTPException, OSError, ValueError, KeyError, TypeError) as error:
            _log.error("the keys of the OpenID provider %s cannot be read: %s", self._issuer, error)
            return
        self._keys, self._fetched = found, self._tried

    def _discover(self) -> tuple[Mapping[str, Any], ...]:
        told = discover(self._issuer, self._fetch)
        check_url(told["jwks_uri"])
        keys = json.loads(self._fetch(told["jwks_uri"]))["keys"]
        return tuple(key for key in keys if isinstance(key, dict))


def discover(issuer: str, fetch: Fetch) -> Mapping[str, Any]:
    """What a provider tells of itself.

    Raises:
        ValueError: it is not the one that was asked.
        URLError, HTTPException, OSError: it does not answer.
    """
    told: Mapping[str, Any] = json.loads(fetch(issuer.rstrip("/") + "/.well-known/openid-configuration"))
    if told["issuer"] != issuer:
        raise ValueError("it calls itself otherwise")
    return told


def _fits(key: Mapping[str, Any], kid: str | None, algorithm: str) -> bool:
    """Whether a key may verify a token's algorithm: a key is for one algorithm, whatever a token claims."""
    kind, curve = KEY_OF[algorithm]
    return (
        (kid is None or key.get("kid") == kid)
        and key.get("kty") == kind
        and (curve is None or key.get("crv") == curve)
        and key.get("alg", algorithm) == algorithm
        and key.get("use", "sig") == "sig"
        and "verify" in key.get("key_ops", ["verify"])
    )


def _usable(key: Mapping[str, Any], algorithm: str) -> PyJWK | None:
    try:
        found = PyJWK(dict(key), algorithm)
    except (PyJWTError, ValueError, TypeError):
        return None
    weak = algorithm == "RS256" and found.key.key_size < _LEAST_RSA_BITS
    return None if weak else found
