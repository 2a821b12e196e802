"""Sessions of browsers whose people signed in through the OpenID provider; of the secret a digest is kept."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from dataclasses import asdict

from sqlalchemy import Engine, delete, select

from api.auth.people import Person
from api.db.access_models import BrowserSession
from api.db.engine import reading, writing

SECONDS = 12 * 3600
"""How long a session lasts. What the provider says of a person is asked again after that."""

_PREFIX = "hpcs_"
_FORM = re.compile(r"hpcs_[A-Za-z0-9_-]{43}")


def begin(engine: Engine, person: Person, now: int) -> str:
    """Begin a session; return its secret. Those that expired are forgotten."""
    secret = _PREFIX + secrets.token_urlsafe(32)
    told = json.dumps(asdict(person), sort_keys=True)
    with writing(engine) as session:
        session.execute(delete(BrowserSession).where(BrowserSession.expires_at <= now))
        session.add(BrowserSession(digest=_digest(secret), person=told, expires_at=now + SECONDS))
    return secret


def find(engine: Engine, secret: str, now: int) -> Person | None:
    """Whose session it is; None when nobody's, ended or expired."""
    if not _FORM.fullmatch(secret):
        return None
    with reading(engine) as session:
        known = session.scalar(select(BrowserSession).where(BrowserSession.digest == _digest(secret)))
        if known is None or known.expires_at <= now:
            return None
        told = json.loads(known.person)
    # Sessions of earlier releases do not tell who vouched for them.
    return Person(told["subject"], told["user"], tuple(told["groups"]), told.get("issuer", ""))


def end(engine: Engine, secret: str) -> None:
    """End a session at once; nothing happens when there is none."""
    if not _FORM.fullmatch(secret):
        return
    with writing(engine) as session:
        session.execute(delete(BrowserSession).where(BrowserSession.digest == _digest(secret)))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
