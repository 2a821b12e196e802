"""The programs that the stacks call, by themselves; on real sshds they are in tests/system/test_pam.py."""

from __future__ import annotations

import fcntl
import importlib
import io
import json
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

PROGRAMS = Path(__file__).parents[2] / "pam" / "programs"
UID = pwd.getpwnam("daemon").pw_uid


def call(
    name: str, *words: str, changes: dict[str, str] | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program, as it is or with some of its text changed."""
    text = (PROGRAMS / name).read_text()
    for old, new in (changes or {}).items():
        assert old in text
        text = text.replace(old, new)
    interpreter = ["/bin/sh", "-c"] if text.startswith("#!/bin/sh") else ["/usr/bin/python3", "-IS", "-c"]
    first = [name] if text.startswith("#!/bin/sh") else []
    argv = [*interpreter, text, *first, *words]
    env = {"PAM_USER": "daemon", **environment}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (f"6:freezer:/slurm/uid_{UID}/job_5/step_extern", 0),
        (f"6:freezer:/slurm_n1/uid_{UID}/job_5/step_extern", 0),
        (f"6:freezer:/box/slurm_n1/uid_{UID}/job_5/step_extern/task_0", 0),
        ("0::/system.slice/slurmstepd.scope/job_12/step_extern/user/task_special", 0),
        ("0::/system.slice/n1_slurmstepd.scope/job_12/step_extern/user", 0),
        (
            "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_extern/user/task_special",
            0,
        ),  # from 26.05 on
        ("0::/hpc.slice/n1_slurmstepd.scope/sEKNKTV3WPV500/step_extern", 0),
        ("0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0", 1),
        ("0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0", 1),
        ("0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/step_extern/x", 1),
        ("0::/system.slice/slurmstepd.scope/job_12/step_0/user/step_extern", 1),
        ("0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500", 1),
        ("0::/system.slice/slurmstepd.scope/system/step_extern", 1),
        ("0::/system.slice/slurmstepd.scope/job_12/step_extern_not/user", 1),
        (f"6:freezer:/slurm/uid_{UID}7/job_5/step_extern", 1),
        ("6:freezer:/slurm/uid_0/job_5/step_extern", 1),
        (f"6:freezer:/slurm/uid_{UID}", 1),
        (f"6:freezer:/user/slurmish/uid_{UID}/job_5", 1),
        (f"0::/user.slice/user-{UID}.slice/session-3.scope", 1),
        ("0::/system.slice/slurmd.service", 1),
    ],
)
def test_adopted_knows_the_cgroup_of_a_job_of_the_user(tmp_path: Path, line: str, code: int) -> None:
    """Paths of cgroup v1 and v2; another's job is none."""
    file = tmp_path / "cgroup"
    file.write_text(f"9:name=systemd:/\n{line}\n0::/\n")
    done = call("adopted", changes={"/proc/self/cgroup": str(file)}, PAM_TYPE="open_session")
    assert (done.returncode, bool(done.stdout)) == (code, bool(code))
    assert call("adopted", changes={"/proc/self/cgroup": str(file)}, PAM_TYPE="close_session").returncode == 0


ME = {'"$uid" = 0': f'"$uid" = {os.getuid()}'}  # slurmd's user here
WAIT = ("-c", "read line")  # until standard input ends


def slurmd_runs(*words: str, changes: dict[str, str] = ME) -> int:
    return call("slurmd-runs", *words, changes=changes).returncode


def until_named(process: subprocess.Popen[bytes], name: str) -> None:
    """Wait until a process has become the program that it was started as."""
    deadline = time.monotonic() + 5
    while Path(f"/proc/{process.pid}/comm").read_text() != f"{name}\n":
        assert time.monotonic() < deadline


def program(folder: Path, name: str) -> Path:
    """A shell of this name."""
    return Path(shutil.copy("/bin/sh", folder / name))


@pytest.mark.parametrize("name", ["slurmd", "slurmd-wlm"])
def test_slurmd_runs(tmp_path: Path, name: str) -> None:
    """By its pid file, else by its name; another program with its number, or nobody, is not it."""
    slurmd = program(tmp_path, name)
    pid_file = tmp_path / "slurmd.pid"
    with subprocess.Popen([slurmd, *WAIT], stdin=subprocess.PIPE) as process:
        until_named(process, name)
        pid_file.write_text(f"{process.pid}\n")
        assert slurmd_runs(str(pid_file), "no-such-node") == 0
        slurmd.unlink()  # a package's new version takes its place
        assert slurmd_runs(str(pid_file), "no-such-node") == 0
        process.kill()
    stale = call("slurmd-runs", str(pid_file), "no-such-node", changes=ME)
    assert (stale.returncode, "slurmd does not run on this node" in stale.stdout) == (1, True)
    pid_file.write_text(f"{os.getpid()}\n")
    assert slurmd_runs(str(pid_file), "no-such-node") == 1
    pid_file.unlink()
    assert slurmd_runs(str(pid_file), "no-such-node") == 1


def test_slurmd_is_found_by_its_name_alone(tmp_path: Path) -> None:
    """Daemons of systemd have no pid file since 23.11."""
    slurmd, node = program(tmp_path, "slurmd"), f"node-{os.getpid()}"
    assert slurmd_runs("/nonexistent", node) == 1
    with subprocess.Popen([slurmd, *WAIT, "-N", node], stdin=subprocess.PIPE) as process:
        until_named(process, "slurmd")
        assert slurmd_runs("/nonexistent", node) == 0
        assert slurmd_runs("/nonexistent", f"{node}0") == 1


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter; pytest's are closed."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.system  # another user's process takes root to start
def test_somebody_elses_slurmd_opens_nothing(open_folder: Path, tmp_path: Path) -> None:
    """Neither by the pid file's number, used again, nor by its name."""
    slurmd, node = program(open_folder, "slurmd"), f"node-{os.getpid()}"
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    pid_file = tmp_path / "slurmd.pid"
    with subprocess.Popen([*become, slurmd, *WAIT, "-N", node], stdin=subprocess.PIPE) as process:
        until_named(process, "slurmd")
        pid_file.write_text(f"{process.pid}\n")
        theirs = {'"$uid" = 0': '"$uid" = 65534'}
        assert slurmd_runs(str(pid_file), node, changes=theirs) == 0  # it is refused for its owner alone
        assert slurmd_runs(str(pid_file), node, changes={}) == 1
        assert slurmd_runs("/nonexistent", node, changes={}) == 1


def test_a_link_to_a_program_that_is_roots_opens_nothing(tmp_path: Path) -> None:
    """sudo that asks for a password is root's, under whatever name one calls it."""
    link, node = tmp_path / "slurmd", f"node-{os.getpid()}"
    link.symlink_to("/bin/sh")
    with subprocess.Popen([link, *WAIT, "-N", node], stdin=subprocess.PIPE) as process:
        until_named(process, "slurmd")
        assert slurmd_runs("/nonexistent", node) == 1


def squeue(folder: Path, script: str) -> dict[str, str]:
    program = folder / "squeue"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {'PATHS = "/usr/local/bin:': f'PATHS = "{folder}:'}


def test_no_job_is_said_at_once(tmp_path: Path) -> None:
    """And Slurm is asked about this user on this node, no wider."""
    changes = squeue(tmp_path, f'echo "$@" >{tmp_path}/asked')
    begin = time.monotonic()
    done = call("job-starting", "10", "n1", changes=changes)
    assert (done.returncode, done.stdout) == (
        1,
        "You have no running job on n1. Logging in here takes one: sbatch or salloc first.\n",
    )
    assert time.monotonic() - begin < 5
    assert "--user=daemon --nodelist=n1 --states=RUNNING,CONFIGURING" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize("script", ["exit 1", "sleep 30"])
def test_a_controller_that_does_not_answer_is_no_reason_to_let_in(tmp_path: Path, script: str) -> None:
    changes = {**squeue(tmp_path, script), "ANSWER_SECONDS = 4": "ANSWER_SECONDS = 0.5"}
    done = call("job-starting", "10", "n1", changes=changes)
    assert (done.returncode, "its controller does not answer" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("freezer/slurm_n1/uid_{uid}/job_7", "7"),
        ("system.slice/n1_slurmstepd.scope/job_7", "7 %s"),  # as squeue says from 23.02 to 25.05
        ("system.slice/n1_slurmstepd.scope/sEKNKTV3WPV500", "7 sEKNKTV3WPV500"),
        ("hpc.slice/n1_slurmstepd.scope/job_7", "7 sEKNKTV3WPV500"),  # CgroupSlice, CgroupJobIdPaths
    ],
)
def test_a_job_that_starts_is_waited_for(tmp_path: Path, layout: str, said: str) -> None:
    step = tmp_path / "cgroup" / layout.format(uid=UID) / "step_extern/user"
    changes = {**squeue(tmp_path, f"echo '{said}'"), "/sys/fs/cgroup": str(tmp_path / "cgroup")}
    assert "Your job 7 is still starting on n1" in call("job-starting", "0.3", "n1", changes=changes).stdout
    step.mkdir(parents=True)
    (step / "cgroup.procs").write_text("")
    slow = {**changes, "SETTLED_SECONDS = 0.5": "SETTLED_SECONDS = 1000"}
    assert call("job-starting", "0.3", "n1", changes=slow).returncode == 1  # nothing in it yet
    assert call("job-starting", "5", "n1", changes=changes).returncode == 0  # there will be nothing in it
    (step / "cgroup.procs").write_text("1\n")
    assert call("job-starting", "5", "n1", changes=slow).returncode == 0


