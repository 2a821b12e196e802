"""hp-submit as a command: sbatch in its place, and elastic runs."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hpctools.cli.hp_submit import main
from hpctools.elastic.checkpoint.folder_store import FolderStore
from hpctools.elastic.checkpoint.manifest import Manifest
from hpctools.elastic.folder import RunFolder, RunStatus
from hpctools.errors import CommandError, ReleaseError, UnreachableError
from hpctools.slurm.limits import Account, Bounds, Limits, Precedence
from hpctools.slurm.run import HEARD
from hpctools.testing.slurm import FakeSlurm

SBATCH = """\
#!/bin/bash
# Answers as sbatch does, and keeps what it was given.
printf '%s\\0' "$@" > "$KEEP/argv"
[ -t 0 ] || cat > "$KEEP/stdin"
echo "sbatch: info from the site" >&2
echo "Submitted batch job 42"
exit "${SBATCH_SAYS:-0}"
"""


@pytest.fixture
def sbatch(tmp_path, monkeypatch):
    """A stand-in for sbatch on PATH; what it got lies in the folder that comes back."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sbatch").write_text(SBATCH)
    (folder / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("KEEP", str(tmp_path))
    monkeypatch.setenv("HPCTOOLS_RUNS", str(tmp_path / "runs"))
    for name in [name for name in os.environ if name.startswith(("SBATCH_", "SLURM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --time=5\nhostname\n")
    return tmp_path


def argv_of(folder: Path) -> list[str]:
    return (folder / "argv").read_text().split("\0")[:-1]


def hp_submit(*words: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "hpctools.cli.hp_submit", *words],
        input=stdin,
        env={**os.environ, **environment},
        capture_output=True,
        timeout=30,
        check=False,
    )


def test_a_plain_script_is_sbatchs_with_its_output_and_exit_code(sbatch):
    words = ["-HN", "2", "--job-name=a b", "--tim", "3", "job.sh", "--nodes", "2-6", "it's"]
    done = hp_submit(*words, SBATCH_SAYS="3")
    assert (done.returncode, done.stdout) == (3, b"Submitted batch job 42\n")
    assert done.stderr == b"sbatch: info from the site\n"
    assert argv_of(sbatch) == words


def test_a_range_after_the_script_is_left_to_it_with_a_word_of_warning(sbatch):
    done = hp_submit("job.sh", "--nodes", "2:6")
    assert argv_of(sbatch) == ["job.sh", "--nodes", "2:6"]
    assert done.stderr.decode().splitlines()[0] == (
        "hp-submit: --nodes 2:6 stands after the script, so it is the script's own argument; for an elastic "
        "run: hp-submit --nodes 2:6 job.sh"
    )


def test_our_flags_do_not_reach_sbatch_and_json_says_the_id(sbatch):
    (sbatch / "bin" / "sbatch").write_text(SBATCH.replace("Submitted batch job 42", "42;uni"))
    done = hp_submit("--debug", "--json", "-N2", "job.sh", "--json")
    assert json.loads(done.stdout) == {"elastic": False, "job_id": 42, "cluster": "uni"}
    assert argv_of(sbatch) == ["--parsable", "-N2", "job.sh", "--json"]


def test_a_command_becomes_a_script_on_standard_input(sbatch):
    done = hp_submit("--gpus", "4", "--", "python", "train.py", "a b")
    assert (done.returncode, done.stdout) == (0, b"Submitted batch job 42\n")
    assert argv_of(sbatch) == ["--gpus", "4", "--job-name=train.py"]
    script = "#!/bin/bash\n# Written by hp-submit around the command.\nexec -- python train.py 'a b'\n"
    assert (sbatch / "stdin").read_text() == script


@pytest.mark.parametrize("given", [{"words": ["-J", "mine"]}, {"environment": {"SBATCH_JOB_NAME": "mine"}}])
def test_a_job_name_that_was_given_stays(sbatch, given):
    hp_submit(*given.get("words", []), "--", "train", **given.get("environment", {}))
    assert "--job-name=train" not in argv_of(sbatch)


def test_a_script_from_standard_input_arrives_byte_for_byte(sbatch):
    script = b"#!/bin/bash\necho \xff\n"
    done = hp_submit("-N2", stdin=script)
    assert done.returncode == 0
    assert (sbatch / "stdin").read_bytes() == script


def test_what_ends_us_ends_sbatch_too(sbatch):
    """`hp-submit --wait` in a terminal that is closed."""
    waiting = '#!/bin/bash\necho "$$" > "$KEEP/pid"; echo waiting; exec sleep 60\n'
    (sbatch / "bin" / "sbatch").write_text(waiting)
    with subprocess.Popen(
        [sys.executable, "-m", "hpctools.cli.hp_submit", "--wait", "job.sh"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int((sbatch / "pid").read_text()), 0)


def test_when_the_controller_is_down_sbatch_says_so_and_we_say_how_to_check(sbatch):
    words = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
    (sbatch / "bin" / "sbatch").write_text(f"#!/bin/sh\necho '{words}' >&2\nexit 1\n")
    done = hp_submit("job.sh")
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        words,
        "hp-submit: slurmctld does not answer, nothing was submitted; `scontrol ping` shows when it is back",
    ]


NO_PARTITION = (
    "sbatch: error: Batch job submission failed: No partition specified or system default partition"
)
NAME_ONE = (
    "hp-submit: this cluster has no default partition: name yours with --partition (`sinfo -s` lists them)"
)


def test_where_there_is_no_default_partition_we_say_how_to_find_one(sbatch):
    (sbatch / "bin" / "sbatch").write_text(f"#!/bin/sh\necho '{NO_PARTITION}' >&2\nexit 1\n")
    done = hp_submit("job.sh")
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [NO_PARTITION, NAME_ONE]


def test_without_sbatch_the_error_is_one_line(sbatch):
    done = hp_submit("job.sh", PATH="/nowhere")
    assert (done.returncode, done.stdout) == (1, b"")
    line = b"hp-submit: cannot start sbatch: No such file or directory; install sbatch or put it on PATH\n"
    assert done.stderr == line


def test_a_plain_dry_run_shows_the_command_and_the_script_and_touches_nothing(sbatch):
    done = hp_submit("--dry-run", "--gpus", "4", "--", "python", "a b.py")
    assert done.stdout.decode() == (
        "# submit\nsbatch --gpus 4 '--job-name=a b.py'\n# with this batch script on standard input\n"
        "#!/bin/bash\n# Written by hp-submit around the command.\nexec -- python 'a b.py'\n"
    )
    assert not (sbatch / "argv").exists()


def test_a_plain_dry_run_as_json(sbatch):
    done = hp_submit("--dry-run", "--json", "-N2", "job.sh", "x")
    command = ["sbatch", "-N2", "job.sh", "x"]
    assert json.loads(done.stdout) == {"elastic": False, "command": command, "script": None}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nothing.sh"], 1, "there is no script"),
        (["."], 1, "is a folder"),
        (["--nodes", "6:2", "job.sh"], 2, "did you mean --nodes 2:6?"),
        (["--nodes", "0:3", "job.sh"], 2, "at least 1 node"),
        (["--nodes", "a:b", "job.sh"], 2, "is not a range of nodes"),
        (["--nodes", "2:", "job.sh"], 2, "is not a range of nodes"),
        (["--nodes"], 2, "option --nodes needs a value"),
        (["-N2", "--"], 2, "a command belongs after --"),
        (["-N2:60", "job.sh"], 1, "partition gpu has only 6 nodes"),
        (["-N2:6", "-n4", "job.sh"], 1, "--ntasks is not for an elastic run"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(sbatch, capfd, words, code, message):
    slurm = FakeSlurm()
    assert main(words, client=lambda: slurm) == code
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("hp-submit: ")
    assert message in err
    assert not slurm.submitted
    assert not (sbatch / "argv").exists()
    assert not (sbatch / "runs").exists()


def test_a_folder_that_is_gone_is_one_line_too(sbatch):
    (sbatch / "gone").mkdir()
    os.chdir(sbatch / "gone")
    (sbatch / "gone").rmdir()
    program = (
        "import sys; sys.path[0] = '/'; from hpctools.cli.hp_submit import main; sys.exit(main(['x.sh']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)


def test_debug_shows_where_it_happened(sbatch):
    done = hp_submit("--debug", "nothing.sh")
    assert done.returncode == 1
    assert b"Traceback" in done.stderr


@pytest.mark.parametrize("words", [["nothing.sh", "--debug"], ["--", "srun", "--debug"]])
def test_debug_among_the_words_of_the_script_is_the_scripts(sbatch, words):
    done = hp_submit("-N1:2", *words, PATH="/nowhere")
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)


def test_debug_counts_also_when_the_line_cannot_be_read(sbatch):
    assert b"Traceback" in hp_submit("--debug", "--nodes").stderr


def test_a_script_from_a_pipe_arrives_although_it_can_be_read_only_once(sbatch):
    script = b"#!/bin/sh\n#SBATCH -N 1\necho \xff\n"
    done = hp_submit("-H", "/dev/stdin", "a", "--x", stdin=script)
    assert (done.returncode, done.stdout) == (0, b"Submitted batch job 42\n")
    assert argv_of(sbatch) == ["-H", "/dev/stdin", "a", "--x"]
    assert (sbatch / "stdin").read_bytes() == script


def test_json_of_a_submission_without_a_job_says_so(sbatch):
    (sbatch / "bin" / "sbatch").write_text("#!/bin/sh\necho 'Job 5 to start at ...' >&2\n")
    done = hp_submit("--json", "--test-only", "job.sh")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"elastic": False, "job_id": None, "cluster": ""}


def test_json_and_quiet_contradict_each_other_before_anything_is_submitted(sbatch):
    done = hp_submit("--json", "-Q", "job.sh")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert not (sbatch / "argv").exists()


@pytest.mark.parametrize(
    ("words", "redirection", "code", "lines"),
    [
        ("--help", ">/dev/full", 1, 1),
        ("--dry-run job.sh", ">/dev/full", 1, 1),
        ("--help", ">&-", 0, 0),
        ("--dry-run job.sh", ">&-", 0, 0),
        ("nothing.sh", ">&- 2>&-", 1, 0),
    ],
)
def test_output_that_cannot_be_written_is_one_line_and_never_a_traceback(
    sbatch, words, redirection, code, lines
):
    # Unbuffered, Python has nothing left to write at its exit.
    command = f"unset PYTHONUNBUFFERED; {sys.executable} -m hpctools.cli.hp_submit {words} {redirection}"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (code, lines)


def test_a_hangup_that_we_were_told_to_ignore_is_ignored(sbatch, capfd):
    slurm = FakeSlurm(on_submit=lambda job: os.kill(os.getpid(), signal.SIGHUP))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert main(["-N2:6", "--", "train"], client=lambda: slurm) == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert [job.state for job in slurm.queue.values()] == ["PENDING"]


def test_a_uid_without_a_name_is_one_line(sbatch, capfd, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert main(["-N2:6", "--", "train"], client=FakeSlurm) == 1
    assert capfd.readouterr().err.startswith("hp-submit: your uid 4000000 has no name on this machine; ")


def test_a_place_for_runs_that_cannot_be_looked_at_is_named_with_a_remedy(sbatch, capfd, monkeypatch):
    monkeypatch.setenv("HPCTOOLS_RUNS", str(sbatch / ("x" * 300)))
    assert main(["-N2:6", "--", "train"], client=FakeSlurm) == 1
    error = capfd.readouterr().err
    assert "File name too long" in error
    assert "or set HPCTOOLS_RUNS to a folder that all nodes share" in error


def test_an_elastic_run_is_submitted_and_says_how_to_follow_it(sbatch, capfd):
    slurm = FakeSlurm()
    assert main(["-N2:6", "--", "train"], client=lambda: slurm) == 0
    out, err = capfd.readouterr()
    (run,) = (sbatch / "runs").iterdir()
    assert out == (
        f"Submitted batch job 101\nElastic run {run.name}: 2 to 6 nodes; see: hp-status {run.name}\n"
    )
    assert err == ""
    assert slurm.submitted[0].script == run / "baseline.sh"
    spec = RunFolder(run).spec()
    assert (spec.command, spec.min_nodes, spec.max_nodes) == (("train",), 2, 6)
    assert spec.workdir == str(sbatch)


def test_the_script_of_an_elastic_run_is_kept_beside_it(sbatch):
    (sbatch / "job.sh").write_bytes(b"#!/bin/sh\n#SBATCH -N 1:2\necho \xff\n")
    assert main(["job.sh", "x y"], client=FakeSlurm) == 0
    (run,) = (sbatch / "runs").iterdir()
    assert (run / "script").read_bytes() == b"#!/bin/sh\n#SBATCH -N 1:2\necho \xff\n"
    assert RunFolder(run).spec().command == (str(run / "script"), "x y")


@pytest.mark.parametrize(
    ("flag", "output"),
    [("--parsable", "101\n"), ("--quiet", "")],
)
def test_an_elastic_run_answers_as_tersely_as_sbatch(sbatch, capfd, flag, output):
    assert main(["-N2:6", flag, "--", "train"], client=FakeSlurm) == 0
    assert capfd.readouterr().out == output


def test_an_elastic_run_as_json(sbatch, capfd):
    assert main(["--json", "-N2:6", "--", "train"], client=FakeSlurm) == 0
    (run,) = (sbatch / "runs").iterdir()
    values = {"elastic": True, "run": run.name, "job_id": 101, "folder": str(run)}
    assert json.loads(capfd.readouterr().out) == values


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--nodes=2:6"], "sbatch: job 101 is in partition b\nsbatch: error: -S is ignored\n"),
        (["--array=1-3", "--nodes=2:6"], "sbatch: job 101 is in partition b\nsbatch: error: -S is ignored\n"),
        (["--json", "--nodes=2:6"], "sbatch: job 101 is in partition b\nsbatch: error: -S is ignored\n"),
        (["--quiet", "--nodes=2:6"], "sbatch: error: -S is ignored\n"),
    ],
)
def test_what_sbatch_says_besides_is_shown_once(sbatch, capfd, words, shown):
    """Words of a site's job_submit plugin and sbatch's warnings, as for a plain job."""

    def say(job):
        HEARD.get()(f"sbatch: job {job.id} is in partition b\nsbatch: error: -S is ignored\n")

    assert main([*words, "--", "train"], client=lambda: FakeSlurm(on_submit=say)) == 0
    assert capfd.readouterr().err == shown


@pytest.mark.parametrize("failure", [UnreachableError, ReleaseError])
def test_an_elastic_dry_run_touches_nothing_even_without_a_controller(sbatch, capfd, failure):
    slurm = FakeSlurm(failure=failure("Slurm's controller does not answer"))
    assert main(["--dry-run", "-N2:6", "--", "train"], client=lambda: slurm) == 0
    out, err = capfd.readouterr()
    assert "--role baseline" in out
    assert "\nsbatch --parsable --nodes=2 --job-name=train" in out
    assert "the number of nodes is not checked: Slurm's controller does not answer" in err
    assert not (sbatch / "runs").exists()
    assert not slurm.submitted


def test_an_elastic_dry_run_as_json(sbatch, capfd):
    assert main(["--dry-run", "--json", "-N2:6", "--", "train"], client=FakeSlurm) == 0
    assert json.loads(capfd.readouterr().out)["files"].keys() == {"baseline.sh", "replica.sh"}


def test_a_policy_file_says_how_large_the_run_is_and_the_cluster_whether_it_may(sbatch, capfd):
    policy = sbatch / "policy.yaml"
    policy.write_text("elasticPolicy:\n  replicaDiscreteValues: [1, 2, 4]\n")
    slurm = FakeSlurm()
    words = ["--elastic-policy", "policy.yaml", "-A", "nlp", "--", "train"]
    assert main(words, client=lambda: slurm) == 0
    assert "1, 2 or 4 nodes; see: hp-status" in capfd.readouterr().out
    tight = Account("nlp", False, ("high", "elastic"), (Bounds("account nlp", group={"node": 3}),))
    known = Limits("nlp1", frozenset({"limits", "associations"}), (tight,), {"elastic": Bounds("")}, {}, {})
    assert main(words, client=lambda: slurm, limits=lambda user: known) == 1
    assert capfd.readouterr().err == (
        "hp-submit: --nodes 1,2,4 takes up to 4 nodes and account nlp may have 3 (GrpTRES node); ask for "
        "at most 2 nodes\n"
    )
    assert len(slurm.submitted) == len(list((sbatch / "runs").iterdir())) == 1


def test_whose_baseline_may_be_preempted_is_told_so_and_it_is_submitted(sbatch, capfd):
    mine = Account("nlp", True, ("low", "medium", "elastic"))
    taken = Precedence({"critical": frozenset({"low", "elastic"})})
    known = Limits(
        "nlp1",
        frozenset(),
        (mine,),
        {"elastic": Bounds("")},
        {"elastic": 9},
        {},
        preempt_type="qos",
        precedence=taken,
    )
    slurm = FakeSlurm()
    assert main(["-N1:2", "--parsable", "--", "train"], client=lambda: slurm, limits=lambda user: known) == 0
    assert capfd.readouterr() == (
        "101\n",
        "hp-submit: the baseline job, which should stay, may be preempted: its QoS low yields to critical; "
        "give it "
        "one that nobody takes: --qos=medium\n",
    )


@pytest.mark.parametrize(
    "error",
    [
        CommandError("sacctmgr failed", argv=["sacctmgr"], code=1),
        ReleaseError("scontrol's node line is none"),
    ],
)
def test_limits_that_cannot_be_asked_for_keep_nobody_from_submitting(sbatch, capfd, error):
    def refuse(user: str) -> Limits:
        raise error

    assert main(["-N1:2", "--", "train"], client=FakeSlurm, limits=refuse) == 0
    assert capfd.readouterr().err == f"hp-submit: limits are not checked: {error}\n"


def test_a_policy_that_is_none_is_told_line_by_line_and_nothing_is_submitted(sbatch, capfd):
    (sbatch / "policy.yaml").write_text("elasticPolicy:\n  minReplica: 1\n  maxReplicas: 4\n")
    assert main(["--elastic-policy=policy.yaml", "--", "train"], client=FakeSlurm) == 1
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == (
        "hp-submit: policy.yaml line 2: elasticPolicy.minReplica: is not known here; did you mean "
        "minReplicas?"
    )
    assert not (sbatch / "runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--elastic-mode", "live", "job.sh"], "--elastic-mode is for an elastic run; say how many nodes"),
        (["--resume=x", "--", "train"], "--resume is for an elastic run"),
        (
            ["-N1:2", "--elastic-mode=fast", "--", "x"],
            "--elastic-mode=fast: there is no such mode; give live or",
        ),
        (["--elastic-policy"], "option --elastic-policy needs a value"),
        (["--elastic-policy", "", "--", "x"], "--elastic-policy is given an empty name; name a policy"),
        (["--elastic-policy=", "-N1:2", "--", "x"], "--elastic-policy is given an empty name; name a"),
    ],
)
def test_words_about_elastic_runs_have_their_place(sbatch, capfd, words, message):
    assert main(words, client=FakeSlurm) == 2
    assert message in capfd.readouterr().err


