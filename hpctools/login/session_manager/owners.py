"""Whose a Session Manager session is: from who asked AWS to the Unix account that Run As gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_ROLE = re.compile(r"arn:aws[a-z-]*:sts::\d{12}:assumed-role/(?P<role>[\w+=,.@-]+)/(?P<session>[\w+=,.@-]+)")
_USER = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:user/(?:[\w+=,.@/-]*/)?(?P<user>[\w+=,.@-]+)")
_SINGLE_SIGN_ON = "AWSReservedSSO_"
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")


@dataclass(frozen=True)
class Principal:
    """Who asked AWS.

    Attributes:
        kind: `role` or `user`.
        session: the name of an assumed role's session; with single sign-on the person's.
    """

    kind: str
    name: str
    session: str = ""

    @property
    def key(self) -> str:
        """As the site file names principals: `role/NAME` or `user/NAME`."""
        return f"{self.kind}/{self.name}"


def parse_owner(arn: str) -> Principal | None:
    """Who an ARN names, of a StartSession event or a session's Owner; None for anything else."""
    role = _ROLE.fullmatch(arn)
    if role is not None:
        return Principal("role", role["role"], role["session"])
    user = _USER.fullmatch(arn)
    return Principal("user", user["user"]) if user is not None else None


def unix_account(arn: str, stated: Mapping[str, str], tag_of: Callable[[Principal], str]) -> str:
    """The Unix account that somebody's sessions run as; empty when nobody knows.

    The order is Session Manager's: the tag of the principal. What the site file says of principals spares the
    question; single sign-on gives the tag to the session, where nobody can read it, and names the session
    after the person.

    Args:
        stated: accounts by principal (`identity.run_as.principals`).
        tag_of: the tag SSMSessionRunAs of a principal; empty when it has none.
    """
    principal = parse_owner(arn)
    if principal is None:
        return ""
    if principal.kind == "role" and principal.name.startswith(_SINGLE_SIGN_ON):
        found = principal.session.partition("@")[0].lower()
    else:
        found = stated.get(principal.key) or tag_of(principal)
    return found if _ACCOUNT.fullmatch(found) else ""
