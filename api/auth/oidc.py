"""Bearer tokens of an OpenID provider: signed JWTs whose groups and user open accounts.

What is refused stands in `_header` and `_claims`; everything that is not known to be right is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jwt
from jwt.exceptions import PyJWTError

from api.auth.keys import KEY_OF, Keys
from api.auth.people import People, Person, head, member
from api.auth.principal import SCOPES, Grant, Principal
from api.auth.provider import Provider

_LONGEST_TOKEN = 16_384
_LONGEST_NAME = 200
_TYPES = (None, "jwt", "at+jwt", "application/at+jwt")
# Where a token names its key itself (RFC 7515, 4.1), or asks for what we do not know.
_FORBIDDEN = ("jku", "jwk", "x5u", "x5c", "crit", "b64")
_UNCHECKED = {f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}


class Oidc:
    """Verifies tokens of one provider."""

    def __init__(self, provider: Provider, keys: Keys | None = None) -> None:
        self._provider = provider
        self._keys = keys or Keys(provider.issuer)

    def concerns(self, secret: str) -> bool:
        """Whether it looks like a token of a provider: ours have no dots."""
        return secret.count(".") == 2

    def verify(self, secret: str, people: People, now: int) -> Principal | None:
        """Who a token speaks for; None when it proves nothing.

        Args:
            people: whom the site file names.
            now: Unix seconds.

        Raises:
            UnreachableError: the provider's keys are not known, and it does not answer.
        """
        claims = self.claims(secret, now, self._provider.audience)
        return None if claims is None else self.principal(self.person(claims), people)

    def claims(self, secret: str, now: int, audience: str) -> Mapping[str, Any] | None:
        """What the provider says in a token, if it is the provider's, for an audience and for now.

        Raises:
            UnreachableError: as `verify`.
        """
        if len(secret) > _LONGEST_TOKEN or not secret.isascii():
            return None
        claims = self._signed(secret)
        return claims if claims is not None and self._meant(claims, now, audience) else None

    def lacks(self, claims: Mapping[str, Any]) -> bool:
        """Whether claims leave out what a person is known by."""
        return any(
            name not in claims
            for name in (self._provider.username_claim, self._provider.groups_claim)
            if name
        )

    def person(self, claims: Mapping[str, Any]) -> Person:
        """Whom claims that were verified speak of."""
        claim, listed = self._provider.username_claim, claims.get(self._provider.groups_claim)
        groups = [group for group in listed if _name(group)] if isinstance(listed, list) else []
        user = _name(claims.get(claim)) if claim else None
        user = None if user is None or ":" in user else user  # as passwd(5) has them
        return Person(claims["sub"], user, tuple(groups), self._provider.issuer)

    def vouches(self, person: Person) -> bool:
        """Whether this provider, and not one that the settings named before, told of somebody."""
        return person.issuer == self._provider.issuer

    def principal(self, person: Person, people: People) -> Principal:
        """What somebody may do, by the settings and the site file as they are now."""
        roles = [self._provider.groups[group] for group in person.groups if group in self._provider.groups]
        grants = (*map(_grant, roles), *people.grants(person.user, person.groups))
        return Principal(person.name, tuple(dict.fromkeys(grants)), unnamed=person.user is None)

    def _signed(self, secret: str) -> Mapping[str, Any] | None:
        """The claims, if the provider signed them."""
        try:
            header = jwt.get_unverified_header(secret)
            if not _acceptable(header):
                return None
            key = self._keys.find(header.get("kid"), header["alg"])
            if key is None:
                return None
            claims: Mapping[str, Any] = jwt.decode(secret, key, [header["alg"]], options=_UNCHECKED)  # type: ignore[arg-type]
        except (PyJWTError, ValueError, RecursionError):
            return None
        return claims

    def _meant(self, claims: Mapping[str, Any], now: int, wanted: str) -> bool:
        """Whether a token is for an audience and for now, by our own clock."""
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        leeway = self._provider.leeway
        return (
            claims.get("iss") == self._provider.issuer
            and wanted in audiences
            and _moment(claims.get("exp")) > now - leeway
            and _moment(claims.get("nbf", 0), late=True) <= now + leeway
            and _moment(claims.get("iat", 0), late=True) <= now + leeway
            and _name(claims.get("sub")) is not None
        )


def _grant(role: str) -> Grant:
    kind, _, account = role.partition(":")
    if kind == "admin":
        return Grant(None, frozenset(SCOPES))
    return head(account) if kind == "head" else member(account)


def _acceptable(header: Mapping[str, Any]) -> bool:
    kind, kid = header.get("typ"), header.get("kid")
    return (
        header.get("alg") in KEY_OF
        and (kind.lower() if isinstance(kind, str) else kind) in _TYPES
        and (kid is None or isinstance(kid, str))
        and not any(name in header for name in _FORBIDDEN)
    )


def _moment(value: object, late: bool = False) -> float:
    """Unix seconds; what is none lies where it is refused."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**53:
        return float(value)
    return float("inf") if late else float("-inf")


def _name(value: object) -> str | None:
    good = isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and value.isprintable()
    return value if good and isinstance(value, str) else None