def test_a_policy_that_is_a_folder_is_named(sbatch, capfd):
    (sbatch / "policy.yaml").mkdir()
    assert main(["--elastic-policy", "policy.yaml", "-N1:2", "--", "train"], client=FakeSlurm) == 1
    assert capfd.readouterr().err == (
        "hp-submit: cannot read the policy policy.yaml: is a directory; check the name after "
        "--elastic-policy\n"
    )


@pytest.mark.parametrize("words", [["job.sh"], ["-N1:2", "--", "train"], ["--cluster", "uni", "job.sh"]])
def test_a_folder_that_is_gone_is_said(sbatch, capfd, monkeypatch, words):
    gone = sbatch / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("PWD", str(gone))
    gone.rmdir()
    assert main(words, client=FakeSlurm) == 1
    assert capfd.readouterr().err == (
        f"hp-submit: {gone} is gone, and a job starts in the folder of its submission; go to one that is "
        "there (cd), and submit again\n"
    )


def test_a_place_of_runs_that_is_no_folder_is_said(sbatch, capfd, monkeypatch):
    monkeypatch.setenv("HPCTOOLS_RUNS", "/dev/full")
    for words in (["-N1:2", "--", "train"], ["--dry-run", "-N1:2", "--", "train"]):
        assert main(words, client=FakeSlurm) == 1
        assert capfd.readouterr().err == (
            "hp-submit: /dev/full is no folder; set HPCTOOLS_RUNS to a folder that all nodes share\n"
        )


