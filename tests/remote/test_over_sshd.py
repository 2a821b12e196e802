"""A laptop and a real sshd, with people of other uids and their shells."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hpctools.cli import hp_logs
from hpctools.remote import session
from tests.remote.cut import cutter
from tests.remote.rig import Here, Rig, keygen
from tests.remote.token_agent import token_agent

WORDS = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
    | st.sampled_from(
        ["", " ", "a b", "'", '"', "\n", "\r", "$(id)", "`id`", "\\", "*", "!!", "~", ";", "-n", "--"]
    ),
    max_size=6,
)


def test_a_submission_and_what_becomes_of_it(cluster: Rig) -> None:
    """The whole way of a first job: submit, look, read, fetch, cancel."""
    (cluster.folder / "jobs/run").touch()
    done = cluster.run("hp-submit", "--cluster", "uni", "--json", "job.sh", "a b")
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    name = said["id"]
    folder = f"/home/lab1/hp-runs/{name}"
    assert said == {"elastic": False, "id": name, "job_id": 1, "run": "", "cluster": "", "folder": folder}
    (job,) = cluster.jobs
    assert cluster.words(job) == ["--parsable", f"{folder}/job.sh", "a b"]
    assert (job / "cwd").read_text() == f"{folder}\n"
    there = cluster.on_cluster("lab1") / "hp-runs" / name
    assert (there.stat().st_uid, oct(there.stat().st_mode & 0o777)) == (41001, "0o700")
    (job / "state").write_text("COMPLETED\n")
    log = cluster.run("hp-logs", "--follow", name)
    assert (log.returncode, log.stdout, log.stderr) == (0, "hello a b\n", "hp-logs: job 1 COMPLETED\n")
    status = cluster.run("hp-status", "--cluster", "uni", name).stdout
    assert status.splitlines()[:3] == [
        f"submission  {name}",
        "job         1 COMPLETED",
        f"folder      {folder}",
    ]
    fetched = cluster.run("hp-fetch", name, "--to", "results")
    assert fetched.stdout.splitlines() == ["results/job.sh", "results/slurm-1.out"]
    assert (cluster.home / "results/slurm-1.out").read_text() == "hello a b\n"
    (cluster.home / "results/job.sh").write_text("mine\n")
    again = cluster.run("hp-fetch", name, "--to", "results")
    assert (again.returncode, again.stdout) == (1, "")
    assert "left as it is" in again.stderr
    assert (cluster.home / "results/job.sh").read_text() == "mine\n"
    (job / "state").unlink()
    ended = cluster.run("hp-cancel", "--cluster", "uni", name)
    assert (ended.returncode, ended.stdout) == (0, f"{name}: cancelled job 1\n")
    assert (job / "state").read_text() == "CANCELLED\n"


@pytest.mark.parametrize("user", ["lab1", "lab2"])
def test_words_arrive_as_they_were(here: Here, cluster: Rig, user: str, thorough: bool) -> None:
    """Through bash and dash as login shells, with a startup file that prints something."""
    cluster.configure({"login1": cluster.logins[0].port}, user=user)
    (cluster.on_cluster(user) / ".bashrc").write_text("echo welcome; printf 'no line break'\n")

    @given(WORDS, WORDS)
    @example(["\r", "a\r\nb"], ["\r"])
    @settings(deadline=None, max_examples=15 if thorough else 3)
    def arrive(arguments: list[str], comment: list[str]) -> None:
        cluster.clear()
        option = f"--comment={' '.join(comment)}"
        code, _, err = here("--cluster", "uni", "--json", option, "job.sh", *arguments)
        assert code == 0, err
        (job,) = cluster.jobs
        first, second, script, *rest = cluster.words(job)
        assert [first, second, rest] == ["--parsable", option, arguments]
        assert script.startswith(f"/home/{user}/hp-runs/job.sh-")

    arrive()


def test_names_of_files_arrive_as_they_were(here: Here, cluster: Rig) -> None:
    names = ["a b.txt", "c'd\"e.txt", "f\ng.txt", "$(touch oops).txt", "-rf.txt", "\u00fc\udcff.txt", "*.txt"]
    data = cluster.home / "data"
    data.mkdir(exist_ok=True)
    for name in names:
        (data / name).write_text(name, errors="surrogateescape")
    code, out, err = here("--cluster", "uni", "--json", "--upload", "data", "job.sh")
    assert code == 0, err
    there = cluster.on_cluster("lab1") / "hp-runs" / json.loads(out)["id"] / "data"
    assert {p.name: p.read_text(errors="surrogateescape") for p in there.iterdir()} == {n: n for n in names}


def test_names_arrive_as_they_were_whatever_the_locale_there(here: Here, cluster: Rig) -> None:
    """Python itself takes UTF-8 in place of C's locale, but not of Latin-1's, which not every machine has."""
    login = cluster.start("ascii", more="LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0")
    try:
        cluster.configure({"ascii": login.port})
        cluster.know(login.port)
        (cluster.home / "\u00fc\u65e5.txt").write_text("1")
        code, out, err = here(
            "--cluster", "uni", "--json", "--upload", "\u00fc\u65e5.txt", "job.sh", "\u65e5"
        )
        assert code == 0, err
        there = cluster.on_cluster("lab1") / "hp-runs" / json.loads(out)["id"]
        assert (there / "\u00fc\u65e5.txt").read_text() == "1"
        assert cluster.words(cluster.jobs[-1])[-1] == "\u65e5"
    finally:
        login.stop()


def test_a_line_that_breaks_anywhere_makes_one_job(here: Here, cluster: Rig, thorough: bool) -> None:
    """Cut after any number of bytes, twice; the third connection holds."""
    (cluster.home / "big.bin").write_bytes(random.Random(7).randbytes(600_000))
    port = cluster.logins[0].port

    @given(st.integers(0, 615_000) | st.integers(0, 9000), st.integers(0, 615_000) | st.integers(0, 9000))
    @settings(
        deadline=None,
        max_examples=25 if thorough else 4,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    def submit(first: int, second: int) -> None:
        cluster.clear()
        with cutter(port, first, second) as line:
            cluster.know(port, line.port)
            cluster.configure({"login1": line.port})
            code, _, err = here("--cluster", "uni", "--upload", "big.bin", "job.sh")
            if line.cut == 0 or "speaks no SSH" not in err or code == 0:
                assert code == 0, err
                assert len(cluster.jobs) == 1
            else:
                # It broke before a word was said: nothing was sent, and it is told so.
                assert (code, cluster.jobs) == (3, [])

    submit()


def test_what_was_sent_before_a_break_is_not_sent_again(here: Here, cluster: Rig) -> None:
    size = 12_000_000
    (cluster.home / "big.bin").write_bytes(random.Random(8).randbytes(size))
    port = cluster.logins[0].port
    with cutter(port, 8_000_000) as line:
        cluster.know(port, line.port)
        cluster.configure({"login1": line.port})
        code, out, err = here("--cluster", "uni", "--json", "--upload", "big.bin", "job.sh")
    assert code == 0, err
    # What sshd had and not passed on yet, two megabytes at most, is lost with the connection.
    assert (line.cut, line.carried < 8_000_000 + 7_000_000) == (1, True)
    there = cluster.on_cluster("lab1") / "hp-runs" / json.loads(out)["id"] / "big.bin"
    assert there.read_bytes() == (cluster.home / "big.bin").read_bytes()


def test_output_is_followed_through_breaks_without_a_byte_twice(cluster: Rig) -> None:
    (cluster.home / "job.sh").write_text("#!/bin/bash\nseq 1 40000\n")
    (cluster.folder / "jobs/run").touch()
    name = json.loads(cluster.run("hp-submit", "--cluster", "uni", "--json", "job.sh").stdout)["id"]
    (cluster.jobs[0] / "state").write_text("COMPLETED\n")
    port = cluster.logins[0].port
    with cutter(port, 40_000, 90_000) as line:
        cluster.know(port, line.port)
        cluster.configure({"login1": line.port})
        log = cluster.run("hp-logs", "-f", name)
    assert log.returncode == 0, log.stderr
    assert log.stdout == "".join(f"{n}\n" for n in range(1, 40001))
    assert line.cut == 2


def test_one_session_at_a_time_is_enough_to_follow_what_was_submitted(here: Here, cluster: Rig) -> None:
    """`MaxSessions 1`: the cluster's side still asks Slurm where the job writes, after its answer."""
    for each in ("run", "slow"):
        (cluster.folder / "jobs" / each).touch()
    login = cluster.start("single", settings={"MaxSessions": "1"})
    cluster.know(login.port)
    cluster.configure({"single": login.port})
    code, out, err = here("--cluster", "uni", "--follow", "job.sh", "a b")
    assert (code, "hello a b" in out, "broke" in err) == (0, True, False), err
    assert err.endswith("job 1 COMPLETED\n")
    assert login.log.read_text().count("Accepted publickey") == 1


