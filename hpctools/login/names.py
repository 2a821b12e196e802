"""Names of people and sessions as the service takes them: one that it refuses costs a whole report."""

from __future__ import annotations

import re

EVERYBODYS = "ssm-user"
"""Whom Session Manager's sessions run as where nobody says whom (no Run As): several people, of whom none has
had too many."""
_NOT_IN_CLAIMS = re.compile(r"[^A-Za-z0-9._:-]")
_NOT_IN_USERS = re.compile(r"[^A-Za-z0-9_.@-]")


def claim_of(session: str) -> str:
    """A session's name; Session Manager's begin with people's names, which may have an @.

    >>> claim_of("anna@uni.example-0a1b2c3d"), claim_of("4711-88123")
    ('anna.uni.example-0a1b2c3d', '4711-88123')
    """
    found = _NOT_IN_CLAIMS.sub(".", session)[:120]
    return found if found[:1].isalnum() else f"s{found}"


def is_nameless(user: str) -> bool:
    """Whether `user_of` had a number only: nobody knew its name at that moment.

    >>> is_nameless("uid_12345"), is_nameless("nlp1")
    (True, False)
    """
    return re.fullmatch(r"uid_\d+", user) is not None


def user_of(account: str) -> str:
    """A Unix account; a number that nobody has a name for, and a directory's DOMAIN\\name, become names.

    >>> user_of("nlp1"), user_of("12345"), user_of("UNI\\\\anna")
    ('nlp1', 'uid_12345', 'UNI_anna')
    """
    found = _NOT_IN_USERS.sub("_", account)[:60]
    return found if re.match("[A-Za-z_]", found) else f"uid_{found}"