def test_what_a_restart_mode_script_saves_is_its_own(sbatch, capfd):
    (sbatch / "policy.yaml").write_text(
        "elasticPolicy: {scalingTimeoutInSeconds: 1}\ncheckpoint: {keep: 5}\n"
    )
    policy = ["-N1:2", "--elastic-policy=policy.yaml"]
    for words in (["--elastic-mode=restart", "--", "train"], ["--", "torchrun", "train.py"]):
        assert main([*policy, *words], client=FakeSlurm) == 1
        assert capfd.readouterr().err == (
            "hp-submit: policy.yaml line 2: checkpoint: is for the loaders of hpctools.elastic, and in "
            "restart mode a script saves by itself; leave the section out, or train with elastic.Loader, "
            "without --elastic-mode=restart or torchrun\n"
        )
    assert main([*policy, "--", "train"], client=FakeSlurm) == 0


def test_rules_that_nothing_could_meet_in_restart_mode_are_refused(sbatch, capfd):
    words = ["-N1:2", "--elastic-mode=restart", "--elastic-policy=policy.yaml", "--", "train"]
    for rule, why in (
        ("nonFinite: true", "nobody tells numbers of the loop"),
        ("lossSpike: {}", "nobody tells numbers of the loop"),
        ("lossSpike: {ratio: 3}", "nobody tells numbers of the loop"),
        ("crash: {do: [replaceNode, fail]}", "every crash restarts the ranks"),
    ):
        (sbatch / "policy.yaml").write_text(f"metrics:\n  {rule}\n")
        assert main(words, client=FakeSlurm) == 1
        assert capfd.readouterr().err == (
            f"hp-submit: policy.yaml line 2: metrics.{rule.partition(':')[0]} does nothing in restart mode, "
            f"where {why}; leave it out; runPolicy.restartPolicy says how often ranks are restarted, and "
            "logMonitoringConfiguration watches lines that the script prints\n"
        )
    (sbatch / "policy.yaml").write_text("metrics: {hang: {seconds: 60}, stalledStep: true}\n")
    assert main(words, client=FakeSlurm) == 0


