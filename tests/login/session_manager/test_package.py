"""The zip of the Lambda function: the same bytes each time, and all that a Python needs beside boto3."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner

from hpctools.cli.main import hpctools
from hpctools.login.session_manager.package import HANDLER, function_zip, imports, sources
from tests.login.session_manager.test_session_manager import event
from tests.login.test_session_manager_stack import SECTION, TEMPLATE, properties

LAMBDA_HAS = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3", "six")
"""What Lambda's Python brings: boto3 and what it needs."""
CALL = """\
import json, sys
sys.path[:0] = sys.argv[1:3]
from {module} import {name}
print(json.dumps({name}(json.load(sys.stdin))))
tops = {{each.partition(".")[0] for each in sys.modules}}
print(json.dumps(sorted(tops & {{"pydantic", "yaml", "click", "typing_extensions"}})))
"""


def test_what_is_imported_is_found_and_what_is_for_checkers_is_not() -> None:
    text = b"""
import os, hpctools.errors
from hpctools.login import names
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from hpctools.site import Site
else:
    from hpctools.one import two
def later():
    from hpctools.login.haproxy import Server
"""
    assert sorted(imports(text)) == [
        "hpctools.errors", "hpctools.login", "hpctools.login.haproxy", "hpctools.login.haproxy.Server",
        "hpctools.login.names", "hpctools.one", "hpctools.one.two",
    ]  # fmt: skip


def test_it_has_the_handler_and_not_the_whole_house() -> None:
    found = sources(HANDLER)
    assert {"hpctools/__init__.py", "hpctools/cli/session_manager_lambda.py", "hpctools/errors.py"} <= set(
        found
    )
    assert not [
        path for path in found if path.startswith(("hpctools/site", "hpctools/conf", "hpctools/slurm"))
    ]
    assert f"{HANDLER}.handler" == properties("Function")["Handler"]


def test_it_is_as_small_as_the_page_says() -> None:
    found = re.search(r"a zip of less than (\d+) kB", SECTION)
    assert found is not None
    assert len(function_zip()) < int(found[1]) * 1000


def test_its_bytes_say_nothing_of_when_and_where_it_was_made() -> None:
    first = function_zip()
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        entries = archive.infolist()
    assert [each.filename for each in entries] == sorted(each.filename for each in entries)
    assert {
        (each.date_time, each.external_attr, each.create_system, each.compress_type) for each in entries
    } == {((1980, 1, 1, 0, 0, 0), 0o100644 << 16, 3, zipfile.ZIP_STORED)}
    made = f"from {function_zip.__module__} import function_zip as made"
    code = f"import hashlib; {made}; print(hashlib.sha256(made()).hexdigest())"
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert again.stdout.strip() == hashlib.sha256(first).hexdigest()