def test_a_host_that_gives_no_session_is_passed_over(here: Here, cluster: Rig) -> None:
    """It is asked for one once; where there is no other host, nothing was submitted."""
    login = cluster.start("none", settings={"MaxSessions": "0"})
    cluster.know(login.port, cluster.logins[0].port)
    cluster.configure({"none": login.port})
    code, _, err = here("--cluster", "uni", "job.sh")
    said = "hp-submit: none lets us in and gives no session: Connect failed"
    assert (code, cluster.jobs, err.startswith(said)) == (1, [], True), err
    assert login.log.read_text().count("Accepted publickey") == 1
    cluster.configure({"none": login.port, "login1": cluster.logins[0].port})
    code, _, err = here("--cluster", "uni", "job.sh")
    assert (code, len(cluster.jobs), err) == (0, 1, f"{said}\n")


@pytest.mark.parametrize(("state", "code"), [("COMPLETED", 0), ("FAILED", 1), ("TIMEOUT", 1)])
def test_followed_from_the_submission_on_its_exit_code_is_the_jobs(
    here: Here, cluster: Rig, state: str, code: int
) -> None:
    (cluster.folder / "jobs/run").write_text(state)
    assert here("--cluster", "uni", "--follow", "job.sh", "a b")[0] == code


@pytest.mark.usefixtures("here")
@pytest.mark.timeout(45)  # less than what is waited for a first word
def test_output_is_followed_on_after_a_line_that_fell_silent_without_an_end(
    cluster: Rig, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The lid was closed: no end of the connection ever comes, and after a while there is another network."""
    (cluster.home / "job.sh").write_text("#!/bin/bash\nseq 1 40000\n")
    (cluster.folder / "jobs/run").touch()
    name = json.loads(cluster.run("hp-submit", "--cluster", "uni", "--json", "job.sh").stdout)["id"]
    (cluster.jobs[0] / "state").write_text("COMPLETED\n")
    monkeypatch.setattr(session, "SILENT_SECONDS", 2.0)
    port = cluster.logins[0].port
    with cutter(port, 90_000, silent=True) as line:
        cluster.know(port, line.port)
        cluster.configure({"login1": line.port})
        code = hp_logs.main(["-f", name])
    said = capfdbinary.readouterr()
    assert (code, line.cut) == (0, 1), said.err
    assert said.out.decode() == "".join(f"{number}\n" for number in range(1, 40001))
    assert b"trying again" in said.err


def test_the_same_id_is_submitted_once_and_sbatchs_no_is_ours(here: Here, cluster: Rig) -> None:
    name = "mine-0123456789ab"
    first = here("--cluster", "uni", "--submission", name, "job.sh")
    second = here("--cluster", "uni", "--submission", name, "job.sh")
    assert (first[0], second[0], len(cluster.jobs)) == (0, 0, 1)
    assert second[1].startswith("Submitted batch job 1 (it was there already)\n")
    (cluster.folder / "jobs/refuse").write_text("sbatch: error: invalid partition specified: nope\n")
    code, out, err = here("--cluster", "uni", "-p", "nope", "job.sh")
    assert (code, out) == (1, "")
    assert "sbatch: error: invalid partition specified: nope" in err


def test_an_answer_that_sbatch_lost_is_found_in_the_queue(here: Here, cluster: Rig) -> None:
    (cluster.folder / "jobs/lose").touch()
    code, out, err = here("--cluster", "uni", "job.sh")
    assert (code, len(cluster.jobs)) == (0, 1), err
    assert out.startswith("Submitted batch job 1\n")


def test_another_login_node_is_taken_when_one_is_away(here: Here, cluster: Rig) -> None:
    port = cluster.logins[0].port
    with cutter(port) as gone:
        pass
    cluster.configure({"login1": port, "login2": gone.port})  # which is the first of lab1's own order
    code, _, err = here("--cluster", "uni", "job.sh")
    assert (code, len(cluster.jobs)) == (0, 1)
    assert err.startswith("hp-submit: login2 (127.0.0.1, port ")
    assert "does not answer" in err


def test_a_host_that_is_not_known_gets_nothing_until_somebody_trusts_it(here: Here, cluster: Rig) -> None:
    """Whoever compares fingerprints may; nobody else, and nothing by itself."""
    known = cluster.home / ".ssh/known_hosts"
    known.unlink()
    code, _, err = here("--cluster", "uni", "job.sh")
    assert (code, cluster.jobs) == (1, [])
    assert "is not known: ssh-ed25519 SHA256:" in err
    assert "hp-submit trust login1" in err
    code, out, _ = here("trust", "uni")
    assert (code, known.exists()) == (1, False)
    code, out, err = here("trust", "uni", "--fingerprint", "SHA256:nonsense")
    assert (code, known.exists()) == (1, False)
    key = cluster.folder / "etc/host_key.pub"
    listed = subprocess.run(["ssh-keygen", "-lf", str(key)], capture_output=True, text=True, check=True)
    code, out, _ = here("trust", "uni", "--fingerprint", listed.stdout.split()[1])
    assert (code, oct(known.stat().st_mode & 0o777)) == (0, "0o600")
    assert f"ssh-ed25519 {listed.stdout.split()[1]}" in out
    assert here("trust", "uni") == (0, "login1 is known already\n", "")
    assert here("--cluster", "uni", "job.sh")[0] == 0


def test_a_host_with_another_key_gets_nothing_and_is_not_trusted(
    here: Here, cluster: Rig, tmp_path: Path
) -> None:
    keygen(other := tmp_path / "k")
    known = cluster.home / ".ssh/known_hosts"
    known.write_text(f"[127.0.0.1]:{cluster.logins[0].port} {other.with_suffix('.pub').read_text()}")
    before = known.read_text()
    for words in (("--cluster", "uni", "job.sh"), ("trust", "uni", "--fingerprint", "x")):
        code, _, err = here(*words)
        assert code == 1
        assert "shows another host key than the known one" in err
    assert (known.read_text(), cluster.jobs) == (before, [])
    cluster.know(cluster.logins[0].port)


def test_through_a_jump_host_and_through_a_program(here: Here, cluster: Rig) -> None:
    port = cluster.logins[0].port
    cluster.know(port)
    hop = f"Host inner\n  HostName 127.0.0.1\n  Port {port}\n  ProxyJump login1\n"
    piped = f"ProxyCommand ssh -F {cluster.home}/.ssh/config -W %h:%p login1"
    program = f"Host piped\n  HostName 127.0.0.1\n  Port {port}\n  {piped}\n"
    for name in ("inner", "piped"):
        cluster.configure({"login1": port}, more=hop + program)
        config = cluster.home / ".config/hpctools/clusters.yaml"
        config.write_text(config.read_text().replace("[login1]", f"[{name}]"))
        code, _, err = here("--cluster", "uni", "job.sh")
        assert code == 0, err
    assert len(cluster.jobs) == 2


def test_a_key_of_the_agent_and_one_with_a_passphrase(
    here: Here, cluster: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked where nobody is; the agent has it."""
    ssh = cluster.home / ".ssh"
    (ssh / "key").rename(ssh / "elsewhere")
    try:
        code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, "does not let lab1 in with no key" in err) == (1, True)
        agent = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
        parts = dict(part.split("=", 1) for part in agent.replace(";", "\n").splitlines() if "=" in part)
        monkeypatch.setenv("SSH_AUTH_SOCK", parts["SSH_AUTH_SOCK"])
        try:
            subprocess.run(["ssh-add", "-q", str(ssh / "elsewhere")], check=True)
            assert here("--cluster", "uni", "job.sh")[0] == 0
        finally:
            os.kill(int(parts["SSH_AGENT_PID"]), 15)
    finally:
        (ssh / "elsewhere").rename(ssh / "key")