def limit(
    folder: Path, *words: str, changes: dict[str, str] | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Ask for a session; this process is the connection, always the same."""
    argv = [str(os.getpid()), *words[:2], str(folder), *words[2:]]
    return call("session_limit.py", *argv, changes=changes, **environment)


def test_the_same_connection_may_ask_again(tmp_path: Path) -> None:
    """PAM's account phase may run twice for one login."""
    assert [limit(tmp_path, "1", "1").returncode for _ in range(3)] == [0, 0, 0]
    assert len(list((tmp_path / str(UID)).iterdir())) == 1


def test_what_pam_calls_is_kept_compiled_and_lets_in_when_damaged(tmp_path: Path) -> None:
    for name in ("session-limit", "session_limit.py"):
        shutil.copy(PROGRAMS / name, tmp_path)
    argv = [f"{tmp_path}/session-limit", str(os.getpid()), "1", "0", f"{tmp_path}/deep/er/s"]

    def asked() -> subprocess.CompletedProcess[str]:
        env = {"PAM_USER": "daemon", "PAM_RHOST": "192.0.2.7"}
        words = ["/bin/sh", "-c", 'umask 0; exec "$@"', "sh", *argv]
        return subprocess.run(words, env=env, capture_output=True, text=True, timeout=20, check=False)

    assert asked().returncode == 0
    (claim,) = (tmp_path / "deep/er/s" / str(UID)).iterdir()
    assert claim.read_text().endswith("\t192.0.2.7\n")
    (compiled,) = (tmp_path / "__pycache__").iterdir()
    assert compiled.name.startswith("session_limit.")
    assert not (compiled.stat().st_mode | compiled.parent.stat().st_mode) & 0o022
    claim.rename(claim.with_name(f"1-{Path('/proc/1/stat').read_text().split()[21]}"))
    assert (asked().returncode, asked().stdout.splitlines()[0].rpartition(" on ")[0]) == (
        77, "daemon: you have 1 sessions",
    )  # fmt: skip
    (tmp_path / "session_limit.py").unlink()
    compiled.unlink()
    assert asked().returncode not in (0, 77)  # PAM's rule lets in whatever is not 77


def test_the_break_glass_file_lifts_the_nodes_own_limit_and_the_fleets(tmp_path: Path) -> None:
    """Whatever the agent would say, and though it does not answer; who comes in is counted afterwards."""
    others, changes = tmp_path / "s" / str(UID), {"/etc/hpctools/login-unlimited": f"{tmp_path}/lifted"}
    others.mkdir(parents=True)
    (others / f"1-{Path('/proc/1/stat').read_text().split()[21]}").write_text("")
    words = ("1", "1", f"unix:{tmp_path}/none", "refuse")
    assert limit(tmp_path / "s", *words, changes=changes).returncode == 77
    (tmp_path / "lifted").touch()
    done = limit(tmp_path / "s", *words, changes=changes)
    assert (done.returncode, len(list(others.iterdir()))) == (0, 2)
    assert limit(tmp_path / "s", "1", "1", "/bin/false", changes=changes).returncode == 0
    (tmp_path / "lifted").unlink()
    assert limit(tmp_path / "s", *words, changes=changes).returncode == 77


def test_claims_of_the_dead_count_no_more(tmp_path: Path) -> None:
    """A pid alone does not name a process: it may be another's by now."""
    claims = tmp_path / str(UID)
    claims.mkdir()
    (claims / f"{os.getpid()}-1").write_text("another process of this pid\n")
    (claims / "4194304-5").write_text("")
    (claims / "nonsense").write_text("")
    assert limit(tmp_path, "1", "1").returncode == 0
    assert len(list(claims.iterdir())) == 1


def test_folders_of_people_who_have_left_do_not_stay(tmp_path: Path) -> None:
    """Each login looked into all of them, under the lock: with 20,000 people for longer than others wait."""
    for number in (70_001, 70_002):
        (tmp_path / str(number)).mkdir()
    (tmp_path / "70001" / "4194304-5").write_text("")
    assert limit(tmp_path, "1", "1").returncode == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == [str(UID), "lock"]


def test_the_hook_may_refuse_and_cannot_break(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    cases = {
        f'echo "$@" >{tmp_path}/asked; exit 0': (0, ""),
        "echo no more for you; exit 77": (77, "no more for you\n"),
        "exit 77": (77, "You may not open another session now.\n"),
        "echo broken; exit 1": (0, ""),
        "sleep 30": (0, ""),
    }
    for script, expected in cases.items():
        hook.write_text(f"#!/bin/sh\n{script}\n")
        hook.chmod(0o755)
        done = limit(tmp_path / "s", "5", "5", str(hook), changes={"HOOK_SECONDS = 3": "HOOK_SECONDS = 0.5"})
        assert (done.returncode, done.stdout) == expected, script
    # Of the connection: this process, or its parent where that is a Python too (tests in several processes).
    (claim,) = (path.name for path in (tmp_path / "s" / str(UID)).iterdir())
    assert (tmp_path / "asked").read_text() == f"open daemon {claim.replace('-', ' ')}\n"
    assert int(claim.partition("-")[0]) in (os.getpid(), os.getppid())
    hook.unlink()
    assert limit(tmp_path / "s", "5", "5", str(hook)).returncode == 0


@contextmanager
def agent(path: Path, answer: bytes | None) -> Iterator[list[bytes]]:
    """An agent that answers one question with this, or with None never; what it was asked."""
    asked: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(10)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                asked.append(connection.makefile("rb").readline())
                if answer is None:
                    ended.wait(10)
                else:
                    connection.sendall(answer)

        ended = Event()
        thread = Thread(target=serve)
        thread.start()
        yield asked
        ended.set()
        thread.join(10)


@pytest.mark.parametrize(
    ("answer", "otherwise", "expected"),
    [
        (b'{"granted": true, "message": ""}\n', "refuse", (0, "")),
        (b'{"message": "", "granted": true}\n', "refuse", (0, "")),
        (
            b'{"granted": false, "message": "daemon: 4 sessions:\\n  one"}\n',
            "open",
            (77, "daemon: 4 sessions:\n  one\n"),
        ),
        (b'{"granted": false, "message": ""}\n', "open", (77, "You may not open another session now.\n")),
        (b'{"error": "the agent failed"}\n', "open", (0, "")),
        (b"nonsense", "open", (0, "")),
        (b"", "open", (0, "")),
        (None, "open", (0, "")),
        (b"[]\n", "refuse", (77, "The agent of this node does not answer: try another login node.\n")),
        (None, "refuse", (77, "The agent of this node does not answer: try another login node.\n")),
    ],
)
def test_the_agent_is_asked_and_what_is_wrong_with_it_is_as_the_site_says(
    tmp_path: Path, answer: bytes | None, otherwise: str, expected: tuple[int, str]
) -> None:
    path, folder = tmp_path / "agent.sock", tmp_path / "s"
    quick = {"HOOK_SECONDS = 3": "HOOK_SECONDS = 0.5"}
    with agent(path, answer) as asked:
        done = limit(folder, "5", "5", f"unix:{path}", otherwise, changes=quick, PAM_RHOST='2001:db8::7"\n')
    assert (done.returncode, done.stdout) == expected
    (claim,) = (file.name for file in (folder / str(UID)).iterdir())
    assert json.loads(asked[0]) == {
        "ask": "lease", "user": "daemon", "claim": claim, "origin": '2001:db8::7"',
    }  # fmt: skip


def test_without_an_agent_it_is_as_the_site_says(tmp_path: Path) -> None:
    words = (tmp_path / "s", "5", "5", f"unix:{tmp_path}/none")
    assert [limit(*words, otherwise).returncode for otherwise in ("open", "refuse")] == [0, 77]


@pytest.mark.parametrize("damage", ["file", "read-only"])
def test_a_limit_that_cannot_count_lets_in(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "sessions"
    if damage == "file":
        folder.write_text("")
    else:
        folder = Path("/proc/sessions")
    assert limit(folder, "1", "1").returncode == 0


@contextmanager
def held_lock(folder: Path) -> Iterator[None]:
    """Somebody else has the lock and does not give it back."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


IMPATIENT = {"LOCK_SECONDS = 2.0": "LOCK_SECONDS = 0.2"}


def test_a_lock_that_is_held_does_not_lock_the_node(tmp_path: Path) -> None:
    with held_lock(tmp_path):
        assert limit(tmp_path, "1", "1", changes=IMPATIENT).returncode == 0


REFUSAL = b'{"granted": false, "message": "daemon: 4 sessions"}\n'


def test_the_agent_is_asked_also_when_the_lock_is_held(tmp_path: Path) -> None:
    """The node's own count is one limit, the fleet's another: what fails is the first alone."""
    with held_lock(tmp_path), agent(tmp_path / "agent.sock", REFUSAL) as asked:
        done = limit(tmp_path, "1", "1", f"unix:{tmp_path}/agent.sock", "open", changes=IMPATIENT)
    assert (done.returncode, done.stdout, len(asked)) == (77, "daemon: 4 sessions\n", 1)


def test_a_full_disk_leaves_the_fleets_limit(tmp_path: Path) -> None:
    """The claim cannot be written; the agent decides, and so does `refuse` where there is none."""
    full = {'f"{folder}/{uid}/{claim}", "w"': '"/dev/full", "w"'}
    with agent(tmp_path / "agent.sock", REFUSAL) as asked:
        done = limit(tmp_path, "5", "5", f"unix:{tmp_path}/agent.sock", "open", changes=full)
    assert (done.returncode, len(asked)) == (77, 1)
    without = [
        limit(tmp_path, "5", "5", f"unix:{tmp_path}/none", word, changes=full) for word in ("open", "refuse")
    ]
    assert [done.returncode for done in without] == [0, 77]
    assert limit(tmp_path, "5", "5", changes=full).returncode == 0


def test_words_that_a_locale_has_no_letters_for_let_nobody_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """LANG=de_DE.ISO-8859-1 and a dash of a drain's message: it could not be said, and they were let in."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    program, said = importlib.import_module("session_limit"), io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(said, "iso8859-1", line_buffering=True))
    answer = '{"granted": false, "message": "login-1 ist zu \\u2013 für heute"}\n'.encode()
    monkeypatch.setattr(program, "exchange", lambda *_: answer)
    monkeypatch.setenv("PAM_USER", "daemon")
    words = ["session-limit", str(os.getpid()), "0", "0", str(tmp_path / "s"), "unix:none", "open"]
    monkeypatch.setattr("sys.argv", words)
    assert (program.run(), said.getvalue().decode("latin-1")) == (77, "login-1 ist zu ? für heute\n")


def test_an_address_that_is_no_text_is_counted_as_any(tmp_path: Path) -> None:
    """sshd's UseDNS may hand on what a name server made up."""
    odd = os.fsdecode(b"caf\xe9.example")
    assert limit(tmp_path, "1", "1", PAM_RHOST=odd).returncode == 0
    (claim,) = (tmp_path / str(UID)).iterdir()
    assert claim.read_text().endswith("\tcaf?.example\n")
