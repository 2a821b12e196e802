"""An ssh-agent with the key of a FIDO token: one of software, whose signatures sshd checks as any token's."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KIND, APPLICATION = b"sk-ssh-ed25519@openssh.com", b"ssh:"
LIST, SIGN = 11, 13


def string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


class TokenAgent:
    """The agent.

    Attributes:
        touched: how often the token was asked to sign.
        refuses: it signs nothing.
        comment: of its key.
    """

    def __init__(self, path: Path) -> None:
        self.key = Ed25519PrivateKey.generate()
        self.blob = string(KIND) + string(self.key.public_key().public_bytes_raw()) + string(APPLICATION)
        self.touched = 0
        self.refuses = False
        self.comment = b"token"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    @property
    def public_line(self) -> str:
        """For authorized_keys."""
        return f"{KIND.decode()} {base64.b64encode(self.blob).decode()}\n"

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                with client, client.makefile("rwb") as stream:
                    while head := stream.read(4):
                        answer = self._answer(stream.read(struct.unpack(">I", head)[0]))
                        stream.write(string(answer))
                        stream.flush()

    def _answer(self, request: bytes) -> bytes:
        if request[0] == LIST:
            return b"\x0c" + struct.pack(">I", 1) + string(self.blob) + string(self.comment)
        assert request[0] == SIGN
        size = struct.unpack(">I", request[1:5])[0]
        data = request[5 + size :]
        data = data[4 : 4 + struct.unpack(">I", data[:4])[0]]
        self.touched += 1
        if self.refuses:
            return b"\x05"
        present = b"\x01" + struct.pack(">I", self.touched)
        signed = hashlib.sha256(APPLICATION).digest() + present + hashlib.sha256(data).digest()
        return b"\x0e" + string(string(KIND) + string(self.key.sign(signed)) + present)


@contextlib.contextmanager
def token_agent(path: Path) -> Iterator[TokenAgent]:
    """An agent at a socket."""
    made = TokenAgent(path)
    try:
        yield made
    finally:
        made.listener.shutdown(socket.SHUT_RDWR)
        made.thread.join(10)
        made.listener.close()
