"""The installer as its user runs it, on the real libpam, with a /etc/pam.d of its own."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pam import rewrite, transaction
from tests.pam import private_pam
from tests.pam.private_pam import installer
from tests.pam.stacks import DEBIAN, REDHAT

pytestmark = pytest.mark.system  # mount namespaces need root
ROOT = Path(__file__).parents[2]
KILLER = Path(__file__).with_name("killed_install.py")
COMPUTE = ("--role", "compute")
LOGIN = ("--role", "login")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's folders; the stack is the machine's own with a guard-worthy module."""
    done = private_pam.run(tmp_path, ["true"])
    assert done.returncode == 0, done.stderr
    service = tmp_path / "pam.d" / "sshd"
    service.write_text(service.read_text() + "session optional pam_systemd.so\n")
    service.chmod(0o640)
    (tmp_path / "first").write_text(service.read_text())
    return tmp_path


def stack(node: Path) -> str:
    return (node / "pam.d" / "sshd").read_text()


def admitted(node: Path, *users: str, service: str = "sshd", phase: str = "account") -> dict[str, bool]:
    each = f"[attempt(sys.argv[1], user, '{phase}').admitted for user in sys.argv[2:]]"
    code = f"import sys; from pam.trial import attempt; print({each})"
    done = private_pam.run(node, [sys.executable, "-c", code, service, *users])
    return dict(zip(users, json.loads(done.stdout.lower()), strict=True))


def names(node: Path) -> set[str]:
    return {
        path.name
        for path in (node / "pam.d").iterdir()
        if "hpctools" in path.name or path.name.startswith(".")
    }


def test_install_twice_and_remove(node: Path) -> None:
    first = installer(node, "install", *COMPUTE)
    assert (first.returncode, first.stderr) == (0, ""), first
    assert "administrator root: Success" in first.stdout
    assert "nobody, who has no job and no session:" in first.stdout
    installed = stack(node)
    assert rewrite.is_ours(installed)
    assert (node / "pam.d/sshd").stat().st_mode & 0o777 == 0o640
    assert (node / "state/sshd.original").read_text() == (node / "first").read_text()
    again = installer(node, "install", *COMPUTE)
    assert (again.returncode, "nothing to do" in again.stdout, stack(node)) == (0, True, installed)
    assert installer(node, "check", *COMPUTE).returncode == 0
    assert admitted(node, "root", "nobody") == {"root": True, "nobody": False}
    assert installer(node, "remove").returncode == 0
    assert stack(node) == (node / "first").read_text()
    assert (names(node), (node / "library").exists()) == (set(), False)
    assert "nothing of hpctools" in installer(node, "remove").stdout


