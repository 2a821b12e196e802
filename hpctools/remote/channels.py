"""Channels of a connection: a command's beginning."""

from __future__ import annotations

import time

import paramiko
from paramiko.common import cMSG_CHANNEL_REQUEST

from hpctools.remote.transport import CheckedTransport

_FREE_SECONDS = 15.0
"""Until sshd has ended the session before, with `MaxSessions 1`: on its side Slurm is asked something yet."""


def opened(transport: CheckedTransport, seconds: float) -> paramiko.Channel:
    """A session; after another one as soon as the host has one to give: that may not be over there.

    Args:
        seconds: to wait for its answer.

    Raises:
        paramiko.SSHException: it gives none, or does not answer.
    """
    end = time.monotonic() + _FREE_SECONDS
    while True:
        try:
            channel = transport.open_session(timeout=seconds)
        except paramiko.ChannelException:
            if not transport.had_session or time.monotonic() > end:
                raise
            time.sleep(0.2)
        else:
            transport.had_session = True
            return channel


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
