from __future__ import annotations

import json
import os
import re
import resource
import socket
import sqlite3
import stat
import sys
import time
from contextlib import closing, redirect_stderr, redirect_stdout
from decimal import Decimal
from http.client import HTTPConnection
from io import StringIO
from pathlib import Path

import pytest

from api.commands.main import main
from api.db.engine import connect
from api.db.migrate import HEAD, current, downgrade, upgrade
from api.services.budgets import Change, set_budget
from hpctools.budget.allowance import Spec
from hpctools.budget.month import day_of
from hpctools.budget.tree import BudgetSite
from hpctools.sandbox.bill import seed
from hpctools.site import load
from hpctools.slurm.run import Completed, run, start


@pytest.fixture
def environment(tmp_path: Path, site_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCTOOLS_API_DATABASE_URL", f"sqlite:///{tmp_path}/api.sqlite")
    monkeypatch.setenv("HPCTOOLS_API_SITE", str(site_path))


pytestmark = pytest.mark.usefixtures("environment")


def api(*arguments: str, check: bool = True) -> Completed:
    """The command, in this process."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        main(arguments)
    assert isinstance(end.value.code, int)
    done = Completed(arguments, end.value.code, out.getvalue(), err.getvalue())
    assert not (check and done.code), done
    return done


def test_it_is_a_program() -> None:
    done = run([sys.executable, "-m", "api", "token", "list", "--no-such"], timeout=60, check=False)
    assert (done.code, "Traceback" in done.stderr) == (2, False)
    assert "No such option" in done.stderr


def test_tokens_from_making_to_revoking(tmp_path: Path) -> None:
    secret = api(
        *("token", "create", "--name", "nlp-head", "--account", "nlp", "--scope", "write"),
        *("--expires", "2199-01-01"),
    ).stdout
    assert re.fullmatch(r"hpct_[\w-]{43}\n", secret)
    out = tmp_path / "admin.token"
    assert api("token", "create", "--name", "root", "--admin", "--out", str(out)).stdout == ""
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    api("token", "revoke", "root")
    listed = [line.split("\t") for line in api("token", "list").stdout.splitlines()]
    assert [(name, account, scopes, ends) for name, account, scopes, _, ends in listed] == [
        ("nlp-head", "nlp", "read,write", "until 2199-01-01"),
        ("root", "administrator", "read,write,enforce,login,admin", "revoked"),
    ]
    assert stat.S_IMODE((tmp_path / "api.sqlite").stat().st_mode) == 0o600


def test_a_token_of_login_nodes_counts_sessions_and_opens_nothing_else() -> None:
    """The command of docs/login-limits.md."""
    api("token", "create", "--name", "login-nodes", "--account", "root", "--scope", "login")
    (listed,) = api("token", "list").stdout.splitlines()
    name, account, scopes, _, ends = listed.split("\t")
    assert (name, account, scopes, ends) == ("login-nodes", "root", "login", "valid")


def test_where_the_secret_cannot_be_written_there_is_no_token(tmp_path: Path) -> None:
    out = tmp_path / "token"
    out.write_text("precious")
    create = ("token", "create", "--name", "x", "--admin", "--out")
    for path in (out, tmp_path / "nowhere" / "token"):
        assert "cannot write the token" in api(*create, str(path), check=False).stderr
    assert (api("token", "list").stdout, out.read_text()) == ("", "precious")
    api(*create, str(tmp_path / "good"))
    assert "already" in api(*create, str(tmp_path / "again"), check=False).stderr
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("token", "create", "--name", "x"), "give --account NAME or --admin"),
        (("token", "create", "--name", "x", "--admin", "--account", "nlp"), "give --account NAME or --admin"),
        (("token", "create", "--name", "x", "--account", "nowhere"), "the site has no account 'nowhere'"),
        (
            ("token", "create", "--name", "x", "--admin", "--scope", "write"),
            "an administrator has every scope",
        ),
        (("token", "create", "--name", "x", "--admin", "--expires", "soon"), "'soon' is not a day"),
        (("token", "create", "--name", "x", "--admin", "--expires", "2001-01-01"), "is not in the future"),
        (("token", "revoke", "x"), "there is no token 'x'"),
        (("statement", "--account", "nowhere"), "there is no account 'nowhere'"),
        (("statement", "--month", "13-2026"), "expected YYYY-MM"),
        (("reconcile", "--month", "2199-01"), "2199-01 has not begun"),
        (("reconcile", "--own-nodes-from", "monday"), "'monday' is no day; give one such as 20"),
        (
            ("reconcile", "--month", "2026-10", "--own-nodes-from", "2026-09-30"),
            "2026-09-30 is no day of 2026-10; give --month 2026-09",
        ),
    ],
)
def test_mistakes_are_one_line_without_a_traceback(arguments: tuple[str, ...], message: str) -> None:
    done = api(*arguments, check=False)
    assert done.code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("first", [0, 4096])
def test_a_damaged_database_is_told_by_every_command_with_what_to_do(tmp_path: Path, first: int) -> None:
    api("migrate")
    file = tmp_path / "api.sqlite"
    content = file.read_bytes()
    file.write_bytes(content[:first] + b"\xff" * (len(content) - first))
    for words in (("verify",), ("token", "list"), ("audit", "verify"), ("backup", str(tmp_path / "backup"))):
        done = api(*words, check=False)
        assert (done.code, len(done.stderr.splitlines())) == (1, 1), done
        assert "is damaged" in done.stderr
        assert "restore the last backup" in done.stderr


def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCTOOLS_API_METRIC", "Cost")
    done = api("migrate", check=False)
    assert (done.code, done.stderr.count("\n")) == (2, 1)
    assert "HPCTOOLS_API_METRIC='Cost' cannot be used" in done.stderr


def test_groups_that_lost_their_quotes_in_a_shell_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCTOOLS_API_OIDC_GROUPS", "{nlp-chairs: head:nlp}")
    done = api("token", "list", check=False)
    assert done.code == 2
    assert done.stderr.startswith("hpctools-api: HPCTOOLS_API_OIDC_GROUPS cannot be used: it is no JSON; ")
    assert len(done.stderr.splitlines()) == 1


def test_tables_are_only_changed_when_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCTOOLS_API_MIGRATE", "false")
    assert "or run `hpctools-api migrate`" in api("token", "list", check=False).stderr
    assert api("migrate").stdout == f"tables brought from nothing to {HEAD}\n"
    assert api("migrate").stdout == f"tables are at {HEAD}\n"
    assert api("token", "list").stdout == ""


@pytest.mark.parametrize("look", [("verify",), ("audit", "verify")])
def test_who_only_looks_changes_no_tables(tmp_path: Path, look: tuple[str, ...]) -> None:
    engine = connect(f"sqlite:///{tmp_path}/api.sqlite")
    upgrade(engine)
    downgrade(engine, "v0006")
    refused = api(*look, check=False)
    assert (refused.code, refused.stderr.count("\n")) == (2, 1)
    assert (
        f"the database's tables are at v0006, not at {HEAD}; use the release that made them" in refused.stderr
    )
    assert current(engine) == "v0006"
    api("migrate")
    assert api(*look).code == 0
    engine.dispose()


def test_reconciling_from_aws_and_sacct_to_a_printed_statement(
    aws: str, tmp_path: Path, site_path: Path, monkeypatch: pytest.MonkeyPatch, now: int
) -> None:
    sacct = tmp_path / "sacct"
    line = (
        "17|uni-gpu|4|cv1|cv-lab-a|cv|medium|2026-11-03T12:00:00|2026-11-03T12:00:00|2026-11-03T18:00:00|00:00:00|"
        "COMPLETED|cpu=96,gres/gpu=8,mem=1G,node=1|reserved-1|"
    )
    sacct.write_text(f"#!/bin/sh\necho '{line}'\n")
    sacct.chmod(0o755)
    monkeypatch.setenv("HPCTOOLS_API_SACCT", str(sacct))
    seed(load(site_path), aws, now)

    done = api("reconcile", "--month", "2026-11")
    assert re.fullmatch(r"2026-11: new or changed: 21 bill days, 1 jobs, \d+ ledger entries\n", done.stdout)
    assert api("reconcile", "--month", "2026-11").stdout == (
        "2026-11: new or changed: 0 bill days, 0 jobs, 0 ledger entries\n"
    )
    # The only job of the day has its 6 node-hours of 96, and the other 90 as its share of idle nodes.
    statement = json.loads(api("statement", "--month", "2026-11", "--account", "cv", "--json").stdout)
    day = [point["amount"] for point in statement["days"] if point["amount"] != "0"]
    assert day == [statement["spent"]] == ["1091.8533333332"]
    table = api("statement", "--month", "2026-11").stdout
    assert "cv" in table
    assert "$1,091.85" in table
    assert "charged to nobody" in table


def test_a_statement_knows_the_budgets_that_people_set(tmp_path: Path, site: BudgetSite) -> None:
    """The lab has none in the site file."""
    api("migrate")
    engine, now = connect(f"sqlite:///{tmp_path}/api.sqlite"), int(time.time())
    first, lab = day_of(now).replace(day=1), site.by_name["nlp-lab-a"]
    set_budget(engine, site, lab, Spec(Decimal("1234.50"), "USD"), first, Change("nlp-head", now))
    engine.dispose()
    told = json.loads(api("statement", "--account", "nlp-lab-a", "--json").stdout)
    assert (told["budget"], told["left"]) == ("1234.5", "1234.5")
    assert told["account"]["budget"]["amount"] == "1234.50"


OWN = """
cluster: {name: uni, slurm: "24.11", controllers: [ctl]}
node_groups: [{name: own, count: 2, hardware: {sockets: 1, cores_per_socket: 8, memory_mib: 1000}}]
departments: [{name: bio, supervisor: ada, partition: {node_groups: [own], max_time: 1-00:00:00}}]
tiers: {normal: {priority: 100, default: true}}
billing: {rate_cards: [{node_groups: [own], currency: EUR, per_node_hour: "1.00", since: 2026-01-01}]}
"""


def test_a_wrong_price_of_own_nodes_is_billed_anew_when_somebody_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(OWN)
    sacct = tmp_path / "sacct"
    sacct.write_text("#!/bin/sh\n")
    sacct.chmod(0o755)
    monkeypatch.setenv("HPCTOOLS_API_SITE", str(site))
    monkeypatch.setenv("HPCTOOLS_API_SACCT", str(sacct))
    reconcile = ("reconcile", "--month", "2026-03")

    def spent() -> str:
        return str(json.loads(api("statement", "--month", "2026-03", "--json").stdout)["spent"])

    assert "31 bill days" in api(*reconcile).stdout
    assert spent() == "1488"
    site.write_text(OWN.replace("1.00", "0.75"))
    assert api(*reconcile).stdout == (
        "2026-03: new or changed: 0 bill days, 0 jobs, 0 ledger entries\n"
        "31 days keep the bill that own nodes had: the site file has other counts or prices now; if they "
        "were wrong before, --own-nodes-from bills these days anew (docs/budgets.md)\n"
    )
    assert spent() == "1488"
    assert re.fullmatch(
        r"2026-03: new or changed: 31 bill days, 0 jobs, \d+ ledger entries\n",
        api(*reconcile, "--own-nodes-from", "2026-03-01").stdout,
    )
    assert spent() == "1116"


def test_sources_that_are_away_end_with_exit_code_3(
    aws: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sacct = tmp_path / "sacct"
    sacct.write_text(
        "#!/bin/sh\necho 'sacct: error: Sending PersistInit msg: Connection refused' >&2\nexit 1\n"
    )
    sacct.chmod(0o755)
    monkeypatch.setenv("HPCTOOLS_API_SACCT", str(sacct))
    done = api("reconcile", "--month", "2026-11", check=False)
    assert done.code == 3
    assert done.stderr.startswith("hpctools-api: slurmdbd does not answer")
    assert len(done.stderr.splitlines()) == 1


LIBRARIES = "import boto3, fastapi, polars, pydantic, sqlalchemy.orm, uvicorn"


def test_the_service_is_ready_soon(tmp_path: Path) -> None:
    """In the processor time of loading its libraries a few times over: no machine is too busy for that."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start([sys.executable, "-c", LIBRARIES]).wait(60)
    libraries = _seconds(resource.getrusage(resource.RUSAGE_CHILDREN)) - _seconds(before)
    with (tmp_path / "log").open("wb") as log:
        process = start([sys.executable, "-m", "api", "serve", "--port", str(port)], stdout=log, stderr=log)
    try:
        assert _health(port, until=time.monotonic() + 60) == 200
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    finally:
        process.terminate()
        process.wait(20)
    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    assert used < 5 * libraries


def _seconds(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def _health(port: int, until: float) -> int:
    while True:
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/healthz")
            return connection.getresponse().status
        except ConnectionRefusedError:
            assert time.monotonic() < until, "the service does not listen"
            time.sleep(0.05)
        finally:
            connection.close()


def test_the_audit_trail_is_checked(tmp_path: Path) -> None:
    api("migrate")
    assert api("audit", "verify").stdout == f"the audit trail is whole; its last digest is {'0' * 64}\n"
    api("token", "create", "--name", "x", "--admin")
    api("token", "revoke", "x")
    assert re.search(r"last digest is (?!0{64})[0-9a-f]{64}\n$", api("audit", "verify").stdout)
    with closing(sqlite3.connect(tmp_path / "api.sqlite")) as connection, connection:
        connection.execute("DROP TRIGGER audit_entry_no_delete")
        connection.execute("DELETE FROM audit_entry WHERE id = 1")
    done = api("audit", "verify", check=False)
    assert (done.code, done.stderr.count("\n")) == (1, 1)
    assert "the audit trail is broken at entry 2" in done.stderr


def test_backup_and_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api("token", "create", "--name", "x", "--admin")
    file = tmp_path / "backup"
    assert api("backup", str(file)).stdout == f"the store is in {file}\n"
    assert "is there already" in api("backup", str(file), check=False).stderr
    monkeypatch.setenv("HPCTOOLS_API_DATABASE_URL", f"sqlite:///{tmp_path}/new.sqlite")
    assert api("restore", str(file)).stdout == f"the store is restored; its tables are at {HEAD}\n"
    assert api("token", "list").stdout.startswith("x\t")