def test_from_one_role_to_another_and_with_other_administrators(node: Path, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text('{"access": {"administrators": {"users": ["daemon"]}}}')
    assert installer(node, "install", *LOGIN).returncode == 0
    assert admitted(node, "root", "nobody", "daemon") == {"root": True, "nobody": True, "daemon": True}
    assert installer(node, "check", *COMPUTE).returncode == 1
    assert installer(node, "install", *COMPUTE, "--settings", str(settings)).returncode == 0
    assert admitted(node, "root", "nobody", "daemon") == {"root": True, "nobody": False, "daemon": True}
    assert installer(node, "install", "--role", "closed").returncode == 0
    assert admitted(node, "root", "nobody", "daemon") == {"root": True, "nobody": False, "daemon": False}
    assert installer(node, "remove").returncode == 0
    assert stack(node) == (node / "first").read_text()


def test_what_others_change_meanwhile_stays(node: Path) -> None:
    """A package's new rule in the stack itself survives; one in an included file is told by `check`."""
    installer(node, "install", *COMPUTE)
    (node / "pam.d/sshd").write_text(stack(node) + "session optional pam_umask.so\n")
    session = node / "pam.d/common-session"
    session.write_text(session.read_text() + "session optional pam_systemd.so\n")
    assert "not as it should be" in installer(node, "check", *COMPUTE).stderr
    assert installer(node, "install", *COMPUTE).returncode == 0
    assert installer(node, "check", *COMPUTE).returncode == 0
    installer(node, "remove")
    assert stack(node) == (node / "first").read_text() + "session optional pam_umask.so\n"


def test_a_stack_that_does_not_keep_its_promise_is_never_installed(node: Path) -> None:
    """A module of Slurm that admits everybody is noticed by the self-test."""
    open_wide, slurmd, pid_file = (node / name for name in ("pam_slurm_adopt.so", "slurmd", "slurmd.pid"))
    open_wide.write_bytes(private_pam.module("pam_permit.so").read_bytes())
    shutil.copy("/bin/sleep", slurmd)
    compute = {"adopt_module": str(open_wide), "slurmd_pid_file": str(pid_file)}
    settings = node / "settings.json"
    settings.write_text(json.dumps({"access": {"compute": compute}}))
    before = stack(node)
    with subprocess.Popen([slurmd, "60"]) as process:
        pid_file.write_text(f"{process.pid}\n")
        done = installer(node, "install", *COMPUTE, "--settings", str(settings))
        process.kill()
    assert (done.returncode, stack(node), names(node)) == (1, before, set())
    assert "WRONG nobody, who has no job and no session: Success" in done.stderr


def test_a_module_that_cannot_be_loaded_is_noticed(node: Path) -> None:
    broken = node / "pam_slurm_adopt.so"
    broken.write_text("not a module")
    settings = node / "settings.json"
    settings.write_text(json.dumps({"access": {"compute": {"adopt_module": str(broken)}}}))
    done = installer(node, "install", *COMPUTE, "--settings", str(settings))
    assert done.returncode == 1
    assert "WRONG" in done.stderr
    assert "nothing was changed" in done.stderr
    assert (stack(node), names(node)) == ((node / "first").read_text(), set())


def test_a_stack_that_refuses_administrators_once_in_place_is_put_back(node: Path) -> None:
    """Some rule of others knows the service by its name, so that only the real one shows it."""
    gate = f"pam_listfile.so item=user sense=allow file={node}/gate onerr=fail"
    known = f"account [success=1 default=ignore] {gate}\n"
    (node / "pam.d/sshd").write_text(f"{known}account requisite pam_deny.so\n{stack(node)}")
    (node / "gate").write_text("root\n")
    before = stack(node)
    # The file is emptied between the self-test and the switch.
    driver = (
        "import sys; sys.argv[0] = 'install.py'\n"
        "from pam import install, transaction, files\n"
        "plain = files.replace\n"
        "def replace(path, text, mode=0o644):\n"
        "    plain(path, text, mode)\n"
        f"    if path.name == 'sshd' and 'hpctools' in text: open('{node}/gate', 'w').close()\n"
        "files.replace = replace\n"
        "sys.exit(install.main(sys.argv[1:]))\n"
    )
    places = ["--library", f"{node}/library", "--state", f"{node}/state"]
    done = private_pam.run(node, [sys.executable, "-c", driver, "install", *LOGIN, *places])
    assert (done.returncode, stack(node)) == (1, before), done
    assert "the former stack was put back" in done.stderr


@pytest.mark.parametrize(
    ("role", "verb"), [("compute", "install"), ("closed", "install"), ("closed", "self-test")]
)
def test_who_installs_cannot_lock_themselves_out(node: Path, role: str, verb: str) -> None:
    """With sudo by a line of sudoers one is in none of the groups."""
    settings = node / "settings.json"
    settings.write_text(json.dumps({"access": {"administrators": {"users": ["games"], "groups": ["staff"]}}}))
    words = (verb, "--role", role, "--settings", str(settings))
    refused = installer(node, *words, sudo="daemon")
    assert (refused.returncode, stack(node), names(node)) == (1, (node / "first").read_text(), set())
    said = refused.stderr + refused.stdout
    assert "WRONG daemon, who runs this by sudo, is no administrator and could not log in again" in said
    assert "--without-me" in said
    for admitted_words, user in (((*words, "--without-me"), "daemon"), (words, "games"), (words, "root")):
        done = installer(node, *admitted_words, sudo=user)
        assert done.returncode == 0, (user, done)
        installer(node, "remove")


def test_who_installs_is_an_administrator_by_group_or_not_known_here(node: Path) -> None:
    """SUDO_USER may be a name of another container; the primary group counts too."""
    settings = node / "settings.json"
    settings.write_text(json.dumps({"access": {"administrators": {"groups": ["daemon"]}}}))
    for user in ("daemon", "not-there"):
        done = installer(node, "install", *COMPUTE, "--settings", str(settings), sudo=user)
        assert done.returncode == 0, (user, done)
        installer(node, "remove")


def test_who_installs_a_login_nodes_stack_gets_in_as_everybody(node: Path) -> None:
    assert installer(node, "install", *LOGIN, sudo="daemon").returncode == 0


@pytest.mark.parametrize("asked", ["session_hook", "agent_socket"])
def test_a_login_node_that_takes_nobody_just_now_can_be_set_up(node: Path, asked: str) -> None:
    """Drained or full, as one is when it is worked on; or its program knows none of the system's accounts."""
    (node / "hook").write_text("#!/bin/sh\nexit 77\n")
    (node / "hook").chmod(0o755)
    login = {asked: f"{node}/hook", "when_unreachable": "refuse"}  # which is no socket
    (node / "settings.json").write_text(json.dumps({"access": {"login": login}}))
    words = (*LOGIN, "--settings", f"{node}/settings.json")
    done = installer(node, "install", *words)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "nobody, who has no job and no session: Success" in done.stdout
    assert admitted(node, "root", "nobody") == {"root": True, "nobody": False}


@pytest.mark.parametrize("stacks", [DEBIAN, REDHAT], ids=["debian", "redhat"])
def test_sudo_stays_in_the_job_and_administrators_sudo_as_it_was(node: Path, stacks: dict[str, str]) -> None:
    """What moves sessions is reached by administrators alone (it refuses here, so that one sees it); the
    account phase answers as before."""
    escape = node / "pam_systemd.so"
    escape.write_bytes(private_pam.module("pam_debug.so").read_bytes())
    moves = f"session required {escape} open_session=session_err\n"
    bare = "account required pam_permit.so\nsession required pam_permit.so\n"
    session = bare + moves + "session required pam_unix.so\n"
    for name in ("common-session", "common-session-noninteractive", "system-auth"):
        (node / "pam.d" / name).write_text(session)
    for name in ("sudo", "sudo-i"):
        (node / "pam.d" / name).write_text(stacks[name])
    guards = ("--guard", "sudo", "--guard", "sudo-i")
    before = {name: (node / "pam.d" / name).read_text() for name in ("sudo", "sudo-i")}
    done = installer(node, "install", *COMPUTE, *guards)
    assert done.returncode == 0, done
    assert "sudo-i, a session of root within a session: is what it was" in done.stdout
    assert "sudo-i, a session of nobody within a session: stays in its job" in done.stdout
    assert installer(node, "check", *COMPUTE, *guards).returncode == 0
    for service in before:
        assert admitted(node, "root", "nobody", service=service) == {"root": True, "nobody": True}
        moved = admitted(node, "root", "nobody", service=service, phase="session")
        assert moved == {"root": False, "nobody": True}
    for service in reversed(before):
        assert installer(node, "remove", "--service", service).returncode == 0
    assert before == {name: (node / "pam.d" / name).read_text() for name in before}


def test_guards_that_miss_an_administrator_are_noticed(node: Path) -> None:
    """A jump too short puts administrators' su and sudo into the job, as users'."""
    driver = (
        "import sys; sys.argv[0] = 'install.py'\n"
        "from pam import install, roles\n"
        "plain = roles.administrators\n"
        "roles.administrators = lambda kind, given, over: plain(kind, given, 0 if over == 1 else over)\n"
        "sys.exit(install.main(sys.argv[1:]))\n"
    )
    places = [
        "--library",
        f"{node}/library",
        "--state",
        f"{node}/state",
        "--role",
        "guard",
        "--service",
        "su",
    ]
    done = private_pam.run(node, [sys.executable, "-c", driver, "install", *places])
    assert done.returncode == 1, done
    assert "WRONG su, a session of root within a session: stays in its job" in done.stderr


def test_wrong_input(node: Path) -> None:
    cases = {
        ("install",): (2, "--role is missing"),
        ("install", *COMPUTE, "--service", "../x"): (2, "no name of a PAM service"),
        ("install", *COMPUTE, "--node", "a b"): (2, "no name of a node"),
        ("install", *COMPUTE, "--settings", "/no/such"): (3, "cannot be read"),
        ("install", *COMPUTE, "--service", "nosuch"): (1, "there is no /etc/pam.d/nosuch"),
        ("check", *COMPUTE): (1, "not as it should be"),
        ("remove", "--service", "nosuch"): (1, "cannot be read"),
    }
    for words, (code, said) in cases.items():
        done = installer(node, *words)
        assert (done.returncode, said in done.stderr) == (code, True), (words, done)
        assert "Traceback" not in done.stderr
    assert stack(node) == (node / "first").read_text()


def test_ctrl_c_and_a_closed_pipe(node: Path) -> None:
    """The signal comes while the installer waits for another one's lock."""
    (node / "state").mkdir()
    lock = node / "state/lock"
    places = ["--state", f"{node}/state", "--library", f"{node}/library"]
    words = ["/usr/bin/python3", str(ROOT / "pam/install.py"), "install", *LOGIN, *places]
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        argv = private_pam.line(node, words)
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 20
            while not any(path.resolve() == lock for path in Path(f"/proc/{process.pid}/fd").iterdir()):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=20)[1]
    assert (process.returncode, "interrupted:" in said, "Traceback" in said) == (130, True, False), said
    assert stack(node) == (node / "first").read_text()
    show = ["/usr/bin/python3", str(ROOT / "pam/install.py"), "show", *LOGIN]
    piped = private_pam.run(node, ["bash", "-o", "pipefail", "-c", '"$@" | head -n 1', "bash", *show])
    assert (piped.returncode, piped.stderr) == (0, "")


