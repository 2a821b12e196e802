"""Which sessions of Session Manager are somebody's session on the node, and which only carry bytes to it."""

from __future__ import annotations

from collections.abc import Collection

AWS_OWN = frozenset(
    {
        "AWS-StartSSHSession",
        "AWS-StartPortForwardingSession",
        "AWS-StartPortForwardingSessionToRemoteHost",
        "AWS-StartPortForwardingSessionToSocket",
    }
)
"""AWS's documents of the type Port: they run nothing as anybody on the node."""


def only_forwards(document: str, more: Collection[str] = ()) -> bool:
    """Whether a session of this document opens nothing on the node but a connection to a port.

    What answers at that port counts by itself: an ssh through it is sshd's session, which PAM sees.

    Args:
        document: its name or ARN; empty for the account's own shell.
        more: the site's own documents of that kind.

    >>> only_forwards("AWS-StartSSHSession"), only_forwards(""), only_forwards("uni-gpu-session")
    (True, False, False)
    """
    name = document.rpartition("/")[2]
    return name in AWS_OWN or name in more
