"""Tokens of an OpenID provider of our own, served on loopback."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from api.auth.keys import PAUSE_SECONDS, STALE_SECONDS, Keys
from api.auth.oidc import Oidc
from api.auth.people import People
from api.auth.principal import Grant, Principal
from api.auth.provider import Provider, check_role
from hpctools.errors import UnreachableError, UsageError
from tests.web import Answer, Asked, serving

NOW = 1_795_262_400
AUDIENCE = "budgets"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
PEOPLE = People({"anna": ("nlp",)}, {"anna": ("cv-lab-a",), "ben": ("nlp-lab-a",)}, {"lab-b": ("nlp-lab-b",)})


def public(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    algorithm = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    of = next((found for kind, found in algorithm.items() if isinstance(key, kind)), OKPAlgorithm)
    return {**of.to_jwk(key.public_key(), as_dict=True), "kid": kid, **more}


@dataclass
class Issuer:
    """A provider whose answers tests may change."""

    url: str = ""
    keys: list[dict[str, Any]] = field(default_factory=list)
    named: str | None = None
    jwks_uri: str | None = None
    away: bool = False
    asked: list[str] = field(default_factory=list)

    def answer(self, asked: Asked) -> Answer:
        told = self.tell(asked.path)
        if asked.path == "/moved":
            return Answer(302, headers={"Location": f"{self.url}/keys"})
        return Answer(503 if told is None else 200, json.dumps(told).encode())

    def tell(self, path: str) -> dict[str, Any] | None:
        self.asked.append(path)
        if self.away:
            return None
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.named or self.url, "jwks_uri": self.jwks_uri or f"{self.url}/keys"}
        return {"keys": self.keys} if path == "/keys" else None


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer(keys=[public(RSA, "r"), public(EC, "e"), public(ED, "d")])

    with serving(issuer.answer) as issuer.url:
        yield issuer


@dataclass
class Watch:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def oidc(issuer: Issuer, watch: Watch) -> Oidc:
    roles = {"admins": "admin", "chairs": "head:cv", "staff": "member:dl"}
    provider = Provider(issuer.url, AUDIENCE, "uid", "groups", roles)
    return Oidc(provider, Keys(issuer.url, monotonic=watch))


@pytest.fixture
def claims(issuer: Issuer) -> dict[str, Any]:
    return {"iss": issuer.url, "aud": AUDIENCE, "sub": "s-1", "exp": NOW + 300, "iat": NOW, "uid": "ben"}


def signed(
    claims: dict[str, Any], key: Any = RSA, algorithm: str = "RS256", kid: str | None = "r", **header: Any
) -> str:
    return jwt.encode(claims, key, algorithm, headers={**({"kid": kid} if kid else {}), **header})


def names(principal: Principal | None) -> dict[str | None, set[str]] | None:
    return None if principal is None else {grant.account: set(grant.scopes) for grant in principal.grants}


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"), [(RSA, "RS256", "r"), (EC, "ES256", "e"), (ED, "EdDSA", "d")]
)
@pytest.mark.parametrize("named", [True, False])
def test_signed_tokens_open_what_the_site_file_says(
    oidc: Oidc, claims: dict[str, Any], key: Any, algorithm: str, kid: str, named: bool
) -> None:
    token = signed(claims, key, algorithm, kid if named else None)
    assert oidc.verify(token, PEOPLE, NOW) == Principal(
        "oidc:ben", (Grant("nlp-lab-a", frozenset({"read"})),)
    )


@pytest.mark.parametrize(
    ("change", "opened"),
    [
        ({"uid": "anna"}, {"nlp": {"read", "write"}, "cv-lab-a": {"read"}}),
        ({"uid": "nobody"}, {}),
        ({"uid": None}, {}),
        ({"uid": ["ben"]}, {}),
        ({"uid": "ben\n"}, {}),
        ({"uid": None, "groups": ["lab-b", "unknown", 7, None, {"admins": 1}]}, {"nlp-lab-b": {"read"}}),
        ({"uid": None, "groups": ["chairs", "staff"]}, {"cv": {"read", "write"}, "dl": {"read"}}),
        ({"uid": None, "groups": ["admins"]}, {None: {"read", "write", "enforce", "login", "admin"}}),
        ({"uid": None, "groups": "admins"}, {}),
        ({"uid": None, "preferred_username": "anna"}, {}),
    ],
)
def test_whom_the_claims_name(
    oidc: Oidc, claims: dict[str, Any], change: dict[str, Any], opened: dict[str | None, set[str]]
) -> None:
    assert names(oidc.verify(signed({**claims, **change}), PEOPLE, NOW)) == opened


@pytest.mark.parametrize(
    ("uid", "user", "name"),
    [
        ("anna", "anna", "oidc:anna"),
        (None, None, "oidc:sub:anna"),
        ("ben\n", None, "oidc:sub:anna"),
        (["ben"], None, "oidc:sub:anna"),
        ("sub:anna", None, "oidc:sub:anna"),
    ],
)
def test_the_providers_own_name_of_somebody_is_no_unix_account(
    oidc: Oidc, claims: dict[str, Any], uid: Any, user: str | None, name: str
) -> None:
    """A guest whose subject is `anna` saw and ended the sessions of Anna's account on login nodes, stood in
    the audit trail as she does, and might have answers that are kept for her requests.
    """
    principal = oidc.verify(signed({**claims, "sub": "anna", "uid": uid, "groups": ["lab-b"]}), PEOPLE, NOW)
    assert principal is not None
    assert (principal.user, principal.name) == (user, name)


@pytest.mark.parametrize(
    ("change", "good"),
    [
        ({"exp": NOW - 59}, True),
        ({"exp": NOW - 60}, False),
        ({"exp": None}, False),
        ({"exp": "2099"}, False),
        ({"exp": True}, False),
        ({"nbf": NOW + 60}, True),
        ({"nbf": NOW + 61}, False),
        ({"iat": NOW + 61}, False),
        ({"iat": "now"}, False),
        ({"aud": ["other", AUDIENCE]}, True),
        ({"aud": "other"}, False),
        ({"aud": f"{AUDIENCE}x"}, False),
        ({"aud": None}, False),
        ({"aud": []}, False),
        ({"iss": "https://evil.example"}, False),
        ({"iss": None}, False),
        ({"sub": ""}, False),
        ({"sub": 7}, False),
    ],
)
def test_claims_that_are_not_for_us_or_not_for_now(
    oidc: Oidc, claims: dict[str, Any], change: dict[str, Any], good: bool
) -> None:
    changed = {name: value for name, value in {**claims, **change}.items() if value is not None}
    # Not every library makes tokens as wrong as these: we sign them ourselves.
    token = jwt.api_jws.encode(json.dumps(changed).encode(), RSA, "RS256", headers={"kid": "r", "typ": "JWT"})
    assert (oidc.verify(token, PEOPLE, NOW) is not None) is good


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unsigned(claims: dict[str, Any], header: dict[str, Any], signature: bytes = b"") -> str:
    return ".".join([b64(json.dumps(header).encode()), b64(json.dumps(claims).encode()), b64(signature)])


def pem(key: Any) -> bytes:
    found: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return found


def by_hmac(claims: dict[str, Any]) -> str:
    """Signed with the public key as if it were a shared secret."""
    import hashlib
    import hmac

    head = unsigned(claims, {"alg": "HS256", "kid": "r", "typ": "JWT"}).rpartition(".")[0]
    return f"{head}.{b64(hmac.new(pem(RSA), head.encode(), hashlib.sha256).digest())}"


FORGERIES: dict[str, Callable[[dict[str, Any]], str]] = {
    "none": lambda claims: unsigned(claims, {"alg": "none", "typ": "JWT"}),
    "None with a key": lambda claims: unsigned(claims, {"alg": "None", "kid": "r"}),
    "hmac of the public key": by_hmac,
    "no algorithm": lambda claims: unsigned(claims, {"kid": "r"}),
    "algorithm of another type": lambda claims: unsigned(claims, {"alg": 7, "kid": "r"}),
    "another key": lambda claims: signed(
        claims, rsa.generate_private_key(public_exponent=65537, key_size=2048)
    ),
    "another's key id": lambda claims: signed(claims, kid="e"),
    "unknown key id": lambda claims: signed(claims, kid="x"),
    "an algorithm that is not allowed": lambda claims: signed(claims, algorithm="RS384"),
    "PSS": lambda claims: signed(claims, algorithm="PS256"),
    "jku": lambda claims: signed(claims, jku="https://evil.example/keys"),
    "x5u": lambda claims: signed(claims, x5u="https://evil.example/cert"),
    "jwk": lambda claims: signed(claims, jwk=public(RSA, "r")),
    "x5c": lambda claims: signed(claims, x5c=["AAAA"]),
    "crit": lambda claims: signed(claims, crit=["exp"]),
    "another type of token": lambda claims: signed(claims, typ="logout+jwt"),
    "cut": lambda claims: signed(claims)[:-5],
    "longer": lambda claims: f"{signed(claims)}AAAA",
    "other claims": lambda claims: ".".join(
        [signed(claims).split(".")[0], b64(json.dumps({**claims, "uid": "anna"}).encode()), "AAAA"]
    ),
    "huge": lambda claims: signed({**claims, "more": "x" * 20_000}),
    "empty": lambda claims: "..",
    "no JSON": lambda claims: "a.b.c",
    "deep": lambda claims: f"{b64(b'[' * 9000)}.{b64(b'{}')}.",
    "not ASCII": lambda claims: f"{signed(claims)}é",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forgeries_prove_nothing(oidc: Oidc, claims: dict[str, Any], forgery: str) -> None:
    assert oidc.verify(signed(claims), PEOPLE, NOW) is not None
    assert oidc.verify(FORGERIES[forgery](claims), PEOPLE, NOW) is None


@pytest.mark.parametrize(
    "change",
    [{"use": "enc"}, {"alg": "RS512"}, {"key_ops": ["encrypt"]}, {"kty": "oct", "k": "AAAA"}, {"n": "AQAB"}],
)
def test_keys_that_are_for_something_else(
    oidc: Oidc, issuer: Issuer, claims: dict[str, Any], change: dict[str, Any]
) -> None:
    issuer.keys = [public(RSA, "r", **change)]
    assert oidc.verify(signed(claims), PEOPLE, NOW) is None


def test_a_key_id_that_names_two_keys_names_none(oidc: Oidc, issuer: Issuer, claims: dict[str, Any]) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    issuer.keys = [public(RSA, "r"), public(other, "r")]
    assert oidc.verify(signed(claims), PEOPLE, NOW) is None
    # One of another kind with the same id takes nothing from it.
    issuer.keys = [public(RSA, "r"), public(EC, "r")]
    assert Oidc(Provider(issuer.url, AUDIENCE)).verify(signed(claims), PEOPLE, NOW) is not None


def test_short_keys_are_refused(oidc: Oidc, issuer: Issuer, claims: dict[str, Any]) -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    issuer.keys = [public(short, "r")]
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        token = signed(claims, short)
    assert oidc.verify(token, PEOPLE, NOW) is None


def test_keys_are_kept_and_fetched_again_when_the_provider_changes_them(
    oidc: Oidc, issuer: Issuer, watch: Watch, claims: dict[str, Any]
) -> None:
    for _ in range(5):
        assert oidc.verify(signed(claims), PEOPLE, NOW) is not None
    assert len(issuer.asked) == 2
    new = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    issuer.keys = [public(new, "new")]
    # Whoever sends unknown key ids does not make us ask each time.
    assert oidc.verify(signed(claims, new, kid="new"), PEOPLE, NOW) is None
    assert len(issuer.asked) == 2
    watch.seconds += PAUSE_SECONDS
    assert oidc.verify(signed(claims, new, kid="new"), PEOPLE, NOW) is not None
    assert oidc.verify(signed(claims), PEOPLE, NOW) is None
    assert len(issuer.asked) == 4


def test_a_provider_that_is_away_for_a_while(
    oidc: Oidc, issuer: Issuer, watch: Watch, claims: dict[str, Any]
) -> None:
    issuer.away = True
    with pytest.raises(UnreachableError, match="does not answer"):
        oidc.verify(signed(claims), PEOPLE, NOW)
    issuer.away = False
    watch.seconds += PAUSE_SECONDS
    assert oidc.verify(signed(claims), PEOPLE, NOW) is not None
    issuer.away = True
    watch.seconds += STALE_SECONDS
    assert oidc.verify(signed(claims), PEOPLE, NOW) is not None
    watch.seconds += 1
    with pytest.raises(UnreachableError):
        oidc.verify(signed(claims), PEOPLE, NOW)


@pytest.mark.parametrize(
    "change",
    [
        {"named": "https://evil.example"},
        {"jwks_uri": "http://evil.example/keys"},
        {"jwks_uri": "file:///etc/passwd"},
    ],
)
def test_a_provider_that_sends_us_elsewhere(
    oidc: Oidc, issuer: Issuer, claims: dict[str, Any], change: dict[str, str]
) -> None:
    vars(issuer).update(change)
    with pytest.raises((UnreachableError, UsageError)):
        oidc.verify(signed(claims), PEOPLE, NOW)


def test_redirects_are_not_followed(oidc: Oidc, issuer: Issuer, claims: dict[str, Any]) -> None:
    issuer.jwks_uri = f"{issuer.url}/moved"
    with pytest.raises(UnreachableError):
        oidc.verify(signed(claims), PEOPLE, NOW)


@pytest.mark.parametrize("url", ["http://sso.example.org", "ftp://x", "sso.example.org", "", "https://["])
def test_a_provider_without_tls_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="give an https URL"):
        Keys(url)


@pytest.mark.parametrize(
    ("role", "good"),
    [
        ("admin", True),
        ("head:nlp", True),
        ("member:x", True),
        ("head:", False),
        ("nlp", False),
        ("admin:x", False),
    ],
)
def test_roles(role: str, good: bool) -> None:
    assert check_role(role) is good


def test_the_service_takes_them(
    sqlite_service: Any, issuer: Issuer, claims: dict[str, Any], site_path: Any
) -> None:
    """Through the whole application: a member sees their own lab, a head the subtree, nobody others."""
    from fastapi.testclient import TestClient

    from api.app import create_app
    from api.settings import Settings

    app = create_app(
        Settings(
            database_url=sqlite_service.engine.url.render_as_string(),
            site=site_path,
            oidc_issuer=issuer.url,
            oidc_audience=AUDIENCE,
            oidc_username_claim="uid",
            oidc_groups={"admins": "admin"},
        ),
        clock=lambda: NOW,
    )
    client = TestClient(app)

    def seen(**change: Any) -> Any:
        token = signed({**claims, **change})
        answer = client.get("/v1/accounts", headers={"Authorization": f"Bearer {token}"})
        return (
            [account["name"] for account in answer.json()["accounts"]]
            if answer.status_code == 200
            else answer.status_code
        )

    assert seen(uid="nlp1") == ["nlp-lab-a"]
    assert seen(uid="nlp-head") == ["nlp", "nlp-lab-a", "nlp-lab-b"]
    assert seen(uid="nlp1", groups=["admins"])[0] == "root"
    assert seen(uid="stranger") == 403
    assert seen(exp=NOW - 100) == 401
    # Tokens of our own go on to work.
    token = {"Authorization": f"Bearer {sqlite_service.token('cv')}"}
    assert client.get("/v1/accounts", headers=token).status_code == 200
    app.state.context.engine.dispose()