def test_somebody_else_cannot(node: Path) -> None:
    nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "/usr/bin/python3"]
    words = [str(ROOT / "pam/install.py"), "install", *COMPUTE, "--state", "/var/lib/hpctools-pam-none"]
    done = private_pam.run(node, [*nobody, *words])
    assert (done.returncode, "run this as root" in done.stderr) == (3, True), done
    assert stack(node) == (node / "first").read_text()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("before", "words"),
    [
        ((), ("install", *COMPUTE)),
        (("install", *LOGIN), ("install", *COMPUTE)),
        (("install", *COMPUTE), ("remove",)),
    ],
    ids=["first", "another-role", "remove"],
)
def test_killed_at_every_point(node: Path, before: tuple[str, ...], words: tuple[str, ...]) -> None:
    """The stack is the old one or the new one, with all that it needs, and an administrator gets in."""
    if before:
        assert installer(node, *before).returncode == 0
    old = stack(node)
    places = ["--library", f"{node}/library", "--state", f"{node}/state"]
    done = private_pam.run(node, [sys.executable, str(KILLER), str(node), *words, *places], limit=100)
    assert done.returncode == 0, done.stderr
    *killed, finished = json.loads(done.stdout)
    new = finished["text"]
    assert (finished["status"], finished["missing"], old != new) == (0, [], True)
    assert len(killed) > 10
    assert {entry["text"] for entry in killed} == {old, new}  # some before the switch, some after it
    assert [(i, entry) for i, entry in enumerate(killed) if entry["missing"] or not entry["root"]] == []