def test_the_values_of_our_options_are_not_sbatchs(sbatch, capfd):
    (sbatch / "policy.yaml").write_text("checkpoint: {keep: 5}\n")
    words = ["--dry-run", "--elastic-policy", "policy.yaml", "--elastic-mode=live", "-N1:2", "--", "train"]
    assert main(words, client=FakeSlurm) == 0
    commands = [line for line in capfd.readouterr().out.splitlines() if line.startswith("sbatch")]
    assert len(commands) == 2
    assert not any("elastic-policy" in each or "policy.yaml" in each for each in commands)


def test_an_array_is_one_run_an_index_and_a_dependency_may_name_it(sbatch, capfd):
    slurm = FakeSlurm()
    assert main(["--json", "-N1:2", "--array=0-2", "--", "train"], client=lambda: slurm) == 0
    runs = json.loads(capfd.readouterr().out)["runs"]
    assert [each["job_id"] for each in runs] == [101, 102, 103]
    told = [(Path(each["folder"]) / "array-job").exists() for each in runs]
    assert told == [False, True, True], "the first one's first job finds out by itself"
    assert (Path(runs[2]["folder"]) / "array-job").read_text() == "101\n"
    array = runs[0]["run"].removesuffix("_0")
    assert [each["run"] for each in runs] == [f"{array}_{n}" for n in range(3)]
    assert main(["--dependency", f"afterok:{array}", "job.sh"]) == 0
    assert argv_of(sbatch)[-2:] == ["--dependency=afterok:101:102:103", "job.sh"]
    assert main(["--dependency=afterok:101", "job.sh"]) == 0
    assert argv_of(sbatch)[-2:] == ["--dependency=afterok:101", "job.sh"]
    capfd.readouterr()
    assert main(["--dependency=afterok:nonsense-1", "job.sh"]) == 1
    assert (
        capfd.readouterr().err == "hp-submit: there is no run nonsense-1; hp-status --all lists your runs\n"
    )


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
@pytest.mark.parametrize("indices", ["3", "3-4"])
def test_an_array_is_a_list_for_programs_also_of_one_index(sbatch, capfd, dry, indices):
    """A script with `--array=$missing` found no `runs` when a single index was missing."""
    words = ["--json", *dry, "-N1:2", f"--array={indices}", "--", "train"]
    assert main(words, client=FakeSlurm) == 0
    said = json.loads(capfd.readouterr().out)
    assert set(said) == {"elastic", "runs"}
    assert [each["run"].rpartition("_")[2] for each in said["runs"]] == indices.split("-")


