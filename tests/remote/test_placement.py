"""Which login node comes first: what the API says, in the words of the person's list."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.line import delayed
from bench.tls import certificate
from hpctools.budget.service import Service
from hpctools.cli import remote_cluster
from hpctools.errors import CommandError, UsageError
from hpctools.login.placement import Node, Policy, rank
from hpctools.remote import placement
from hpctools.remote.clusters import Cluster, load
from hpctools.remote.identities import Person
from hpctools.remote.names import is_host
from hpctools.remote.placement import login_nodes
from hpctools.remote.route import Road

NODES = ("login1.uni.edu", "login2.uni.edu")
OWN = NODES[::-1]
"""In nlp1's own order."""


class Api:
    """Answers one thing, and keeps what it was asked."""

    def __init__(self) -> None:
        self.status, self.answer, self.pause = 200, b"{}", 0.0
        self.came, self.over = threading.Event(), threading.Event()
        self.asked: list[tuple[str, str, Any]] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                api.asked.append((self.path, self.headers["Authorization"], json.loads(body)))
                api.came.set()
                self.send_response(api.status)
                self.send_header("Content-Length", str(len(api.answer)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    for place in range(len(api.answer)):
                        api.over.wait(api.pause)
                        self.wfile.write(api.answer[place : place + 1])

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    yield made
    made.over.set()
    made.server.shutdown()
    made.thread.join(10)
    made.server.server_close()


def token(file: Path, mode: int = 0o600, text: str = "secret") -> None:
    file.write_text(f"{text}\n")
    file.chmod(mode)


def order(api: Api, folder: Path, url: str = "", said: list[str] | None = None) -> tuple[str, ...]:
    token(folder / "token")
    environment = {"HPCTOOLS_API_TOKEN_FILE": str(folder / "token"), "HOME": str(folder)}
    cluster = Cluster("uni", NODES, api=url or f"http://127.0.0.1:{api.server.server_port}")
    told = [] if said is None else said
    return login_nodes(cluster, lambda: "nlp1", environment, told.append)


def test_the_best_one_comes_first_and_what_the_list_does_not_have_last(api: Api, tmp_path: Path) -> None:
    """A name that only the API has may be known here as another site's host."""
    api.answer = json.dumps({"node": "login1", "address": "login1", "others": ["login3.uni.edu"]}).encode()
    assert order(api, tmp_path) == ("login1.uni.edu", "login2.uni.edu", "login3.uni.edu")
    assert api.asked == [("/v1/login/sessions", "Bearer secret", {"user": "nlp1"})]


def test_bare_addresses_come_last_but_for_those_whose_node_the_list_has(api: Api, tmp_path: Path) -> None:
    """No known_hosts has them, and a host that is not known ends a submission."""
    answer = {"node": "login3", "address": "10.0.0.3", "others": ["login2", "login1", "login4.uni.edu"]}
    addresses = {"login2": "10.0.0.2", "login1": "10.0.0.1", "login4.uni.edu": "login4.uni.edu"}
    api.answer = json.dumps({**answer, "addresses": addresses}).encode()
    listed = ("login2.uni.edu", "login1.uni.edu")
    assert order(api, tmp_path) == (*listed, "login3", "login4.uni.edu", "10.0.0.3"), "its name comes first"


CLUSTERS = """
clusters:
  uni: {{login_nodes: [{nodes}], api: "{ours}"}}
  new/uni: {{login_nodes: [{nodes}], api: "{ours}/"}}
  lab: {{login_nodes: [{nodes}], api: "{theirs}"{more}}}
  plain: {nodes}
"""


@pytest.mark.parametrize(("other", "sent"), [(True, []), (False, ["Bearer their secret"])])
def test_a_token_in_the_environment_goes_to_no_other_site_than_the_environments(
    api: Api, tmp_path: Path, other: bool, sent: list[str]
) -> None:
    """An administrator's shell may have that of another site's budgets."""
    ours = f"http://127.0.0.1:{api.server.server_port}"
    api_there = "https://budget.other.edu" if other else f"{ours}/"
    environment = {"HPCTOOLS_API": api_there, "HPCTOOLS_API_TOKEN": "their secret", "HOME": str(tmp_path)}
    login_nodes(Cluster("uni", NODES, api=ours), lambda: "nlp1", environment, lambda said: None)
    assert [token for _, token, _ in api.asked] == sent


def test_no_site_is_sent_the_token_of_another_one(api: Api, tmp_path: Path) -> None:
    """Of several APIs each has one of its own; the usual one may be anybody's."""
    keys, file = tmp_path / ".hpctools", tmp_path / "clusters.yaml"
    keys.mkdir()
    for name in ("token", "token-uni", "lab.key", "token-new_uni", "token-new%2Funi"):
        token(keys / name, text=f"{name} secret")
    ours, environment = f"http://127.0.0.1:{api.server.server_port}", {"HOME": str(tmp_path)}

    def told(cluster: str, theirs: str, more: str = "") -> list[str]:
        file.write_text(CLUSTERS.format(nodes="login1", ours=ours, theirs=theirs, more=more))
        api.asked.clear()
        login_nodes(load(file).known[cluster], lambda: "nlp1", environment, lambda said: None)
        return [sent for _, sent, _ in api.asked]

    other = f"{ours}/lab"
    assert told("uni", ours) == told("lab", ours) == ["Bearer token secret"]
    assert told("uni", other) == ["Bearer token-uni secret"]
    assert told("new/uni", other) == ["Bearer token-new%2Funi secret"], "no other name has the same file"
    assert told("lab", other) == told("plain", other) == []
    assert told("lab", other, ", token: ~/.hpctools/lab.key") == ["Bearer lab.key secret"]
    assert told("lab", ours, f", token: {keys}/lab.key") == ["Bearer lab.key secret"]


def first(user: str, nodes: tuple[str, ...]) -> str:
    """Where somebody goes whose cluster names no API."""
    found = login_nodes(Cluster("uni", nodes), lambda: user, {}, lambda told: None)
    assert sorted(found) == sorted(nodes)
    return found[0]


def test_without_an_api_each_person_has_an_order_of_their_own() -> None:
    """That of hp-login and the service, so that not all meet on the list's first node; whatever its order."""
    people = [f"nlp{number}" for number in range(200)]
    went = [first(user, NODES) for user in people]
    assert [first(user, NODES[::-1]) for user in people] == went
    assert 70 < went.count(NODES[0]) < 130
    assert went == [
        NODES[0] if rank(user, [Node("login1"), Node("login2")], Policy())[0].name == "login1" else NODES[1]
        for user in people
    ]


def test_nobody_is_asked_who_they_are_where_there_is_one_node() -> None:
    """ssh would be asked, which takes its time."""
    assert login_nodes(Cluster("uni", NODES[:1]), lambda: pytest.fail("asked"), {}, print) == NODES[:1]


@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (503, b"{}", "gives no answer that makes sense (status 503)"),
        (
            503,
            b'{"detail": "No node has told of itself."}',
            "names no login node: No node has told of itself",
        ),
        (200, b"nonsense", "gives no answer that makes sense (status 200)"),
        (200, b"[]", "gives no answer that makes sense (status 200)"),
        (200, b"[" * 9000, "gives no answer that makes sense (status 200)"),
        (
            401,
            b'{"detail": "This token\\u001b is not known."}',
            r"refuses the question (401): This token\x1b is not known",
        ),
        (403, b"{}", "gives no answer that makes sense (status 403)"),
        (403, b'{"detail": "Not yours."}', "refuses the question (403): Not yours"),
        (200, b'{"node": "-oX=y", "others": ["a b"]}', ""),
        (200, b'{"node": "", "others": [["a"], {"b": 1}], "addresses": {"a": "10.0.0.1"}}', ""),
    ],
)
def test_an_api_that_makes_no_sense_keeps_nobody_from_working_and_is_told(
    api: Api, tmp_path: Path, status: int, answer: bytes, why: str
) -> None:
    api.status, api.answer = status, answer
    said: list[str] = []
    assert order(api, tmp_path, said=said) == OWN
    assert said == ([told(api, why)] if why else [])