def test_a_run_after_a_kill_finishes_and_sweeps(node: Path) -> None:
    leavings = ("hpctools-trial-sshd-new", "hpctools-sshd-common-session-01234567", ".hpctools-unfinished-x")
    (node / "pam.d/.sshd.swp").write_text("an editor's")
    for name in leavings:
        (node / "pam.d" / name).write_text("auth required pam_deny.so\n")
    (node / "library/0123456789ab").mkdir(parents=True)
    assert installer(node, "install", *COMPUTE).returncode == 0
    assert names(node) & set(leavings) == set()
    assert len(list((node / "library").iterdir())) == 1
    assert (node / "pam.d/.sshd.swp").exists()


def test_services_with_names_alike_leave_one_another_alone(node: Path) -> None:
    """An included file that is gone would lock everybody out of the service that includes it."""
    (node / "pam.d/sshd-b").write_text((node / "first").read_text().replace("pam_mail.so", "pam_umask.so"))
    assert installer(node, "install", *COMPUTE).returncode == 0
    assert installer(node, "install", *COMPUTE, "--service", "sshd-b").returncode == 0
    copies = {name for name in names(node) if "common-session" in name}
    for words in (("install", *LOGIN), ("install", *COMPUTE), ("remove",)):
        assert installer(node, *words).returncode == 0
        assert installer(node, "check", *COMPUTE, "--service", "sshd-b").returncode == 0
        assert admitted(node, "root", service="sshd-b") == {"root": True}
    assert {name for name in names(node) if "common-session" in name} < copies
    assert installer(node, "remove", "--service", "sshd-b").returncode == 0
    assert (names(node), (node / "library").exists()) == (set(), False)


