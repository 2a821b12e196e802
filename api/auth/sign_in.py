"""Signing in with a browser through the OpenID provider: authorization code with PKCE, state and nonce.

All three follow from one secret in a cookie of the browser that began, so that nothing is kept here until the
provider has sent that same browser back.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode

from api.auth.fetching import check_url, fetch_bytes, post_form
from api.auth.keys import FRESH_SECONDS, discover
from api.auth.oidc import Oidc
from api.auth.people import Person
from api.auth.provider import Client
from hpctools.errors import BudgetError, UnreachableError, UsageError

_AWAY = (URLError, HTTPException, OSError, ValueError, KeyError, TypeError)


class RefusedError(BudgetError):
    """The provider does not confirm who somebody is; the log has the reason."""


def new_secret() -> str:
    """What a browser keeps while its owner is at the provider."""
    return secrets.token_urlsafe(32)


class SignIn:
    """Signs people in at one provider.

    Args:
        oidc: verifies what the provider signs.
        monotonic: seconds, never going back.
    """

    def __init__(
        self, issuer: str, client: Client, oidc: Oidc, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        check_url(issuer)
        self._issuer = issuer
        self._client = client
        self._oidc = oidc
        self._monotonic = monotonic
        self._told: tuple[float, Mapping[str, Any]] | None = None

    def address(self, secret: str, back: str) -> str:
        """Where a browser goes to sign in.

        Args:
            secret: of `new_secret`.
            back: our URL that the provider sends it back to.

        Raises:
            UnreachableError: the provider does not answer.
        """
        endpoint = self._endpoint("authorization_endpoint")
        asked = {
            "response_type": "code",
            "client_id": self._client.id,
            "redirect_uri": back,
            "scope": self._client.scope,
            "state": _derived(secret, "state"),
            "nonce": _derived(secret, "nonce"),
            "code_challenge": _hashed(_derived(secret, "verifier")),
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    def finish(self, secret: str, answer: Mapping[str, str], back: str, now: int) -> Person:
        """Who came back.

        Args:
            secret: of the cookie; empty when there is none.
            answer: the query that the provider sent the browser back with.
            back: as for `address`.
            now: Unix seconds.

        Raises:
            RefusedError: it is another browser, another sign-in, or the provider says no.
            UnreachableError: the provider does not answer.
        """
        if not secret or not _same(answer.get("state"), _derived(secret, "state")):
            raise RefusedError("this sign-in was begun in another browser, or too long ago")
        if answer.get("iss", self._issuer) != self._issuer:
            raise RefusedError("another provider answered")
        if "error" in answer or not answer.get("code"):
            raise RefusedError(f"the provider says: {answer.get('error', 'nothing')[:100]!r}")
        tokens = self._exchange(answer["code"], _derived(secret, "verifier"), back)
        return self._oidc.person(self._claims(tokens, _derived(secret, "nonce"), now))

    def _exchange(self, code: str, verifier: str, back: str) -> Mapping[str, Any]:
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "client_id": self._client.id,
            "code_verifier": verifier,
        }
        headers, more = self._credentials()
        url = self._endpoint("token_endpoint")
        return self._ask(lambda: post_form(url, fields | more, headers))

    def _credentials(self) -> tuple[dict[str, str], dict[str, str]]:
        """Our password as the provider wants it: in a header, or in the form."""
        if self._client.secret_file is None:
            return {}, {}
        password = read_secret(self._client)
        methods = self._discovered().get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if "client_secret_basic" not in methods:
            return {}, {"client_secret": password}
        pair = f"{quote(self._client.id, safe='')}:{quote(password, safe='')}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}, {}

    def _claims(self, tokens: Mapping[str, Any], nonce: str, now: int) -> Mapping[str, Any]:
        """What the ID token says, and what more the provider tells of that same person."""
        token = tokens.get("id_token")
        claims = self._oidc.claims(token, now, self._client.id) if isinstance(token, str) else None
        if claims is None or not _same(claims.get("nonce"), nonce):
            raise RefusedError("the provider's ID token is not for this sign-in")
        if claims.get("azp", self._client.id) != self._client.id:
            raise RefusedError("the provider's ID token is for another client")
        return {**self._more(tokens, claims["sub"]), **claims} if self._oidc.lacks(claims) else claims

    def _more(self, tokens: Mapping[str, Any], subject: str) -> Mapping[str, Any]:
        """Many providers leave groups out of the ID token: they are told where the access token opens."""
        url, access = self._discovered().get("userinfo_endpoint"), tokens.get("access_token")
        if url is None or not isinstance(access, str) or not access.isascii() or not access.isprintable():
            return {}
        check_url(url)
        found = self._ask(lambda: fetch_bytes(url, {"Authorization": f"Bearer {access}"}))
        if found.get("sub") != subject:
            raise RefusedError("the provider tells of another person")
        return found

    def _ask(self, ask: Callable[[], bytes]) -> Mapping[str, Any]:
        try:
            answer = json.loads(ask())
        except HTTPError as error:
            if error.code >= 500:
                raise self._away(error) from None
            raise RefusedError(f"the provider answers {error.code}: {_reason(error)}") from None
        except _AWAY as error:
            raise self._away(error) from None
        if not isinstance(answer, dict):
            raise RefusedError("the provider answers something else than an object")
        return answer

    def _endpoint(self, name: str) -> str:
        url = self._discovered().get(name)
        check_url(url)
        return str(url)

    def _discovered(self) -> Mapping[str, Any]:
        if self._told is None or self._monotonic() - self._told[0] > FRESH_SECONDS:
            try:
                self._told = (self._monotonic(), discover(self._issuer, fetch_bytes))
            except _AWAY as error:
                raise self._away(error) from None
        return self._told[1]

    def _away(self, error: Exception) -> UnreachableError:
        return UnreachableError(
            f"the OpenID provider {self._issuer} does not answer: {error}", "check HPCTOOLS_API_OIDC_ISSUER"
        )


def read_secret(client: Client) -> str:
    """Our password at the provider.

    Raises:
        UsageError: its file cannot be read, or is empty.
    """
    path = client.secret_file
    try:
        found = path.read_text().strip() if path else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read the OpenID client's secret {path}: {error}",
            "see HPCTOOLS_API_OIDC_CLIENT_SECRET_FILE",
        ) from None
    if path and not found:
        raise UsageError(f"the OpenID client's secret {path} is empty", "write the provider's secret into it")
    return found


def _derived(secret: str, name: str) -> str:
    return _hashed(f"hpctools {name} {secret}")


def _hashed(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def _same(said: object, expected: str) -> bool:
    return isinstance(said, str) and said.isascii() and hmac.compare_digest(said, expected)


def _reason(error: HTTPError) -> str:
    """The error's name as OAuth has it (RFC 6749, 5.2)."""
    try:
        said = json.loads(error.read(10_000)).get("error")
    except (ValueError, AttributeError, OSError):
        return error.reason if isinstance(error.reason, str) else ""
    return str(said)[:100]
