"""What this machine calls the person who runs us; its directory may be away, and then nobody has a name."""

from __future__ import annotations

import getpass
import os
import pwd

from hpctools.errors import HpctoolsError


def by_uid() -> str:
    """The name of our uid, whatever the environment says.

    Raises:
        HpctoolsError: it has none.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise _nameless() from None


def by_login() -> str:
    """The name that the person goes by: of $LOGNAME and the like, else of our uid.

    Raises:
        HpctoolsError: there is none.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise _nameless() from None


def _nameless() -> HpctoolsError:
    return HpctoolsError(
        f"your uid {os.getuid()} has no name on this machine", "see `getent passwd`: is its directory there?"
    )