def test_administrators_get_in_while_the_stack_is_replaced(node: Path) -> None:
    """A list of administrators in a file of its own was empty 35 times in 200 while `sort | tee` wrote it."""
    code = (
        "import sys, threading\n"
        "from pam import install, trial\n"
        f"places = ['--library', '{node}/library', '--state', '{node}/state']\n"
        "def replace():\n"
        "    for turn in range(6):\n"
        "        install.main(['install', '--role', ('compute', 'login')[turn % 2], *places])\n"
        "worker = threading.Thread(target=replace)\n"
        "worker.start()\n"
        "answers = []\n"
        "while worker.is_alive():\n"
        "    answers.append(trial.attempt('sshd', 'root', 'account').admitted)\n"
        "print('answers', len(answers), all(answers))\n"
    )
    done = private_pam.run(node, ["/usr/bin/python3", "-c", code])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("nothing to do") == 0
    _, count, always = done.stdout.splitlines()[-1].split()
    assert int(count) > 20
    assert always == "True"


@pytest.mark.parametrize(
    ("script", "problems", "notes"),
    [
        ("echo usepam yes; echo kbdinteractiveauthentication no", 0, 0),
        ("echo usepam yes; echo kbdinteractiveauthentication yes", 0, 1),
        ("echo usepam no; echo kbdinteractiveauthentication no", 1, 0),
        ("echo no hostkeys available >&2; exit 1", 0, 1),
    ],
)
def test_an_sshd_that_does_not_ask_pam(tmp_path: Path, script: str, problems: int, notes: int) -> None:
    """Without UsePAM nothing of this counts, and everybody gets in."""
    program = tmp_path / "sshd"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    found = transaction.sshd_asks_pam(program)
    assert (len(found[0]), len(found[1])) == (problems, notes)
    assert transaction.sshd_asks_pam(tmp_path / "absent") == ([], [])
