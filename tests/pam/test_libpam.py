"""The real libpam on random stacks, with ours and without: what we add changes nothing for administrators,
and takes from others exactly what it should."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pam import roles
from pam.rewrite import Additions, rewrite
from pam.settings import Settings
from tests.pam import private_pam
from tests.pam.stacks import reader

pytestmark = pytest.mark.system  # mount namespaces need root
CODES = ("success", "ignore", "perm_denied", "auth_err", "new_authtok_reqd", "user_unknown")
CONTROLS = ("required", "requisite", "sufficient", "optional", "[success=ok perm_denied=die default=ignore]")


def ask(folder: Path, cases: list[Mapping[str, Any]]) -> list[list[int]]:
    done = private_pam.run(
        folder, [sys.executable, str(Path(__file__).with_name("libpam_cases.py"))], json.dumps(cases)
    )
    assert done.returncode == 0, done.stderr
    answers: list[list[int]] = json.loads(done.stdout)
    return answers


def stack(chance: random.Random, kind: str, escape: str) -> dict[str, str]:
    """A random stack of one type whose modules answer whatever; `escape` stands for pam_systemd.so."""

    def rule(jumps: bool) -> str:
        jump = f"[success={chance.randint(1, 3)} default=ignore]"
        control = jump if jumps and chance.random() < 0.3 else chance.choice(CONTROLS)
        module = escape if chance.random() < 0.25 else "pam_debug.so"
        option = "acct" if kind == "account" else "open_session"
        return f"{kind} {control} {module} {option}={chance.choice(CODES)}"

    def line() -> str:
        way = chance.random()
        return {0: f"{kind} include case-a", 1: f"{kind} substack case-b"}.get(int(way * 8), rule(True))

    top = [line() for _ in range(chance.randint(1, 7))]
    return {
        "case-svc": "\n".join([*top, *[f"{kind} optional pam_permit.so"] * 3, ""]),
        "case-a": "".join(f"{rule(False)}\n" for _ in range(chance.randint(1, 3))),
        "case-b": "".join(f"{rule(False)}\n" for _ in range(chance.randint(1, 3))),
    }


def as_service(files: Mapping[str, str], additions: Additions) -> dict[str, str]:
    """The stack with ours, as another service beside it."""
    done = rewrite("case-svc", reader(files), additions)
    return {"case-new": done.text, **done.copies}


def test_account(tmp_path: Path) -> None:
    """Administrators get the answer that they got before; others get none but a refusal."""
    chance = random.Random(1)
    additions = roles.additions("closed", Settings(users=("daemon",)), roles.Place("case-new", "/p"))
    cases: list[Mapping[str, Any]] = []
    for _ in range(25):
        files = stack(chance, "account", "pam_debug.so")
        files |= as_service(files, additions)
        questions = [
            (s, u, "account") for u in ("root", "daemon", "nobody") for s in ("case-svc", "case-new")
        ]
        cases.append({"files": files, "ask": questions})
    answers = ask(tmp_path, cases)
    for case, (root, new_root, daemon, new_daemon, _, nobody) in zip(cases, answers, strict=True):
        assert (root, daemon) == (new_root, new_daemon), case["files"]
        assert nobody != 0, case["files"]
    assert {0} < {codes[0] for codes in answers}  # the stacks are of many kinds


def test_session(tmp_path: Path) -> None:
    """Modules that move sessions answer for administrators as before, and are as if not there for others."""
    chance = random.Random(1)
    escape = tmp_path / "pam_systemd.so"
    shutil.copy(private_pam.module("pam_debug.so"), escape)
    guard = roles.additions(
        "compute", Settings(users=("daemon",)), roles.Place("case-new", "/p", "/a.so")
    ).guard
    cases: list[Mapping[str, Any]] = []
    for _ in range(25):
        files = stack(chance, "session", str(escape))
        files |= as_service(files, Additions("test", ("account\trequired\tpam_permit.so",), guard))
        absent = {
            name.replace("case-", "none-"): "\n".join(
                map(without(str(escape)), text.replace("case-", "none-").split("\n"))
            )
            for name, text in files.items()
            if name in ("case-svc", "case-a", "case-b")
        }
        questions = [
            ("case-svc", "root"),
            ("case-new", "root"),
            ("case-svc", "daemon"),
            ("case-new", "daemon"),
        ]
        questions += [("case-new", "nobody"), ("none-svc", "nobody")]
        cases.append({"files": files | absent, "ask": [(*question, "session") for question in questions]})
    answers = ask(tmp_path, cases)
    for case, (root, new_root, daemon, new_daemon, nobody, none) in zip(cases, answers, strict=True):
        assert (root, daemon, nobody) == (new_root, new_daemon, none), case["files"]
    assert {0} < {codes[0] for codes in answers}
    assert [codes[4] for codes in answers] != [codes[0] for codes in answers]


def without(escape: str) -> Any:
    """A rule that does nothing in the place of each that calls a module."""
    return lambda line: "session [default=ignore] pam_permit.so" if escape in line else line
