"""A small OpenID provider that people sign in at: who is asked is always the same person, and agrees."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from tests.web import Answer, Asked, serving

KEY = ec.generate_private_key(ec.SECP256R1())
CLIENT, SECRET = "budgets-web", "s3cret:with/signs"


def challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


@dataclass
class Campus:
    """The provider.

    Attributes:
        person: claims of who is signed in there.
        told_aside: those of them that only userinfo tells.
        change: claims of the ID token that are wrong on purpose.
        discovery: what it tells of itself otherwise.
        refuse: the OAuth error that sign-ins end with.
        posted: what came to the token endpoint.
    """

    now: int
    url: str = ""
    person: dict[str, Any] = field(default_factory=dict)
    told_aside: tuple[str, ...] = ()
    change: dict[str, Any] = field(default_factory=dict)
    discovery: dict[str, Any] = field(default_factory=dict)
    refuse: str = ""
    away: bool = False
    posted: list[dict[str, str]] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def answer(self, asked: Asked) -> Answer:
        parts = urlsplit(asked.path)
        if parts.path == "/authorize":
            return Answer(302, headers={"Location": self.authorize(parts.query)})
        if self.away:
            return Answer(503, b"{}")
        if asked.method == "POST":
            form = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
            status, body = self.token(form, asked.headers.get("Authorization", ""))
        else:
            status, body = self.get(parts.path, asked.headers)
        return Answer(status, json.dumps(body).encode())

    def get(self, path: str, headers: Mapping[str, str]) -> tuple[int, Any]:
        if path == "/.well-known/openid-configuration":
            return 200, {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "userinfo_endpoint": f"{self.url}/userinfo",
                **self.discovery,
            }
        if path == "/keys":
            return 200, {"keys": [{**ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "e"}]}
        if path == "/userinfo" and headers.get("Authorization") == "Bearer an-access-token":
            return 200, {"sub": self.person["sub"], **{name: self.person[name] for name in self.told_aside}}
        return 404, {}

    def authorize(self, query: str) -> str:
        """Where the browser is sent back to."""
        asked = dict(parse_qsl(query))
        back = {"state": asked["state"], "iss": self.url}
        if self.refuse:
            return f"{asked['redirect_uri']}?{urlencode({**back, 'error': self.refuse})}"
        code = secrets.token_hex(8)
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({**back, 'code': code})}"

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, Any]:
        self.posted.append({**form, "authorization": authorization})
        asked = self.codes.pop(form.get("code", ""), None)
        expected = base64.b64encode(f"{CLIENT}:{quote(SECRET, safe='')}".encode()).decode()
        if authorization != f"Basic {expected}" and form.get("client_secret") != SECRET:
            return 401, {"error": "invalid_client"}
        if (
            asked is None
            or form.get("redirect_uri") != asked["redirect_uri"]
            or challenge(form.get("code_verifier", "")) != asked["code_challenge"]
            or asked["code_challenge_method"] != "S256"
        ):
            return 400, {"error": "invalid_grant"}
        said = {name: value for name, value in self.person.items() if name not in self.told_aside}
        claims = {
            "iss": self.url,
            "aud": CLIENT,
            "iat": self.now,
            "exp": self.now + 60,
            "nonce": asked["nonce"],
            **said,
            **self.change,
        }
        token = jwt.encode(claims, KEY, "ES256", headers={"kid": "e"})
        return 200, {"id_token": token, "access_token": "an-access-token", "token_type": "Bearer"}


@pytest.fixture
def campus(now: int) -> Iterator[Campus]:
    campus = Campus(now, person={"sub": "s-1", "uid": "nlp-head", "groups": ["staff"]})
    with serving(campus.answer) as address:
        # Another site than 127.0.0.1, where the service is, as a real provider is.
        campus.url = address.replace("127.0.0.1", "localhost")
        yield campus
