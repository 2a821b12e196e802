"""Signing in behind a real HAProxy that speaks TLS: who is believed, and what browsers are told."""

from __future__ import annotations

import datetime
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from ipaddress import IPv4Address
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from api.app import create_app
from api.settings import Settings
from hpctools.slurm.run import start

pytestmark = pytest.mark.system

_LIMIT = 60.0
_CONFIG = """
defaults
  mode http
  option forwardfor
  timeout connect 10s
  timeout client 60s
  timeout server 60s
frontend budgets
  bind 127.0.0.1:{port} ssl crt {pem}
  http-request set-header X-Forwarded-Proto https
  default_backend service
backend service
  server one 127.0.0.1:{behind}
"""


def certificate(path: Path) -> Path:
    """A key and a certificate of its own for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "budgets")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass(frozen=True)
class Site:
    """The service behind its proxy."""

    port: int
    behind: int
    pem: Path

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: str = "") -> HTTPResponse:
        """Through the proxy, as a browser that knows its certificate."""
        context = ssl.create_default_context(cafile=str(self.pem))
        return _asked(
            HTTPSConnection("127.0.0.1", self.port, timeout=_LIMIT, context=context),
            method,
            path,
            headers,
            body,
        )

    def past(self, path: str, headers: Mapping[str, str]) -> HTTPResponse:
        """Past the proxy, as somebody on the same machine or network."""
        return _asked(HTTPConnection("127.0.0.1", self.behind, timeout=_LIMIT), "GET", path, headers, "")


def _asked(connection: Any, method: str, path: str, headers: Mapping[str, str], body: str) -> HTTPResponse:
    form = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
    connection.request(method, path, body or None, {"Accept": "text/html", **form, **headers})
    answer: HTTPResponse = connection.getresponse()
    answer.read()
    connection.close()
    return answer


@pytest.fixture
def behind_proxy(
    tmp_path: Path, sqlite_service: Any, site_path: Path, campus: Any, now: int
) -> Iterator[Callable[[str], Site]]:
    program = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if program is None:
        pytest.fail("HAProxy is missing: apt-get install --no-install-recommends haproxy")
    secret = tmp_path / "secret"
    secret.write_text("s3cret:with/signs")
    settings = Settings(
        database_url=sqlite_service.engine.url.render_as_string(),
        site=site_path,
        reconcile_every=0,
        watch_every=0,
        oidc_issuer=campus.url,
        oidc_audience="budgets",
        oidc_username_claim="uid",
        oidc_client_id="budgets-web",
        oidc_client_secret_file=secret,
    )
    ends: list[Callable[[], None]] = []

    def make(trusted: str) -> Site:
        app = create_app(settings, clock=lambda: now)
        listener = socket.create_server(("127.0.0.1", 0))
        # As `hpctools-api serve` does it.
        config = uvicorn.Config(app, log_level="warning", proxy_headers=True, forwarded_allow_ips=trusted)
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        site = Site(free_port(), listener.getsockname()[1], certificate(tmp_path / "site.pem"))
        (tmp_path / "haproxy.cfg").write_text(
            _CONFIG.format(port=site.port, pem=site.pem, behind=site.behind)
        )
        with (tmp_path / "log").open("wb") as log:
            proxy = start([program, "-db", "-f", str(tmp_path / "haproxy.cfg")], stdout=log, stderr=log)

        def end() -> None:
            proxy.terminate()
            proxy.wait(20)
            server.should_exit = True
            thread.join(20)

        ends.append(end)
        _await(site)
        return site

    yield make
    for end in ends:
        end()


def _await(site: Site) -> None:
    until = time.monotonic() + _LIMIT
    while True:
        try:
            assert site.ask("GET", "/livez", {}).status == 200
        except (OSError, AssertionError):
            assert time.monotonic() < until, "HAProxy does not answer"
            time.sleep(0.05)
        else:
            return


def cookies(answer: HTTPResponse) -> dict[str, str]:
    found = [each.split(";")[0].partition("=") for each in answer.headers.get_all("Set-Cookie") or []]
    return {name: value for name, _, value in found}


def test_signing_in_through_the_proxy(behind_proxy: Callable[[str], Site], campus: Any) -> None:
    site = behind_proxy("127.0.0.1")
    begun = site.ask("GET", "/login/oidc?next=/alerts", {})
    asked = parse_qs(urlsplit(begun.headers["Location"]).query)
    assert asked["redirect_uri"] == [f"https://127.0.0.1:{site.port}/login/oidc/callback"]
    assert "; Secure" in begun.headers["Set-Cookie"]
    back = campus.authorize(urlsplit(begun.headers["Location"]).query)
    flow = urlencode(cookies(begun)).replace("%25", "%").replace("&", "; ")
    path = back.removeprefix(f"https://127.0.0.1:{site.port}")
    ended = site.ask("GET", path, {"Cookie": flow})
    assert (ended.status, ended.headers["Location"]) == (303, "/alerts")
    assert all("; Secure" in each for each in ended.headers.get_all("Set-Cookie") if "Max-Age=0" not in each)
    session = {"Cookie": f"hpctools_token={cookies(ended)['hpctools_token']}"}
    assert site.ask("GET", "/alerts", session).status == 200
    # Its own forms are taken, whose Origin is the proxy's address; others are not.
    here, elsewhere = f"https://127.0.0.1:{site.port}", "https://evil.example"
    assert site.ask("POST", "/logout", {**session, "Origin": elsewhere}).status == 403
    assert site.ask("POST", "/logout", {**session, "Origin": here}).status == 303
    assert site.ask("GET", "/alerts", session).headers["Location"] == "/login?next=%2Falerts"


def test_what_others_forward_is_not_believed(behind_proxy: Callable[[str], Site]) -> None:
    """With another proxy trusted, neither ours nor who comes past it can say what the scheme is."""
    site = behind_proxy("192.0.2.7")
    forged = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"}
    for answer in (site.ask("GET", "/login/oidc", {}), site.past("/login/oidc", forged)):
        asked = parse_qs(urlsplit(answer.headers["Location"]).query)
        assert asked["redirect_uri"][0].startswith("http://127.0.0.1:")
        assert "; Secure" not in answer.headers["Set-Cookie"]