def test_a_run_is_resumed_when_it_has_ended(sbatch, capfd):
    assert main(["-N1:2", "--", "train"], client=FakeSlurm) == 0
    (first,) = (sbatch / "runs").iterdir()
    RunFolder(first).write_status(RunStatus("running"))
    assert main(["-N1:4", "--resume", first.name, "--", "train"], client=FakeSlurm) == 1
    assert f"run {first.name} is running; end it first: hp-cancel {first.name}" in capfd.readouterr().err
    RunFolder(first).write_status(RunStatus("failed"))
    assert main(["-N1:4", "--resume", first.name, "--", "train"], client=FakeSlurm) == 1
    said = f"hp-submit: there is no whole checkpoint in {first}; leave out --resume, or name a run that has"
    assert capfd.readouterr().err.startswith(said)
    store = FolderStore(first / "checkpoints")
    store.commit(store.begin(3, "test"), Manifest(3), 0)
    assert main(["-N1:4", "--resume", first.name, "--", "train"], client=FakeSlurm) == 0
    (second,) = set((sbatch / "runs").iterdir()) - {first}
    spec = RunFolder(second).spec()
    assert (spec.resumed_from, spec.checkpoint) == (str(first), {"resumeFrom": str(first)})
    capfd.readouterr()
    for words in (["--elastic-mode=restart", "--", "train"], ["--", "torchrun", "train.py"]):
        assert main(["-N1:4", "--resume", first.name, *words], client=FakeSlurm) == 2
        assert "in restart mode a script has its own; leave it out" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("job", "known", "code"),
    [("COMPLETING", {}, 1), ("CANCELLED", {}, 0), ("COMPLETING", {"step": 3}, 0)],
)
def test_a_run_is_not_resumed_while_it_may_still_save(sbatch, capfd, job, known, code):
    """Its next checkpoint would be newer than what is gone on from; its coordinator tells the last step."""
    slurm = FakeSlurm()
    assert main(["-N1:2", "--", "train"], client=lambda: slurm) == 0
    (first,) = (sbatch / "runs").iterdir()
    RunFolder(first).write_status(RunStatus("cancelled"))
    RunFolder(first).append_event("cancelled", message="by somebody", **known)
    slurm.change(101, state=job)
    store = FolderStore(first / "checkpoints")
    store.commit(store.begin(3, "test"), Manifest(3), 0)
    capfd.readouterr()
    assert main(["-N1:4", "--resume", first.name, "--", "train"], client=lambda: slurm) == code
    said = (
        f"run {first.name} may still be saving: its job 101 has not ended; wait until `squeue -j 101` shows"
    )
    assert (said in capfd.readouterr().err) == bool(code)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("PENDING", "has not begun; end it first: hp-cancel {run}"),
        ("RUNNING", "has not begun; end it first: hp-cancel {run}"),
        (
            "COMPLETING",
            "may still be saving: its job 101 has not ended; "
            "wait until `squeue -j 101` shows it no more, and submit again",
        ),
    ],
)
def test_who_resumes_a_run_that_nobody_has_heard_of_yet_is_not_told_to_wait_for_its_end(
    sbatch, capfd, job, said
):
    """It would never come: the run has all before it. One that is being ended has not."""
    slurm = FakeSlurm()
    assert main(["-N1:2", "--", "train"], client=lambda: slurm) == 0
    (first,) = (sbatch / "runs").iterdir()
    slurm.change(101, state=job)
    capfd.readouterr()
    assert main(["-N1:4", "--resume", first.name, "--", "train"], client=lambda: slurm) == 1
    assert capfd.readouterr().err == f"hp-submit: run {first.name} {said.format(run=first.name)}\n"


