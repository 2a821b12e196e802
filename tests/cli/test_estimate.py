"""hp-submit tells what a job costs and what is left, asks a person, and waits for nobody."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpctools.cli import estimate as module
from hpctools.cli.estimate import _cost
from hpctools.cli.hp_submit import main
from hpctools.errors import SubmitError
from hpctools.slurm.types import Partition
from hpctools.submit.estimate import Estimate, read_rates
from hpctools.submit.intent import read_intent, read_invocation
from hpctools.submit.policy_file import read_policy
from hpctools.submit.prices import Known
from hpctools.testing.slurm import FakeSlurm
from tests.cli.test_hp_submit import sbatch  # noqa: F401 - a fixture
from tests.web import Answer, Asked, serving

RATES = {
    "rates": [
        {
            "node_group": "reserved",
            "per_node_hour": "32.00",
            "currency": "USD",
            "day": "2026-11-20",
            "cpus": 96,
            "memory_mb": 1000000,
            "gpus": 8,
        }
    ],
    "partitions": {"nlp": ["reserved"]},
}
OUTLOOK = {"account": "nlp", "left": "100.5", "currency": "USD", "last": "2026-11-30"}
COSTS = (
    "hp-submit: costs about 64.00 USD if it runs to its time limit; "
    "100.50 USD left of nlp's budget until 2026-11-30"
)
JOB = ("-p", "nlp", "-A", "nlp", "--gpus=8", "-t", "2:00:00", "job.sh")


class Api:
    """The API on a free port."""

    def __init__(self) -> None:
        self.address = ""
        self.answers: dict[str, Any] = {"/v1/rates": RATES, "/v1/accounts/nlp/outlook": OUTLOOK}
        self.hold = threading.Event()
        self.hold.set()
        self.asked: list[str] = []

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked.path)
        assert self.hold.wait(60)
        found = self.answers.get(asked.path)
        return Answer(200, json.dumps(found).encode()) if found else Answer(404, b"{}")


@pytest.fixture
def api() -> Iterator[Api]:
    found = Api()
    with serving(found.answer) as found.address:
        yield found
        found.hold.set()


@pytest.fixture
def environment(api: Api, sbatch: Path) -> dict[str, str]:  # noqa: F811
    token = sbatch / "token"
    token.write_text("hpct_x")
    token.chmod(0o600)
    more = {"HPCTOOLS_API": api.address, "HPCTOOLS_API_TOKEN_FILE": str(token)}
    return {**os.environ, **more, "XDG_CACHE_HOME": str(sbatch / "cache")}


Done = subprocess.CompletedProcess[str]


def submit(environment: dict[str, str], *words: str, **more: str) -> Done:
    argv = [sys.executable, "-m", "hpctools.cli.hp_submit", *words]
    return subprocess.run(
        argv,
        env={**environment, **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def seen(done: Done) -> tuple[int, str]:
    return done.returncode, done.stderr.splitlines()[0] if done.stderr else ""


def filled(environment: dict[str, str], api: Api) -> None:
    """A first submission fills the cache, however late the answers come to it."""
    submit(environment, *JOB)
    end = time.monotonic() + 30
    while len(list(Path(environment["XDG_CACHE_HOME"]).rglob("*.json"))) < 2:
        assert time.monotonic() < end
        submit(environment, *JOB)


def test_without_a_terminal_it_tells_and_goes_on(environment: dict[str, str], api: Api) -> None:
    filled(environment, api)
    done = submit(environment, *JOB)
    assert seen(done) == (0, COSTS)
    assert "Submitted batch job 42" in done.stdout


def test_the_cache_is_the_users_own_and_saves_the_question(environment: dict[str, str], api: Api) -> None:
    filled(environment, api)
    asked = len(api.asked)
    assert seen(submit(environment, *JOB)) == (0, COSTS)
    assert len(api.asked) == asked
    files = list(Path(environment["XDG_CACHE_HOME"]).rglob("*.json"))
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert not any("hpct_x" in path.read_text() + str(path) for path in files)


def test_an_api_that_does_not_answer_keeps_nobody(environment: dict[str, str], api: Api) -> None:
    api.hold.clear()
    done = submit(environment, *JOB)
    assert (done.returncode, "costs" in done.stderr) == (0, False)
    api.hold.set()


def test_what_was_known_serves_when_the_api_is_away(environment: dict[str, str], api: Api) -> None:
    filled(environment, api)
    for path in Path(environment["XDG_CACHE_HOME"]).rglob("*.json"):
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    gone = {**environment}
    api.hold.clear()
    assert seen(submit(gone, *JOB)) == (0, f"{COSTS} (as of 2 h ago)")
    for path in Path(environment["XDG_CACHE_HOME"]).rglob("*.json"):
        os.utime(path, (time.time() - 8 * 86400, time.time() - 8 * 86400))
    assert "costs" not in submit(gone, *JOB).stderr


def test_a_site_may_refuse(environment: dict[str, str], api: Api) -> None:
    strict = {**environment, "HPCTOOLS_BUDGET": "refuse"}
    api.hold.clear()
    assert seen(submit(strict, *JOB)) == (
        1,
        "hp-submit: the budget service does not answer, and this site submits nothing without it; "
        "try again, or ask your administrator",
    )
    api.hold.set()
    api.answers["/v1/accounts/nlp/outlook"] = {**OUTLOOK, "left": "63.99"}
    filled(environment, api)
    refused = submit(strict, *JOB)
    assert (refused.returncode, "it is more than is left" in refused.stderr, refused.stdout) == (1, True, "")
    assert submit({**environment, "HPCTOOLS_BUDGET": "off"}, *JOB).stderr.count("hp-submit:") == 0
    without = {key: value for key, value in strict.items() if key != "HPCTOOLS_API"}
    assert submit(without, *JOB).returncode == 1


def test_dry_run_and_quiet_say_nothing_of_it(environment: dict[str, str], api: Api) -> None:
    filled(environment, api)
    for word in ("--dry-run", "--quiet", "--test-only"):
        assert "costs" not in submit(environment, word, *JOB).stderr


@pytest.mark.parametrize(
    ("answer", "submitted"), [("\n", True), ("y\n", True), ("n\n", False), ("q\n", False), ("\x04", False)]
)
def test_a_person_is_asked(environment: dict[str, str], api: Api, answer: str, submitted: bool) -> None:
    filled(environment, api)
    given = Path(environment["KEEP"]) / "argv"
    given.unlink()
    code, screen = at_a_terminal(environment, *JOB, type_in=answer)
    assert COSTS in screen
    assert "Submit? [Y/n]" in screen
    assert (code, given.exists()) == (0 if submitted else 1, submitted)


def test_yes_asks_nothing_and_is_no_option_of_sbatch(environment: dict[str, str], api: Api) -> None:
    filled(environment, api)
    code, screen = at_a_terminal(environment, "--yes", *JOB, type_in="")
    assert (code, "Submit?" in screen) == (0, False)
    assert "--yes" not in (Path(environment["KEEP"]) / "argv").read_text()


@pytest.mark.parametrize("more", [("--yes",), ()])
def test_who_is_asked_is_told_about_what_with_quiet_too(
    environment: dict[str, str], api: Api, more: tuple[str, ...]
) -> None:
    """Where nothing is asked, nothing is told."""
    filled(environment, api)
    _, screen = at_a_terminal(environment, *more, "--quiet", *JOB, type_in="\n")
    assert (COSTS in screen, "Submit?" in screen) == (not more, not more)


def at_a_terminal(environment: dict[str, str], *words: str, type_in: str) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "hpctools.cli.hp_submit", *words]
    process = subprocess.Popen(argv, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, type_in.encode())
    shown = b"".join(_until_closed(ours))
    os.close(ours)
    return process.wait(60), shown.decode().replace("\r\n", "\n")


def _until_closed(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            read = os.read(terminal, 4096)
        except OSError:
            return
        if not read:
            return
        yield read


def test_a_policy_file_costs_what_its_sizes_on_the_command_line_do(tmp_path: Path) -> None:
    """Read as one node, a run of eight would pass a site that refuses what is more than is left."""
    path = tmp_path / "policy.yaml"
    path.write_text("elasticPolicy: {minReplicas: 2, maxReplicas: 8}\n")

    def cost(*words: str) -> Estimate | None:
        job = ("-p", "nlp", "--gpus-per-node=8", "-t", "60", "--", "true")
        invocation = read_invocation([*words, *job])
        intent = read_intent(invocation, environment={}, cwd=tmp_path, standard_input=lambda: None)
        file = read_policy(path) if "--elastic-policy" in words else None
        return _cost(intent, read_rates(RATES), file)

    expected = Estimate(Decimal("64.00"), Decimal("256.00"), "USD")
    assert cost("--elastic-policy", str(path)) == cost("--nodes=2:8") == expected
    assert cost("--elastic-policy", str(path), "--nodes=2:4") == Estimate(
        Decimal("64.00"), Decimal("128.00"), "USD"
    )


def test_a_policy_from_a_pipe_says_what_it_costs_and_how_large_the_run_is(
    sbatch: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """What is read a second time there is empty."""
    monkeypatch.setenv("HPCTOOLS_BUDGET", "tell")
    monkeypatch.setattr(module, "find_source", lambda environment: object())
    monkeypatch.setattr(module, "look", lambda source, account: Known(RATES, OUTLOOK))
    reading, writing = os.pipe()
    os.write(writing, b"elasticPolicy: {minReplicas: 2, maxReplicas: 8}\n")
    os.close(writing)
    job = ("-p", "nlp", "-A", "nlp", "--gpus-per-node=8", "-t", "60", "--", "true")
    try:
        code = main([f"--elastic-policy=/dev/fd/{reading}", *job], client=_nlp)
    finally:
        os.close(reading)
    out, err = capfd.readouterr()
    assert (code, "2 to 8 nodes; see: hp-status" in out) == (0, True), err
    assert err.startswith("hp-submit: costs about 64.00 to 256.00 USD")


def _nlp() -> FakeSlurm:
    return FakeSlurm(known=(Partition("nlp", total_nodes=8, is_default=True),))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("1e999999999"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
WORDS = [(word,) for word in ("rates", "partitions", *OUTLOOK)] + [
    ("rates", 0, word) for word in RATES["rates"][0]
]


@pytest.mark.parametrize("word", ["refues", "Refuse", "none", "off "])
@pytest.mark.parametrize("api_is_named", [True, False])
def test_a_word_that_is_no_policy_is_refused_with_those_that_are(
    environment: dict[str, str], word: str, api_is_named: bool
) -> None:
    """A site that meant `refuse` would have had everything submitted."""
    known = environment if api_is_named else {k: v for k, v in environment.items() if k != "HPCTOOLS_API"}
    refused = submit({**known, "HPCTOOLS_BUDGET": word}, *JOB)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"hp-submit: HPCTOOLS_BUDGET is {word!r}, which is no policy; it may be ask, tell, off or refuse; "
        "if you have not set it yourself, tell your administrator\n"
    )


def test_an_empty_word_is_none(environment: dict[str, str], api: Api) -> None:
    filled(environment, api)
    assert seen(submit({**environment, "HPCTOOLS_BUDGET": ""}, *JOB)) == (0, COSTS)
    without = {k: v for k, v in environment.items() if k != "HPCTOOLS_API"}
    assert submit({**without, "HPCTOOLS_BUDGET": ""}, *JOB).returncode == 0


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from([(), ("partitions", "nlp"), ("rates", 0), *WORDS]), value=VALUES)
@pytest.mark.parametrize("policy", ["tell", "refuse"])
def test_whatever_is_kept_of_an_answer_the_job_goes_or_is_refused(
    policy: str, place: tuple[str | int, ...], value: Any, tmp_path: Path
) -> None:
    rates, outlook = (_changed(each, place, value) for each in (RATES, OUTLOOK))
    known = Known(*(each if isinstance(each, dict) else None for each in (rates, outlook)))
    invocation = read_invocation(["-p", "nlp", "-A", "nlp", "--gpus=8", "-t", "60", "--", "true"])
    intent = read_intent(invocation, environment={}, cwd=tmp_path, standard_input=lambda: None)
    with pytest.MonkeyPatch.context() as patched, suppress(SubmitError):
        patched.setenv("HPCTOOLS_BUDGET", policy)
        patched.setattr(module, "find_source", lambda environment: object())
        patched.setattr(module, "look", lambda source, account: known)
        assert module.may_submit(intent, frozenset(), None)


def _changed(answer: Any, place: tuple[str | int, ...], value: Any) -> Any:
    if not place:
        return value
    if isinstance(answer, dict) and place[0] not in answer:
        return answer
    changed = copy(answer)
    changed[place[0]] = _changed(answer[place[0]], place[1:], value)
    return changed


def test_who_answers_in_the_services_place_has_not_said_that_there_is_money(
    environment: dict[str, str], api: Api
) -> None:
    """A proxy's page in JSON is kept as an answer is."""
    api.answers = {"/v1/rates": {"status": "ok"}, "/v1/accounts/nlp/outlook": {"left": "100"}}
    filled(environment, api)
    assert "left of" not in submit(environment, *JOB).stderr
    refused = submit({**environment, "HPCTOOLS_BUDGET": "refuse"}, *JOB)
    assert (refused.returncode, "the budget service does not answer" in refused.stderr) == (1, True)
