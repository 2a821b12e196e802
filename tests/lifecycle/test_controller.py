"""A controller from HyperPod's slurm.conf to accounts: order, repetition, kills at many points, faults."""

import os
import re
import stat
from collections.abc import Callable

import pytest

from hpctools.conf.held import with_mark
from tests.lifecycle.node import CONTROLLER, Node
from tests.lifecycle.world import AGENT, ETC, changes, controller, stood_in

EXTERNAL = """\
hyperpod:
  continuous: true
  accounting_database:
    {endpoint: db.example.org, port: 3307, name: acct, user: admin,
     secret: "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-1"}
"""
SECRET = "pa#ss=w0rd with blanks"


@pytest.fixture
def node(make_node: Callable[[str], Node]) -> Node:
    return controller(make_node(CONTROLLER))


def call_index(node: Node, call: str) -> int:
    return next(place for place, each in enumerate(node.calls()) if each.startswith(call))


def once(node: Node, step: str) -> None:
    """Have a step tried once."""
    path = node.bundle / "steps" / step
    path.write_text(re.sub(r"# attempts: \d+", "# attempts: 1", path.read_text()))


def test_accounting_is_up_and_knows_the_cluster_before_slurmctld_first_starts(node: Node) -> None:
    """A slurmctld that comes first makes up an id, and later refuses with CLUSTER ID MISMATCH."""
    done = node.run()
    assert done.returncode == 0, done.stdout
    order = [
        "systemctl restart mariadb",
        "systemctl restart slurmdbd",
        "sacctmgr --immediate add cluster uni-gpu",
        "sacctmgr --immediate add qos name=normal",
        "systemctl restart slurmctld",
        "sacctmgr --immediate load",
    ]
    places = [call_index(node, call) for call in order]
    assert places == sorted(places)
    assert not stood_in(node, "slurmctld-came-first").exists()


def test_the_database_has_no_password_that_could_leak(node: Node) -> None:
    assert node.run().returncode == 0
    assert stood_in(node, "sql").read_text() == (
        "CREATE DATABASE IF NOT EXISTS slurm_acct_db;\n"
        "CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED VIA unix_socket;\n"
        "GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';\n"
    )
    text = node.path(f"{ETC}/slurmdbd.conf").read_text()
    assert "StoragePass" not in text
    assert stat.S_IMODE(node.path(f"{ETC}/slurmdbd.conf").stat().st_mode) == 0o600


def test_a_second_run_starts_tells_and_writes_nothing(node: Node) -> None:
    """A configuration that is not idempotent restarts daemons at every run."""
    assert node.run().returncode == 0
    before, calls = node.files(), len(changes(node))
    assert node.run().returncode == 0
    assert changes(node)[calls:] == []
    assert node.files() == before


