"""Alerts leave by real mail servers, SNS and web servers; whatever fails or is killed, they arrive."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import socketserver
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from email import message_from_bytes, policy
from pathlib import Path

import boto3
import pytest
from sqlalchemy import Engine, select

from api.db.budget_models import AlertAttempt, AlertMessage, BudgetAlert, BudgetVersion
from api.db.engine import connect, reading, writing
from api.db.migrate import upgrade
from api.services.alerts import listed
from api.services.channels import Mail, Sns, Webhook
from api.services.delivery import (
    LEASE_SECONDS,
    MOST_ATTEMPTS,
    Delivered,
    DeliveryError,
    Message,
    deliver,
    wait_after,
)
from hpctools.budget.month import day_of
from tests.web import Answer, Asked, serving

BODY = {"account": "nlp", "threshold_percent": 90, "text": "nlp has spent 900.00 of 1000.00 USD."}


def message(target: str, channel: str = "webhook", key: str = "k1") -> Message:
    return Message(1, channel, target, key, BODY)


def store(engine: Engine, channel: str, target: str, now: int) -> None:
    """An alert with one message."""
    with writing(engine) as session:
        version = BudgetVersion(
            account="nlp", effective=day_of(now), spec="{}", from_site=True, made_at=now, made_by="", why=""
        )
        session.add(version)
        session.flush()
        alert = BudgetAlert(
            version_id=version.id,
            period_first=day_of(now),
            threshold=90,
            kind="spent",
            account="nlp",
            at=now,
            currency="USD",
            allowed=Decimal(1000),
            reached=Decimal(900),
        )
        session.add(alert)
        session.flush()
        session.add(
            AlertMessage(
                alert_id=alert.id,
                channel=channel,
                target=target,
                key=f"k{alert.id}",
                body=json.dumps(BODY),
                created_at=now,
            )
        )


@dataclass
class Recorder:
    """A channel that fails so many times."""

    failures: int = 0
    got: list[Message] = field(default_factory=list)

    def send(self, message: Message) -> None:
        self.got.append(message)
        if len(self.got) <= self.failures:
            raise DeliveryError("not now")


@pytest.mark.parametrize(
    ("channel", "target"),
    [
        ("webhook", "https://hooks.example:99999/x"),
        ("webhook", "https://[hooks/x"),
        ("mail", "=?utf-8?q?=0a?=@uni.example"),
    ],
)
def test_an_address_that_is_none_keeps_no_other_message_back(
    engine: Engine, now: int, relay: MailServer, channel: str, target: str
) -> None:
    relayed = Mail("127.0.0.1", relay.server_address[1], "budgets@uni.example")
    recorder = Recorder()
    store(engine, channel, target, now)
    store(engine, "sns", "topic", now)
    channels = {"webhook": Webhook(), "mail": relayed, "sns": recorder}
    assert deliver(engine, channels, now) == Delivered(sent=1, failed=1)
    assert [each.target for each in recorder.got] == ["topic"]


# --- when it is tried --------------------------------------------------------------------------------------


def test_a_message_is_sent_once(engine: Engine, now: int) -> None:
    store(engine, "mail", "head@uni.example", now)
    recorder = Recorder()
    assert deliver(engine, {"mail": recorder}, now) == Delivered(sent=1)
    assert deliver(engine, {"mail": recorder}, now + 10**6) == Delivered()
    assert [(each.target, each.key, each.body) for each in recorder.got] == [("head@uni.example", "k1", BODY)]
    assert listed(engine, None)[0].deliveries == (("mail", "head@uni.example", "sent"),)


def test_what_fails_is_tried_again_after_longer_and_longer_waits(engine: Engine, now: int) -> None:
    store(engine, "mail", "head@uni.example", now)
    recorder, clock = Recorder(failures=3), now
    for attempt in (1, 2, 3):
        assert deliver(engine, {"mail": recorder}, clock) == Delivered(failed=1)
        assert deliver(engine, {"mail": recorder}, clock + wait_after(attempt) - 1) == Delivered()
        clock += wait_after(attempt)
    assert listed(engine, None)[0].deliveries == (("mail", "head@uni.example", "failed"),)
    assert deliver(engine, {"mail": recorder}, clock) == Delivered(sent=1)
    assert [wait_after(n) for n in (1, 2, 3, 10, 20)] == [60, 120, 240, 21600, 21600]
    days = sum(wait_after(n) for n in range(1, MOST_ATTEMPTS)) / 86_400
    assert 2.5 < days < 3.5  # "about three days" in docs/budgets.md


def test_in_the_end_it_is_given_up_and_stays_failed(engine: Engine, now: int) -> None:
    store(engine, "fax", "1234", now)
    for attempt in range(MOST_ATTEMPTS + 3):
        deliver(engine, {}, now + attempt * 10**5)
    with reading(engine) as session:
        attempts = session.scalars(select(AlertAttempt)).all()
    assert sum(each.state == "failed" for each in attempts) == MOST_ATTEMPTS
    assert attempts[-1].detail == "the service has no way to send by fax"


def test_two_services_at_once_send_it_once(engine: Engine, now: int) -> None:
    store(engine, "mail", "head@uni.example", now)
    inside, go = threading.Event(), threading.Event()

    class Slow(Recorder):
        def send(self, message: Message) -> None:
            inside.set()
            assert go.wait(30)
            super().send(message)

    slow, other = Slow(), Recorder()
    thread = threading.Thread(target=deliver, args=(engine, {"mail": slow}, now))
    thread.start()
    assert inside.wait(30)
    assert deliver(engine, {"mail": other}, now + LEASE_SECONDS - 1) == Delivered()
    go.set()
    thread.join(30)
    assert (len(slow.got), other.got) == (1, [])


KILLED = """
import sys
from api.db.engine import connect
from api.services.channels import Webhook
from api.services.delivery import deliver
deliver(connect(sys.argv[1]), {"webhook": Webhook(inside=True)}, int(sys.argv[2]))
"""


def test_killed_in_the_middle_it_arrives_all_the_same_and_says_that_it_is_the_same(
    tmp_path: Path, now: int, web: Web
) -> None:
    """kill -9 while the receiver has the request: after the lease it is sent again, with the same key."""
    url = f"sqlite:///{tmp_path}/store.sqlite"
    engine = connect(url)
    upgrade(engine)
    store(engine, "webhook", web.address, now)
    web.hold.clear()
    process = subprocess.Popen([sys.executable, "-c", KILLED, url, str(now)])
    assert web.arrived.wait(60)
    process.kill()
    assert process.wait(30) == -signal.SIGKILL
    web.hold.set()
    channels = {"webhook": Webhook(inside=True)}
    assert deliver(engine, channels, now + LEASE_SECONDS - 1) == Delivered()
    assert deliver(engine, channels, now + LEASE_SECONDS) == Delivered(sent=1)
    assert [headers["Idempotency-Key"] for headers, _ in web.got] == ["k1", "k1"]
    engine.dispose()


# --- mail --------------------------------------------------------------------------------------------------


class _Relay(socketserver.StreamRequestHandler):
    """SMTP as far as one mail needs it (RFC 5321)."""

    server: MailServer

    def handle(self) -> None:
        self._say("220 relay.example")
        while line := self.rfile.readline().decode().strip():
            word = line.split(" ")[0].upper()
            if word == "DATA":
                self._say("354 go on")
                self.server.got.append(b"".join(iter(self.rfile.readline, b".\r\n")))
                self._say("250 taken")
            elif word == "QUIT":
                self._say("221 bye")
                return
            else:
                self._say(self.server.answers.get(word, "250 relay.example"))

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


class MailServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        self.got: list[bytes] = []
        self.answers: dict[str, str] = {}


@pytest.fixture
def relay() -> Iterator[MailServer]:
    with MailServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def test_a_mail_arrives(relay: MailServer) -> None:
    mail = Mail("127.0.0.1", relay.server_address[1], "budgets@uni.example")
    mail.send(message("head@uni.example", "mail"))
    found = message_from_bytes(relay.got[0], policy=policy.default)
    assert {key: found[key] for key in ("From", "To", "Subject", "Message-ID", "Auto-Submitted")} == {
        "From": "budgets@uni.example",
        "To": "head@uni.example",
        "Subject": "Budget of nlp: 90 %",
        "Message-ID": "<k1@uni.example>",
        "Auto-Submitted": "auto-generated",
    }
    assert found.get_content().strip() == BODY["text"]


def test_a_relay_that_refuses_or_is_away_is_a_failure(relay: MailServer) -> None:
    port = relay.server_address[1]
    relay.answers["RCPT"] = "550 no such user"
    with pytest.raises(DeliveryError, match="no such user"):
        Mail("127.0.0.1", port, "budgets@uni.example").send(message("x@uni.example", "mail"))
    relay.server_close()
    with pytest.raises(DeliveryError, match="mail to"):
        Mail("127.0.0.1", 1, "budgets@uni.example").send(message("x@uni.example", "mail"))


# --- SNS ---------------------------------------------------------------------------------------------------


def test_an_alert_arrives_in_a_queue_that_listens_to_the_topic(aws: str) -> None:
    sns, sqs = (boto3.client(name, region_name="eu-central-1") for name in ("sns", "sqs"))
    topic = sns.create_topic(Name="budgets")["TopicArn"]
    queue = sqs.create_queue(QueueName="listener")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    Sns().send(message(topic, "sns"))
    told = json.loads(sqs.receive_message(QueueUrl=queue)["Messages"][0]["Body"])
    assert json.loads(told["Message"]) == BODY
    assert told["MessageAttributes"]["key"]["Value"] == "k1"
    with pytest.raises(DeliveryError, match="SNS"):
        Sns().send(message(topic.replace("budgets", "other"), "sns"))


# --- webhooks ----------------------------------------------------------------------------------------------


class Web:
    """A web server that keeps what is posted to it."""

    def __init__(self) -> None:
        self.address, self.status, self.got = "", 204, list[tuple[Mapping[str, str], bytes]]()
        self.hold, self.arrived = threading.Event(), threading.Event()
        self.hold.set()

    def answer(self, asked: Asked) -> Answer:
        self.got.append((asked.headers, asked.body))
        self.arrived.set()
        assert self.hold.wait(60)
        return Answer(self.status, headers={"Location": f"{self.address}/elsewhere"})


@pytest.fixture
def web() -> Iterator[Web]:
    found = Web()
    with serving(found.answer) as found.address:
        yield found
        found.hold.set()


def test_a_webhook_gets_signed_json(web: Web) -> None:
    Webhook(b"secret", inside=True).send(message(f"{web.address}/hook?x=1"))
    headers, body = web.got[0]
    assert json.loads(body) == BODY
    assert (
        headers["X-Hpctools-Signature"] == f"sha256={hmac.new(b'secret', body, hashlib.sha256).hexdigest()}"
    )
    assert headers["Idempotency-Key"] == "k1"


@pytest.mark.parametrize("status", [301, 307, 400, 500])
def test_only_2xx_counts_and_redirections_lead_nowhere(web: Web, status: int) -> None:
    web.status = status
    with pytest.raises(DeliveryError, match=f"answered {status}"):
        Webhook(inside=True).send(message(web.address))
    assert len(web.got) == 1


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("http://hooks.example/x", "only https"),
        ("ftp://hooks.example/x", "only https"),
        ("https:///x", "only https"),
        ("https://127.0.0.1/x", "inside"),
        ("https://[::1]/x", "inside"),
        ("https://localhost/x", "inside"),
        ("https://169.254.169.254/latest/meta-data", "inside"),
        ("https://10.1.2.3/x", "inside"),
    ],
)
def test_nobody_is_sent_inside(target: str, expected: str) -> None:
    with pytest.raises(DeliveryError, match=expected):
        Webhook(b"secret").send(message(target))


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[tuple[Web, Callable[[], ssl.SSLContext]]]:
    """A web server in TLS with a certificate of its own for localhost, and a context that trusts it."""

    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-keyout", key, "-out", certificate, "-days", "1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
        ],
        check=True,
        capture_output=True,
        timeout=30,
        env=os.environ,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    found = Web()
    with serving(found.answer, context) as found.address:
        yield found, lambda: ssl.create_default_context(cafile=str(certificate))


def test_https_asks_for_a_certificate_of_that_name(tls: tuple[Web, Callable[[], ssl.SSLContext]]) -> None:
    web, trusting = tls
    named = web.address.replace("127.0.0.1", "localhost")
    Webhook(inside=True, tls=trusting()).send(message(f"{named}/"))
    assert len(web.got) == 1
    with pytest.raises(DeliveryError, match="IP address mismatch"):
        Webhook(inside=True, tls=trusting()).send(message(f"{web.address}/"))
    with pytest.raises(DeliveryError, match="CERTIFICATE_VERIFY_FAILED"):
        Webhook(inside=True).send(message(f"{named}/"))
