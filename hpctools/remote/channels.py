"""Channels of a connection: a command's beginning."""

from __future__ import annotations

import time

import paramiko
from paramiko.common import cMSG_CHANNEL_REQUEST

_FREE_SECONDS = 5.0
"""Until sshd has ended the session before: with `MaxSessions 1` it refuses another one that long."""


def opened(transport: paramiko.Transport, seconds: float) -> paramiko.Channel:
    """A session, as soon as the host has one to give: the cluster's side of the one before may not be over.

    Args:
        seconds: to wait for its answer.

    Raises:
        paramiko.SSHException: it gives none, or does not answer.
    """
    end = time.monotonic() + _FREE_SECONDS
    while True:
        try:
            return transport.open_session(timeout=seconds)
        except paramiko.ChannelException:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def begin_command(channel: paramiko.Channel, line: str) -> None:
    """Start a command, and do not wait for sshd's yes: that comes before its first word, a round trip later.

    If it is a no, paramiko closes the channel.
    """
    message = paramiko.Message()
    message.add_byte(cMSG_CHANNEL_REQUEST)
    message.add_int(channel.remote_chanid)
    message.add_string("exec")
    message.add_boolean(True)
    message.add_string(line)
    channel.transport._send_user_message(message)