class Surroundings:
    """AWS's answers and the service's, on one port: it remembers who was asked what."""

    def __init__(self, granted: bool) -> None:
        self.asked: list[tuple[str, Any]] = []
        outer = self
        lease = {"granted": granted, "message": "nlp1: you have 4 sessions", "sessions": []}
        answers = {
            "secretsmanager.GetSecretValue": {"SecretString": "hpct_token\n"},
            "AmazonSSM.TerminateSession": {"SessionId": "uni-0a1b2c3d"},
            "AmazonSSM.DescribeSessions": {"Sessions": []},
        }

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                target = self.headers.get("X-Amz-Target", "")
                outer.asked.append((target or f"{self.path} {self.headers['Authorization']}", body))
                data = json.dumps(answers[target] if target else lease).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def end(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def around(request: pytest.FixtureRequest) -> Iterator[Surroundings]:
    made = Surroundings(getattr(request, "param", True))
    yield made
    made.end()


@pytest.fixture
def zipped(tmp_path: Path) -> tuple[str, str]:
    """The zip that the command makes, and a folder with no more than Lambda has beside Python."""
    brought = tmp_path / "brought"
    brought.mkdir()
    for name in LAMBDA_HAS:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        origin = Path(spec.origin)
        place = origin.parent if origin.name == "__init__.py" else origin
        (brought / place.name).symlink_to(place)
    done = CliRunner().invoke(hpctools, ["login", "function", "--out", str(tmp_path / "function.zip")])
    assert done.exit_code == 0, done.output
    return str(tmp_path / "function.zip"), str(brought)


def called(zipped: tuple[str, str], around: Surroundings, event: dict[str, Any]) -> Any:
    """What the handler answers in a fresh Python without our packages."""
    module, _, name = properties("Function")["Handler"].rpartition(".")
    environment = {
        "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_ENDPOINT_URL": around.address, "HPCTOOLS_API": around.address,
        "HPCTOOLS_API_TOKEN_SECRET": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:token",
        "HPCTOOLS_RUN_AS": '{"role/researcher": "nlp1"}', "HPCTOOLS_LOGIN_NODES": '{"i-0aaa111": "login-1"}',
        "HPCTOOLS_WHEN_UNREACHABLE": "open", "HPCTOOLS_NOTICE_SECONDS": "0",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", CALL.format(module=module, name=name), *zipped],
        input=json.dumps(event), env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer, others = done.stdout.splitlines()
    assert json.loads(others) == []
    return json.loads(answer)


@pytest.mark.parametrize(("around", "outcome"), [(True, "granted"), (False, "ended")], indirect=["around"])
def test_its_handler_takes_a_session_in(zipped: tuple[str, str], around: Surroundings, outcome: str) -> None:
    assert called(zipped, around, event()) == {"sessions": {"uni-0a1b2c3d": outcome}}
    secret, lease, *rest = around.asked
    assert secret[0] == "secretsmanager.GetSecretValue"
    told = (
        "/v1/login/leases Bearer hpct_token",
        {"node": "login-1", "claim": "uni-0a1b2c3d", "user": "nlp1", "kind": "ssm", "origin": "192.0.2.7"},
    )
    ended = ("AmazonSSM.TerminateSession", {"SessionId": "uni-0a1b2c3d"})
    assert [lease, *rest] == ([told] if outcome == "granted" else [told, told, ended])


def test_its_handler_sweeps(zipped: tuple[str, str], around: Surroundings) -> None:
    assert called(zipped, around, {"detail-type": "Scheduled Event"}) == {"sessions": {}}
    assert [each for each, _ in around.asked] == [
        "secretsmanager.GetSecretValue",
        "AmazonSSM.DescribeSessions",
    ]


def test_the_command_says_what_it_made_and_what_is_next(tmp_path: Path) -> None:
    words = ["login", "function", "--out", str(tmp_path / "a/function.zip")]
    for _ in range(2):
        done = CliRunner().invoke(hpctools, [*words, "--template", str(tmp_path / "function.yaml")])
        assert done.exit_code == 0
        made = (tmp_path / "a/function.zip").read_bytes()
        digest = hashlib.sha256(made).hexdigest()
        assert f"{len(made)} bytes, sha256 {digest}\n" in done.output
        assert f"s3://BUCKET/hpctools/session-limit-{digest[:12]}.zip\n" in done.output
    assert made == function_zip()
    assert (tmp_path / "function.yaml").read_text() == TEMPLATE.read_text()
    told = json.loads(CliRunner().invoke(hpctools, [*words, "--json"]).output)
    assert (told["sha256"], told["bytes"]) == (digest, len(made))
    assert [each.name for each in (tmp_path / "a").iterdir()] == ["function.zip"]


def test_a_pipe_gets_the_zip_and_nothing_else() -> None:
    words = [sys.executable, "-m", "hpctools.cli.main", "login", "function", "--out", "/dev/stdout"]
    assert subprocess.run(words, capture_output=True, timeout=120, check=True).stdout == function_zip()


def test_where_it_cannot_be_written_is_said(tmp_path: Path) -> None:
    assert CliRunner().invoke(hpctools, ["login", "function"]).exit_code == 2
    folder = CliRunner().invoke(hpctools, ["login", "function", "--out", str(tmp_path)])
    assert "it is a folder" in str(folder.exception) + folder.output
    (tmp_path / "file").write_text("")
    below = CliRunner().invoke(hpctools, ["login", "function", "--out", str(tmp_path / "file/x.zip")])
    assert "cannot write" in str(below.exception) + below.output