def told(api: Api, why: str) -> str:
    host = f"127.0.0.1:{api.server.server_port}"
    return f"the site's API ({host}) {why}; login nodes are tried in your own order"


def test_an_api_that_nobody_listens_for_is_told(tmp_path: Path) -> None:
    gone = Api()
    gone.server.shutdown()  # who still waits for the socket keeps it open
    gone.thread.join(10)
    gone.server.server_close()
    said: list[str] = []
    assert order(gone, tmp_path, said=said) == OWN
    assert said == [told(gone, "cannot be asked: Connection refused")]


def test_a_certificate_that_does_not_hold_is_told(api: Api, tmp_path: Path) -> None:
    """It was passed over without a word, and nobody knew why the site's order did not count."""
    made = certificate(tmp_path)
    api.server.socket = made.context(ssl.TLSVersion.TLSv1_3).wrap_socket(
        api.server.socket, server_side=True, do_handshake_on_connect=False
    )
    said: list[str] = []
    assert order(api, tmp_path, f"https://127.0.0.1:{api.server.server_port}", said) == OWN
    why = "shows a certificate that does not hold here: "
    assert [text.replace("self signed", "self-signed") for text in said] == [
        told(api, f"{why}self-signed certificate ($SSL_CERT_FILE may name its authority)")
    ]
    assert api.asked == [], "it was given the token"


