"""The ways on which alerts leave: mail, Amazon SNS, webhooks."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import json
import smtplib
import socket
import ssl
from contextlib import closing
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any
from urllib.parse import urlsplit

from api.services.delivery import DeliveryError, Message

SECONDS = 10.0
LARGEST_ANSWER = 1 << 16


@dataclass(frozen=True)
class Mail:
    """A mail relay.

    Attributes:
        host, port: the relay; it is spoken to in TLS from the moment it offers that (STARTTLS).
        sender: the address that messages come from.
    """

    host: str
    port: int
    sender: str

    def send(self, message: Message) -> None:
        """Hand a mail to the relay; its Message-ID is the message's key.

        Raises:
            DeliveryError: the relay does not answer, or refuses.
        """
        try:
            with smtplib.SMTP(self.host, self.port, timeout=SECONDS) as relay:
                relay.ehlo()
                if relay.has_extn("starttls"):
                    relay.starttls(context=ssl.create_default_context())
                relay.send_message(self._mail(message))
        except (OSError, smtplib.SMTPException, ValueError) as error:
            raise DeliveryError(f"mail to {message.target}: {error}") from None

    def _mail(self, message: Message) -> EmailMessage:
        mail = EmailMessage()
        mail["From"], mail["To"] = self.sender, message.target
        mail["Subject"] = f"Budget of {message.body['account']}: {message.body['threshold_percent']} %"
        mail["Message-ID"] = f"<{message.key}@{self.sender.rpartition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(f"{message.body['text']}\n")
        return mail


@dataclass(frozen=True)
class Sns:
    """Amazon SNS; finds credentials as every AWS program does."""

    def send(self, message: Message) -> None:
        """Publish to a topic; the key is an attribute of the message.

        Raises:
            DeliveryError: AWS does not answer, or refuses.
        """
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            client: Any = boto3.client("sns", region_name=message.target.split(":")[3])
            client.publish(
                TopicArn=message.target,
                Subject=f"Budget of {message.body['account']}"[:100],
                Message=json.dumps(message.body, sort_keys=True),
                MessageAttributes={"key": {"DataType": "String", "StringValue": message.key}},
            )
        except (BotoCoreError, ClientError) as error:
            raise DeliveryError(f"SNS {message.target}: {error}") from None


@dataclass(frozen=True)
class Webhook:
    """Posts to an address of the site's, signed.

    Attributes:
        secret: signs the body: `X-Hpctools-Signature: sha256=HMAC`; unsigned when empty.
        inside: addresses of private networks and of this machine, and http, are allowed too.
        tls: None for the system's certificates.
    """

    secret: bytes = b""
    inside: bool = False
    tls: ssl.SSLContext | None = None

    def send(self, message: Message) -> None:
        """Post the message as JSON; only an answer of 2xx counts. Redirections are not followed.

        Raises:
            DeliveryError: the address is not allowed, does not answer, or refuses.
        """
        try:
            url = urlsplit(message.target)
            port = url.port or (443 if url.scheme == "https" else 80)
        except ValueError as error:
            raise DeliveryError(f"webhook {message.target}: {error}") from None
        if not url.hostname or url.scheme not in (("https", "http") if self.inside else ("https",)):
            raise DeliveryError(f"webhook {message.target}: only https is allowed")
        body = json.dumps(message.body, sort_keys=True).encode()
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        try:
            with closing(self._connect(url.scheme, url.hostname, port)) as connection:
                connection.request("POST", path, body, self._headers(message, body))
                answer = connection.getresponse()
                answer.read(LARGEST_ANSWER)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise DeliveryError(f"webhook {url.hostname}: {error}") from None
        if not 200 <= answer.status < 300:
            raise DeliveryError(f"webhook {url.hostname} answered {answer.status}")

    def _connect(self, scheme: str, host: str, port: int) -> http.client.HTTPConnection:
        """Connect to an address that was looked at, not to a name that may mean another one by then."""
        address = self._address(host, port)
        if scheme == "http":
            plain = http.client.HTTPConnection(host, port, timeout=SECONDS)
            plain.sock = socket.create_connection(address, timeout=SECONDS)
            return plain
        context = self.tls or ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)
        connection.sock = _encrypted(socket.create_connection(address, timeout=SECONDS), context, host)
        return connection

    def _address(self, host: str, port: int) -> tuple[str, int]:
        found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        allowed = [each for each in found if self.inside or ipaddress.ip_address(each).is_global]
        if len(allowed) != len(found):
            raise DeliveryError(f"webhook {host}: its address {found[0]} is inside, and that is not allowed")
        return allowed[0], port

    def _headers(self, message: Message, body: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Idempotency-Key": message.key}
        if self.secret:
            digest = hmac.new(self.secret, body, hashlib.sha256).hexdigest()
            headers["X-Hpctools-Signature"] = f"sha256={digest}"
        return headers


def _encrypted(raw: socket.socket, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(raw, server_hostname=host)
    except OSError:
        raw.close()
        raise