def test_a_controller_that_is_down_is_exit_code_3(sbatch, capfd):
    failure = UnreachableError("Slurm's controller does not answer", "check it with `scontrol ping`")
    assert main(["-N2:6", "--", "train"], client=lambda: FakeSlurm(failure=failure)) == 3
    line = "hp-submit: Slurm's controller does not answer; check it with `scontrol ping`\n"
    assert capfd.readouterr().err == line
    assert not (sbatch / "runs").exists()


def test_a_refusal_is_passed_on_in_sbatchs_own_words(sbatch, capfd, monkeypatch):
    words = "sbatch: error: Batch job submission failed: Invalid account"

    def refuse(*arguments: object) -> int:
        raise CommandError("sbatch failed", argv=["sbatch"], code=1, stderr=words)

    slurm = FakeSlurm()
    monkeypatch.setattr(slurm, "submit", refuse)
    assert main(["-N2:6", "--", "train"], client=lambda: slurm) == 1
    assert capfd.readouterr().err == f"{words}\n"
    assert list((sbatch / "runs").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_while_submitting_leaves_neither_job_nor_folder(sbatch, capfd, number):
    slurm = FakeSlurm(on_submit=lambda job: os.kill(os.getpid(), number))
    slurm.user = pwd.getpwuid(os.getuid()).pw_name
    assert main(["-N2:6", "--", "train"], client=lambda: slurm) == 130
    assert capfd.readouterr().err == "hp-submit: interrupted\n"
    assert [job.state for job in slurm.queue.values()] == ["CANCELLED"]
    assert list((sbatch / "runs").iterdir()) == []


def test_the_interpreter_of_the_nodes_can_be_chosen(sbatch, capfd, monkeypatch):
    monkeypatch.setenv("HPCTOOLS_PYTHON", "/usr/bin/env")
    assert main(["--dry-run", "-N1:2", "--", "x"], client=FakeSlurm) == 0
    assert "\npython=/usr/bin/env\n" in capfd.readouterr().out
    monkeypatch.setenv("HPCTOOLS_PYTHON", "python3")
    assert main(["--dry-run", "-N1:2", "--", "x"], client=FakeSlurm) == 1
    assert "python3 is no Python interpreter; set HPCTOOLS_PYTHON" in capfd.readouterr().err


@pytest.mark.parametrize(("words", "start"), [(["-h"], "Usage: hp-submit"), (["-V"], "hp-submit 0.")])
def test_help_and_version_are_ours_wherever_they_stand_among_the_options(sbatch, capfd, words, start):
    assert main(["-N2", *words, "job.sh"]) == 0
    assert capfd.readouterr().out.startswith(start)
    assert not (sbatch / "argv").exists()


SLOW = {
    "asyncio",
    "click",
    "ClusterShell",
    "ctypes",
    "email",
    "http",
    "hypothesis",
    "json",
    "logging",
    "numpy",
}
SLOW |= {
    "argparse",
    "pydantic",
    "rich",
    "secrets",
    "socket",
    "ssl",
    "tempfile",
    "torch",
    "urllib.request",
    "yaml",
}


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["job.sh"], ["--", "train"]])
def test_nothing_slow_is_imported_on_the_way_to_sbatch(sbatch, words):
    """Importing is what makes a small Python command slow; time itself is measured by bench/startup.py."""
    program = (
        "import sys; from hpctools.cli.hp_submit import main; code = main(sys.argv[1:]); "
        "print(*sys.modules, sep='\\n'); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    modules = set(done.stdout.splitlines())
    assert "hpctools.cli.hp_submit" in modules
    assert not modules & SLOW
    own = {module for module in modules if module.startswith("hpctools.")}
    assert own <= {
        "hpctools.cli", "hpctools.cli.connection", "hpctools.cli.ending", "hpctools.cli.hp_submit",
        "hpctools.cli.output", "hpctools.errors", "hpctools.python_command", "hpctools.slurm",
        "hpctools.slurm.run", "hpctools.slurm.sbatch_options", "hpctools.submit", "hpctools.submit.batch",
        "hpctools.submit.intent", "hpctools.submit.nodes", "hpctools.submit.plain", "hpctools.submit.script",
        "hpctools.submit.wrappers",
    }  # fmt: skip