def test_without_paramiko_nobody_is_asked(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_cluster, "find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "paramiko", raising=False)
    cluster = Cluster("uni", NODES, user="nlp1", api=f"http://127.0.0.1:{api.server.server_port}")
    with (
        pytest.raises(CommandError, match="needs paramiko"),
        remote_cluster.session(cluster, "hp-submit"),
    ):
        pass
    assert not api.came.is_set()


def test_why_no_node_is_named_is_told_and_sshd_has_the_last_word(api: Api, tmp_path: Path) -> None:
    why = "nlp1: you have 2 sessions on the login nodes, and the limit is 2:\n  8: \x1b[31mlogin2"
    api.status, api.answer = 409, json.dumps({"status": 409, "detail": why}).encode()
    said: list[str] = []
    assert order(api, tmp_path, said=said) == OWN
    assert said == [f"the site's API names no login node: {why.replace(chr(27), chr(92) + 'x1b')}"]


def test_an_answer_that_comes_a_byte_at_a_time_is_not_waited_for(api: Api, tmp_path: Path) -> None:
    """Each of them comes in time, all together do not."""
    api.answer, api.pause = json.dumps({"node": "login2.uni.edu", "others": []}).encode(), 0.2
    begun = time.monotonic()
    said: list[str] = []
    assert order(api, tmp_path, said=said) == OWN
    assert time.monotonic() - begun < 5
    assert said == [told(api, "did not answer in time")]


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_an_answer_over_a_long_line_is_not_lost(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: ssl.TLSVersion
) -> None:
    """150 ms there and back, all in twice the time, since other tests may keep this machine busy.

    The line delays words; what a connection takes is waited for here.
    """
    connect, seconds = socket.create_connection, 2 * 0.15
    api.answer = json.dumps({"node": "login1", "others": ["login2"]}).encode()
    made = certificate(tmp_path)
    api.server.socket = made.context(newest).wrap_socket(
        api.server.socket, server_side=True, do_handshake_on_connect=False
    )

    def connected(*words: Any, **named: Any) -> socket.socket:
        time.sleep(seconds)
        return connect(*words, **named)

    monkeypatch.setenv("SSL_CERT_FILE", str(made.authorities))
    monkeypatch.setattr(placement, "SECONDS", 2 * placement.SECONDS)
    monkeypatch.setattr(socket, "create_connection", connected)
    said: list[str] = []
    with delayed(api.server.server_port, seconds / 2, connecting=0) as line:
        found = order(api, tmp_path, f"https://127.0.0.1:{line.port}", said)
    assert (found, said) == (NODES, [])
    assert line.round_trips == (4 if newest is ssl.TLSVersion.TLSv1_2 else 3)


def test_the_answer_is_on_its_way_while_paramiko_is_loaded(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loading() -> Road:
        assert api.came.wait(10), "the service was not asked yet"
        return Road(None, Person(None))

    token(tmp_path / "token")
    monkeypatch.setenv("HPCTOOLS_API_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setattr(remote_cluster, "road", loading)
    api.answer = b'{"node": "login1", "others": ["login2"]}'
    cluster = Cluster("uni", NODES, user="nlp1", api=f"http://127.0.0.1:{api.server.server_port}")
    with remote_cluster.session(cluster, "hp-submit") as found:
        assert found.nodes == NODES


def test_a_token_goes_nowhere_in_the_clear(api: Api, tmp_path: Path) -> None:
    said: list[str] = []
    assert order(api, tmp_path, "http://api.uni.example", said) == OWN
    assert api.asked == []
    assert said == [not_asked("a token is not sent to http://api.uni.example; use https://")]


def not_asked(why: str) -> str:
    return f"the site's API is not asked: {why}; login nodes are tried in your own order"


def unasked(api: Api, folder: Path, stated: str = "", **environment: str) -> list[str]:
    """What is said of an API that is not asked."""
    url = f"http://127.0.0.1:{api.server.server_port}"
    cluster = Cluster("uni", NODES, api=url, token=stated)
    said: list[str] = []
    given = {"HOME": str(folder), **environment}
    assert login_nodes(cluster, lambda: "nlp1", given, said.append) == OWN
    assert api.asked == []
    return said


def test_a_token_that_is_of_no_use_is_told(api: Api, tmp_path: Path) -> None:
    """A mistyped name, or a file that others read, was passed over: nobody knew why the API did nothing."""
    missing = f"cannot read the token in {tmp_path}/no.key: No such file or directory"
    lacks = not_asked(f"{missing}; ask your administrator for one (mode 0600)")
    assert unasked(api, tmp_path, "~/no.key") == [lacks]
    assert unasked(api, tmp_path, HPCTOOLS_API_TOKEN_FILE=f"{tmp_path}/no.key") == [lacks]
    (tmp_path / ".hpctools").mkdir()
    usual = tmp_path / ".hpctools/token"
    token(usual, 0o640)
    open_to_all = not_asked(f"others can read the token in {usual}; chmod 600 {usual}")
    assert unasked(api, tmp_path) == [open_to_all]
    token(usual, text="")
    empty = not_asked(f"there is no token in {usual}; ask your administrator for one")
    assert unasked(api, tmp_path) == [empty]


def test_who_has_no_token_and_names_none_is_told_nothing(api: Api, tmp_path: Path) -> None:
    """The site may write `api` into a file for all; several APIs have places of their own for theirs."""
    assert unasked(api, tmp_path) == []
    elsewhere = {"HPCTOOLS_API_TOKEN_FILE": f"{tmp_path}/another-sites"}
    assert unasked(api, tmp_path, "~/.hpctools/token-uni", **elsewhere) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("clusters: [", "is no YAML"),
        ("clusters: {uni: {login_nodes: []}}", "login_nodes is a list of hosts"),
        ("clusters: {uni: {login_nodes: [-oProxyCommand=x]}}", "'-oProxyCommand=x' is no host"),
        ("clusters: {uni: [a, me@b]}", "login_nodes: 'me@b' is no host; who logs in is `user`"),
        ("clusters: {uni: {login_nodes: [a], password: x}}", "clusters.uni may have .*, and not password"),
        ("clusters: {no: a}", "False is no cluster's name.* need quotes"),
        (
            "clusters: {uni: {login_nodes: a, user: 7}}",
            "clusters.uni.user is no plain text; numbers need quotes",
        ),
        ("clusters: {uni: a}\ndefault: other", "is none of its clusters"),
        ("clusters: {uni: {login_nodes: a, user: -x}}", "clusters.uni.user is no plain text"),
        ("hosts: {}", "its keys are"),
        ("clusters: {uni: a}\ndefault: [uni]", "is none of its clusters"),
        ("clusters: {uni: a}\ndefault: {uni: a}", "is none of its clusters"),
        ("clusters: {uni: a}\ndefault: 2026-02-31", "is no YAML: day is out of range"),
        ("[" * 5000, "lie too deep"),
        (
            "clusters:\n  uni: a\n  other: b\n  uni: c\n",
            "clusters.uni stands in line 2 and again in line 4; keep one",
        ),
        ("clusters: {uni: a}\nclusters: {uni: b}", "clusters stands in line 1 and again in line 2"),
        ("clusters:\n  uni:\n    user: me\n    user: you", "uni.user stands in line 3 and again in line 4"),
        ("clusters: {7: a, '7': b}", "clusters.7 stands in line 1 and again in line 1"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=why):
        load(path)


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        ("clusters: {uni: a}\ndefault:\n", ""),
        ("clusters: {uni: a}", ""),
        ("clusters: {7: a}\ndefault: 7", "7"),
    ],
)
def test_the_usual_cluster_may_be_nobody_or_a_number(tmp_path: Path, text: str, usual: str) -> None:
    """`default:` with nothing behind it was a host called None."""
    path = tmp_path / "clusters.yaml"
    path.write_text(text)
    assert load(path).usual == usual


def test_what_a_cluster_takes_over_from_another_is_no_second_entry(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text("clusters:\n  a: &a {login_nodes: x, user: me}\n  b: {<<: *a, user: you}\n")
    assert load(path).find("b") == Cluster("b", ("x",), "you")


def test_a_cluster_is_a_name_or_a_host(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"
    assert load(path).find("login9") == Cluster("login9", ("login9",))
    path.write_text(
        "clusters:\n  uni: [a, b]\n  other: {login_nodes: c, user: me, command: /opt/hp-submit}\n"
        "default: uni\n"
    )
    found = load(path)
    assert (found.find("uni"), found.usual) == (Cluster("uni", ("a", "b")), "uni")
    assert found.find("other") == Cluster("other", ("c",), "me", "/opt/hp-submit")
    with pytest.raises(UsageError, match="nor a host"):
        found.find("-oProxyCommand=x")


SERVICE = Service("https", "api.uni.edu", "", "secret")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["-F", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(word=st.sampled_from(["node", "address", "others", "addresses", "detail", ""]), value=VALUES)
@pytest.mark.parametrize("status", [201, 409])
def test_whatever_is_answered_only_hosts_come_of_it(status: int, word: str, value: Any) -> None:
    known = {
        "node": "login3",
        "address": "login3.uni.edu",
        "others": ["login2"],
        "addresses": {"login2": "10.0.0.2"},
    }
    answer = {**known, word: value} if word else value
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(placement, "find_service", lambda environment, where: SERVICE)
        patched.setattr(placement, "_answered", lambda source, user, step: (status, answer))
        found = login_nodes(Cluster("uni", NODES, api="https://api"), lambda: "u", {}, told.append)
    assert set(NODES) <= set(found)
    assert all(is_host(each) for each in found)
    assert all(line.isprintable() for text in told for line in text.split("\n"))