def test_every_command_of_a_run_may_be_its_last(node: Node, make_node: Callable[[str], Node]) -> None:
    """Killed with SIGKILL at one command after another, the next run ends where an undisturbed one does."""
    assert node.run().returncode == 0
    wanted, total = node.files(), len(node.calls())
    for at in range(1, total, max(1, total // 6)):
        each = controller(Node(node.root.parent.parent / f"killed-{at}", CONTROLLER))
        killed = each.run(KILL_AT=str(at))
        assert killed.returncode == -9, (at, killed.stdout)
        again = each.run()
        assert again.returncode == 0, (at, again.stdout)
        assert each.files() == wanted, at
        assert not stood_in(each, "slurmctld-came-first").exists(), at


def test_a_slurmctld_that_the_agent_had_started_is_started_anew_once(node: Node) -> None:
    stood_in(node, "active-slurmctld").touch()
    stood_in(node, "running").write_text("AccountingStorageType = accounting_storage/none\nBOOT_TIME = 1\n")
    assert node.run().returncode == 0
    assert [call for call in node.calls("systemctl") if "restart slurmctld" in call] == [
        "systemctl restart slurmctld"
    ]
    assert node.calls("scontrol").count("scontrol reconfigure") == 1


def test_an_id_that_slurmctld_made_up_before_is_put_aside(node: Node) -> None:
    node.write("/var/spool/slurmctld/clustername", "uni-gpu|4711")
    done = node.run()
    assert done.returncode == 0, done.stdout
    kept = node.path("/var/spool/slurmctld/clustername.before-accounting")
    assert kept.read_text() == "uni-gpu|4711"


def test_the_state_of_another_cluster_is_never_taken_over(node: Node) -> None:
    """The same message guards against two clusters that write into one folder."""
    node.write("/var/spool/slurmctld/clustername", "other|4711")
    once(node, "45-slurm-daemons")
    assert node.run(limit=110).returncode == 1
    assert node.path("/var/spool/slurmctld/clustername").read_text() == "other|4711"


def test_a_change_is_taken_over_without_a_restart(node: Node) -> None:
    """slurmctld was restarted at each update elsewhere, and workers kept what they had (#638)."""
    assert node.run().returncode == 0
    calls = len(changes(node))
    template = node.bundle / "site/slurm/hpctools.conf"
    template.write_text(f"{template.read_text()}KillWait=99\n")
    assert node.run().returncode == 0
    told = [call for call in changes(node)[calls:] if "hpctools-follow" not in call]
    assert told == ["scontrol reconfigure"]
    assert "KillWait=99" in stood_in(node, "running").read_text()


def test_an_include_that_slurmctld_refuses_is_taken_out_again(node: Node) -> None:
    """A cluster that runs without our part is better than none."""
    stood_in(node, "refused").write_text(".\n")
    once(node, "45-slurm-daemons")
    done = node.run()
    assert done.returncode == 1
    assert "is out of slurm.conf again; it runs without it: fatal: bad line in hpctools.conf" in done.stdout
    assert "Include" not in node.path(f"{ETC}/slurm.conf").read_text()
    assert stood_in(node, "active-slurmctld").exists()


def test_a_changed_include_that_slurmctld_refuses_gives_way_to_the_one_before(node: Node) -> None:
    """Releases to 23.02 end at a reconfigure that they cannot read. Without any Include jobs would end."""
    assert node.run().returncode == 0
    before = node.path(f"{ETC}/hpctools.conf").read_text()
    once(node, "45-slurm-daemons")
    stood_in(node, "refused").write_text("NoSuchKey\n")
    template = node.bundle / "site/slurm/hpctools.conf"
    text = template.read_text()
    template.write_text(f"{text}NoSuchKey=1\n")
    done = node.run()
    assert (done.returncode, "and runs with that of before" in done.stdout) == (1, True), done.stdout
    assert node.path(f"{ETC}/hpctools.conf").read_text() == before
    assert node.path(f"{ETC}/slurm.conf").read_text().endswith("Include hpctools.conf\n")
    assert stood_in(node, "active-slurmctld").exists()
    template.write_text(text)
    assert node.run().returncode == 0


def test_slurmd_never_runs_on_a_controller_and_slurm_conf_survives_its_end(node: Node) -> None:
    """Restarting slurmd on the head node deletes slurm.conf, the accounting Include with it (#205)."""
    stood_in(node, "active-slurmd").touch()
    done = node.run()
    assert done.returncode == 0, done.stdout
    assert not stood_in(node, "active-slurmd").exists()
    assert node.path(f"{ETC}/slurm.conf").read_text().endswith("Include hpctools.conf\n")
    drop_in = node.path("/etc/systemd/system/slurmd.service.d/hpctools.conf").read_text()
    assert "ConditionPathIsDirectory=!/" in drop_in


def test_a_slurm_conf_that_was_deleted_comes_back(node: Node) -> None:
    assert node.run().returncode == 0
    whole = node.path(f"{ETC}/slurm.conf").read_text()
    node.path(f"{ETC}/slurm.conf").unlink()
    module = node.bundle / "provision/slurm_conf.py"
    module.write_text(module.read_text().replace("PATIENCE_SECONDS = 60.0", "PATIENCE_SECONDS = 0.2"))
    assert node.run().returncode == 0
    assert node.path(f"{ETC}/slurm.conf").read_text() == whole


def test_the_agent_is_waited_for_and_its_absence_said(node: Node) -> None:
    node.path(f"{ETC}/slurm.conf").unlink()
    module = node.bundle / "provision/slurm_conf.py"
    module.write_text(module.read_text().replace("WAIT_SECONDS = 840.0", "WAIT_SECONDS = 0.2"))
    assert node.run().returncode == 1
    assert "HyperPod's agent has not set up Slurm" in node.events("output")[-1]["message"]
    assert changes(node) == []


def test_a_cluster_without_workers_yet_is_configured(node: Node) -> None:
    """Provisioned continuously, the controller may be there long before the first worker."""
    path = node.write(f"{ETC}/slurm.conf", re.sub(r"NodeName=.*\n", "", AGENT))
    os.utime(path, (1, 1))
    done = node.run()
    assert done.returncode == 0, done.stdout
    ours = node.path(f"{ETC}/hpctools.conf").read_text()
    assert "# PartitionName=nlp has no nodes yet" in ours
    assert "User - 'nlp1'" in stood_in(node, "loaded").read_text()


def test_a_database_that_does_not_start_fails_with_its_name_and_slurmctld_stays_off(node: Node) -> None:
    stood_in(node, "broken-mariadb").touch()
    assert node.run().returncode == 1
    failed = node.events("run-failed")[0]
    assert failed["step"] == "30-accounting-database"
    assert "Job for mariadb.service failed" in str(node.events("output"))
    assert not stood_in(node, "active-slurmctld").exists()
    stood_in(node, "broken-mariadb").unlink()
    assert node.run().returncode == 0


def test_a_wide_open_slurmdbd_conf_is_closed(node: Node) -> None:
    assert node.run().returncode == 0
    node.path(f"{ETC}/slurmdbd.conf").chmod(0o644)
    assert node.run().returncode == 0
    assert stat.S_IMODE(node.path(f"{ETC}/slurmdbd.conf").stat().st_mode) == 0o600


def test_a_slurmdbd_conf_that_the_site_has_changed_is_written_anew(node: Node) -> None:
    assert node.run().returncode == 0
    template = node.bundle / "site/slurm/slurmdbd.conf"
    template.write_text(f"{template.read_text()}PurgeJobAfter=12months\n")
    assert node.run().returncode == 0
    assert "PurgeJobAfter=12months\n" in node.path(f"{ETC}/slurmdbd.conf").read_text()
    assert node.calls("systemctl").count("systemctl restart slurmdbd") == 2


def test_accounts_that_somebody_removed_come_back(node: Node) -> None:
    """Re-running after a node was replaced restores everything: the new controller's database is empty."""
    assert node.run().returncode == 0
    for name in ("loaded", "qos", "cluster-uni-gpu"):
        stood_in(node, name).unlink()
    assert node.run().returncode == 0
    assert "User - 'nlp1'" in stood_in(node, "loaded").read_text()


def test_what_changed_in_slurmdbd_is_seen_and_what_was_added_stays(node: Node) -> None:
    assert node.run().returncode == 0
    stood_in(node, "qos-changed-by-hand").write_text("their-own\n")
    assert node.run("--check").returncode == 1
    calls = len(changes(node))
    assert node.run().returncode == 0
    assert not [call for call in changes(node)[calls:] if "delete" in call or "remove" in call]


def test_limits_that_a_budget_has_taken_are_left_to_it(make_node: Callable[[str], Node]) -> None:
    """Else whoever has overspent goes on submitting as soon as the controller is set up once more."""
    limits = "supervisor: nlp-head\n    limits: {submitted_jobs: 20, jobs: 9}"
    node = controller(make_node(CONTROLLER), lambda text: text.replace("supervisor: nlp-head", limits))
    assert node.run().returncode == 0
    before = account_lines(node)
    assert all(each in before["nlp"] for each in (":GrpSubmitJobs='20'", ":QOS='normal'", ":GrpJobs='9'"))
    marked = with_mark("a|b, the lab", "uni-gpu", {"GrpSubmitJobs": "20", "QOS": "normal"})
    others = with_mark("nlp-lab", "elsewhere", {"QOS": "normal"})
    stood_in(node, "descriptions").write_text(f"nlp|{marked}\nnlp-lab|{others}\n")
    stood_in(node, "qos-changed-by-hand").write_text("their-own\n")
    assert node.run().returncode == 0
    taken = before["nlp"].replace(":GrpSubmitJobs='20'", "").replace(":QOS='normal'", "")
    assert account_lines(node) == {**before, "nlp": taken}


def account_lines(node: Node) -> dict[str, str]:
    """What was loaded of each account."""
    lines = stood_in(node, "loaded").read_text().splitlines()
    return {line.split("'")[1]: line for line in lines if line.startswith("Account - ")}


def test_no_call_ever_deletes(node: Node) -> None:
    assert node.run().returncode == 0
    assert not [call for call in node.calls("sacctmgr") if " delete " in call or " clean" in call]


def test_supervisors_are_coordinators(node: Node) -> None:
    assert node.run().returncode == 0
    loaded = stood_in(node, "loaded").read_text()
    assert "User - 'nlp-head':DefaultAccount='nlp':Coordinator='nlp'" in loaded
    assert "User - 'nlp-lead':DefaultAccount='nlp-lab':Coordinator='nlp-lab'" in loaded


@pytest.fixture
def outside(make_node: Callable[[str], Node]) -> Node:
    made = controller(make_node(CONTROLLER), lambda text: text + EXTERNAL)
    # Names of this world resolve to nothing: what is tested is what comes after the connection.
    module = made.bundle / "provision/database.py"
    text = module.read_text()
    assert "    until = time.monotonic() + seconds\n" in text
    module.write_text(text.replace("    until = time.monotonic() + seconds\n", "    return\n"))
    made.stand_in(
        "aws",
        'echo "aws $*" >>"$STAND_IN/calls"\n'
        'n=$(grep -c ^aws "$STAND_IN/calls")\n'
        '[ "$n" -gt "${THROTTLED:-0}" ] || { echo "error: (ThrottlingException)" >&2; exit 254; }\n'
        f'echo \'{{"username": "boss", "password": "{SECRET}"}}\'',
    )
    return made


def test_a_database_elsewhere_gets_its_password_from_secrets_manager(outside: Node) -> None:
    done = outside.run()
    assert done.returncode == 0, done.stdout
    text = outside.path(f"{ETC}/slurmdbd.conf").read_text()
    for line in ("StorageHost=db.example.org", "StoragePort=3307", "StorageLoc=acct", "StorageUser=boss",
                 f'StoragePass="{SECRET}"'):  # fmt: skip
        assert line in text.splitlines()
    assert stat.S_IMODE(outside.path(f"{ETC}/slurmdbd.conf").stat().st_mode) == 0o600
    assert "systemctl restart mariadb" not in outside.calls()
    (asked,) = outside.calls("aws")
    assert "--region eu-west-1" in asked


def test_the_password_is_in_no_argument_log_or_other_file(outside: Node) -> None:
    done = outside.run()
    assert done.returncode == 0
    found = [
        str(path.relative_to(outside.root))
        for path in outside.root.rglob("*")
        if path.is_file() and SECRET in path.read_text(errors="replace")
    ]
    assert found == ["opt/slurm/etc/slurmdbd.conf"]
    assert SECRET not in done.stdout


def test_an_agent_that_keeps_the_accounts_itself_is_left_to_it(node: Node) -> None:
    """HyperPod was given a database (AccountingDatabase): it sets up slurmdbd, and we tell it of people."""
    theirs = f"{AGENT}AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=agent-db\n"
    node.write(f"{ETC}/slurm.conf", theirs)
    stood_in(node, "active-slurmdbd").touch()
    done = node.run()
    assert done.returncode == 0, done.stdout
    assert not node.path(f"{ETC}/slurmdbd.conf").exists()
    ours = node.path(f"{ETC}/hpctools.conf").read_text()
    assert "AccountingStorageHost" not in ours
    assert "AccountingStorageEnforce=" in ours
    assert "User - 'nlp1'" in stood_in(node, "loaded").read_text()
    assert not [call for call in node.calls("systemctl") if "slurmdbd" in call or "mariadb" in call]
    assert node.run("--check").returncode == 0


def test_a_throttled_secrets_manager_is_asked_again(outside: Node) -> None:
    assert outside.run(THROTTLED="1").returncode == 0
    assert len(outside.calls("aws")) == 2
    assert "ThrottlingException" in str(outside.events("output"))


def test_a_database_that_cannot_be_reached_says_where(make_node: Callable[[str], Node]) -> None:
    made = controller(
        make_node(CONTROLLER), lambda text: text + EXTERNAL.replace("db.example.org", "127.0.0.1")
    )
    module = made.bundle / "provision/database.py"
    module.write_text(module.read_text().replace("seconds: float = 60.0", "seconds: float = 0.1"))
    once(made, "30-accounting-database")
    made.settings["accounting"]["port"] = 9  # discard: nobody listens
    assert made.run().returncode == 1
    said = made.events("output")[-1]["message"]
    assert said.startswith("error: the database 127.0.0.1:9 cannot be reached: ")
    assert made.path(f"{ETC}/slurm.conf").read_text() == AGENT, "slurmctld goes on as the agent left it"