def test_a_token_of_the_agent_lets_in(
    here: Here, cluster: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A FIDO key: the token signs in the agent, a real sshd checks it."""
    ssh, admitted = cluster.home / ".ssh", cluster.folder / "etc/authorized_keys"
    before = admitted.read_text()
    (ssh / "key").rename(ssh / "elsewhere")
    try:
        with token_agent(tmp_path / "agent") as agent:
            admitted.write_text(agent.public_line)
            monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
            code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, agent.touched) == (0, 1), err
    finally:
        admitted.write_text(before)
        (ssh / "elsewhere").rename(ssh / "key")


def test_a_host_certificate_is_enough_and_its_authority_can_be_trusted(here: Here, cluster: Rig) -> None:
    authority = cluster.folder / "etc/ca"
    keygen(authority)
    argv = ["ssh-keygen", "-q", "-s", str(authority), "-I", "login", "-h", "-n", "127.0.0.1"]
    subprocess.run([*argv, str(cluster.folder / "etc/host_key.pub")], check=True, capture_output=True)
    login = cluster.start("signed", f"HostCertificate {cluster.folder}/etc/host_key-cert.pub")
    known = cluster.home / ".ssh/known_hosts"
    try:
        cluster.configure({"signed": login.port})
        known.unlink(missing_ok=True)
        listed = subprocess.run(
            ["ssh-keygen", "-lf", f"{authority}.pub"], capture_output=True, text=True, check=True
        )
        code, out, err = here("trust", "uni", "--fingerprint", listed.stdout.split()[1])
        assert (code, "the authority that signed the host key of signed" in out) == (0, True), err
        assert known.read_text().startswith(f"@cert-authority [127.0.0.1]:{login.port} ssh-ed25519 ")
        assert here("--cluster", "uni", "job.sh")[0] == 0
    finally:
        login.stop()
        cluster.know(cluster.logins[0].port)


def test_a_cluster_without_hp_submit_says_so(here: Here, cluster: Rig) -> None:
    config = cluster.home / ".config/hpctools/clusters.yaml"
    config.write_text("clusters:\n  uni: {login_nodes: [login1], command: no-such-hp-submit}\n")
    code, _, err = here("--cluster", "uni", "job.sh")
    assert code == 1
    assert "login1 has no `no-such-hp-submit`" in err


def test_a_startup_file_that_ends_the_session_is_no_broken_line(here: Here, cluster: Rig) -> None:
    startup = cluster.on_cluster("lab1") / ".bashrc"
    startup.write_text("echo 'Welcome to uni'\nexit\n")
    try:
        code, _, err = here("--cluster", "uni", "job.sh")
    finally:
        startup.unlink()
    assert code == 1
    assert "login1 ended the session before" in err
    assert "Welcome to uni" in err
    assert "--submission" not in err  # nobody has read the request


def test_a_shell_in_the_place_of_hp_submit_obeys_no_word_of_ours(
    here: Here, cluster: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`exec zsh` in ~/.bashrc: it ran what stood in `$(...)` of an argument, and the script."""
    monkeypatch.setattr(session, "BEGIN_SECONDS", 1.0)
    startup = cluster.on_cluster("lab1") / ".bashrc"
    startup.write_text("exec sh\n")
    (cluster.home / "job.sh").write_text("#!/bin/bash\n: >ran\n")
    try:
        code, _, err = here("--cluster", "uni", "job.sh", "$(: >obeyed)")
    finally:
        startup.unlink()
    assert (code, "start another shell there" in err, "--submission" in err) == (1, True, False), err
    assert not {"ran", "obeyed"} & {each.name for each in cluster.on_cluster("lab1").iterdir()}


def test_a_submission_is_known_without_naming_its_cluster(here: Here, cluster: Rig) -> None:
    """hp-status and hp-cancel read the diary, too; what is not in it is asked for here."""
    config = cluster.home / ".config/hpctools/clusters.yaml"
    config.write_text(config.read_text().replace("default: uni\n", ""))
    name = json.loads(here("--cluster", "uni", "--json", "job.sh")[1])["id"]
    status = cluster.run("hp-status", name)
    assert (status.returncode, f"submission  {name}" in status.stdout) == (0, True), status.stderr
    ended = cluster.run("hp-cancel", name)
    assert (ended.returncode, ended.stdout) == (0, f"{name}: cancelled job 1\n"), ended.stderr
    unknown = cluster.run("hp-status", "other-0123456789ab")
    assert unknown.returncode != 0
    assert "which cluster?" not in unknown.stderr


@pytest.mark.parametrize("words", [["--quiet", "job.sh"], ["-Q", "job.sh"]])
def test_who_wants_to_hear_nothing_does_not(here: Here, cluster: Rig, words: list[str]) -> None:
    assert here("--cluster", "uni", *words) == (0, "", "")
    assert len(cluster.jobs) == 1


def test_hp_login_becomes_an_ssh_with_options_and_a_command(cluster: Rig) -> None:
    """At the port and as the person of ssh's configuration, as hp-submit goes."""
    port = cluster.logins[0].port
    cluster.configure({"login1": port}, more="Host *\n  BatchMode yes\n")
    done = cluster.run("hp-login", "--", "-T", "-o", "SendEnv=LANG", "echo", "$(id -un)", "-t", "a b")
    assert (done.returncode, done.stdout.endswith("lab1 -t a b\n")) == (0, True), done
    assert done.stderr.startswith("hp-login: login1: the first that answers, in your own order of the list")
