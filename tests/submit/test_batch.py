"""Generated batch scripts, carried out by a real bash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hpctools.slurm.sbatch_options import read_directives
from hpctools.submit import batch
from hpctools.submit.nodes import NodeSizes

# Any bytes but NUL can be an argument; those that are no UTF-8 arrive as surrogates, as in sys.argv.
words = st.binary(max_size=30).filter(lambda data: b"\0" not in data).map(os.fsdecode)
TELL = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"


def bash(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a script from standard input, as slurmd would run its copy."""
    return subprocess.run(
        ["bash", "-s", *arguments],
        input=os.fsencode(script),
        env={**os.environ, **environment},
        capture_output=True,
        timeout=20,
        check=False,
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(words, max_size=5))
@example(
    ["a\r\nb", "$'x'", "#SBATCH --hold", "\n#SBATCH --hold\n", "", "-n", "it's", '"', "\\", "`id`", "$(id)"]
)
def test_a_wrapped_command_gets_every_argument_as_it_was(arguments):
    script = batch.wrapped([sys.executable, "-c", TELL, *arguments])
    done = bash(script)
    assert done.stderr == b""
    assert done.stdout == b"\0".join(map(os.fsencode, arguments))
    assert "\r" not in script  # sbatch refuses a script with DOS line endings
    assert read_directives(script, "x") == ()


def test_a_wrapped_command_keeps_its_exit_code():
    assert bash(batch.wrapped([sys.executable, "-c", "raise SystemExit(7)"])).returncode == 7


@pytest.fixture
def fake_programs(tmp_path: Path) -> Path:
    """A srun and a python that say how they were called, and a srun exit code from a file."""
    folder = tmp_path / "bin"
    folder.mkdir()
    layout = "$SLURM_CPU_BIND$SLURM_CPUS_PER_TASK$SLURM_TRES_BIND"
    tell = f'#!/bin/bash\nprintf "%s\\0" "${{0##*/}}" "$PWD" "{layout}" "$@"; printf "\\n"\n'
    (folder / "srun").write_text(tell + "exit 9\n")
    (folder / "py").write_text(tell)
    for name in ("srun", "py"):
        (folder / name).chmod(0o755)
    return folder


names = words.filter(
    lambda name: name not in ("", ".", "..") and "/" not in name and len(os.fsencode(name)) < 80
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=names)
@example(name="-rf * $(id) `id` 'a' \"b\"\n\r\\")
def test_the_baseline_starts_one_agent_a_node_then_cancels_replicas_and_keeps_the_exit_code(
    tmp_path: Path, fake_programs: Path, name: str
):
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    python = str(fake_programs / "py")
    script = batch.baseline("r-1", str(folder), python, NodeSizes.between(2, 6), ())
    done = bash(
        script,
        PATH=f"{fake_programs}:{os.environ['PATH']}",
        SLURM_CPU_BIND="quiet",
        SLURM_CPUS_PER_TASK="8",
        SLURM_TRES_BIND="gres/gpu:single:1",
    )
    run = os.fsencode(folder)
    assert done.stderr == b""
    assert done.returncode == 9
    srun, cancel = done.stdout.split(b"\0\n")[:-1]
    shell = srun.split(b"\0")[10:14]
    assert (shell[:2], shell[3]) == ([b"bash", b"-c"], b"agent")
    assert srun.split(b"\0")[:10] + srun.split(b"\0")[14:] == [
        b"srun", run, b"",
        b"--nodes=2", b"--ntasks=2", b"--ntasks-per-node=1", b"--cpu-bind=none", b"--export=ALL", b"--wait=0",
        b"--kill-on-bad-exit=0",
        os.fsencode(python), b"-m", b"hpctools.elastic.agent", b"--run-dir", run, b"--role", b"baseline",
    ]  # fmt: skip
    assert cancel.split(b"\0") == [b"py", run, b"", b"-m", b"hpctools.cli.hp_cancel", b"--replicas", run]


@pytest.mark.parametrize("asked", [{"SLURM_CPUS_PER_TASK": "8"}, {}])
def test_what_a_job_asked_for_each_task_is_kept_for_the_workers(
    asked: dict[str, str], tmp_path: Path, fake_programs: Path
) -> None:
    """And not what the job has that submitted it."""
    (fake_programs / "srun").write_text(
        '#!/bin/sh\necho "$HPCTOOLS_CPUS_PER_TASK:${SLURM_CPUS_PER_TASK-none}"\n'
    )
    environment = {"PATH": f"{fake_programs}:{os.environ['PATH']}", "SLURM_JOB_NUM_NODES": "3"}
    done = bash(
        batch.replica("r-1", str(tmp_path), "/py"), HPCTOOLS_CPUS_PER_TASK="4", **environment, **asked
    )
    assert done.stdout.decode() == f"{asked.get('SLURM_CPUS_PER_TASK', '')}:none\n"


@pytest.mark.parametrize("role", ["baseline", "replica"])
def test_what_is_for_the_first_job_only_is_no_variable_for_sbatch_in_the_run(tmp_path, fake_programs, role):
    (fake_programs / "srun").write_text("#!/bin/sh\nenv | grep ^SBATCH_\n")
    script = (
        batch.replica("r-1", str(tmp_path), "/py")
        if role == "replica"
        else batch.baseline("r-1", str(tmp_path), str(fake_programs / "py"), NodeSizes.between(2, 6), ())
    )
    asked = {"SBATCH_ERROR": "e.txt", "SBATCH_INPUT": "i.txt", "SBATCH_WAIT_ALL_NODES": "1"}
    environment = {"PATH": f"{fake_programs}:{os.environ['PATH']}", "SLURM_JOB_NUM_NODES": "3"}
    done = bash(script, SBATCH_ACCOUNT="nlp", **asked, **environment)
    assert [line for line in done.stdout.splitlines() if line.startswith(b"SBATCH_")] == [
        b"SBATCH_ACCOUNT=nlp"
    ]


def test_the_replica_becomes_its_srun(tmp_path, fake_programs):
    script = batch.replica("r-1", str(tmp_path), "/py")
    done = bash(script, PATH=f"{fake_programs}:{os.environ['PATH']}", SLURM_JOB_NUM_NODES="3")
    assert done.returncode == 9
    assert done.stdout.split(b"\0")[:5] == [b"srun", os.fsencode(tmp_path), b"", b"--nodes=3", b"--ntasks=3"]
    assert done.stdout.split(b"\0")[-3:] == [b"--role", b"replica", b"\n"]


@pytest.mark.parametrize(("ends", "starts"), [("kill -9 $$", "012"), ("exit 3", "0"), ("kill $$", "0")])
def test_an_agent_that_is_killed_is_started_again_and_one_that_ends_is_not(
    tmp_path, fake_programs, ends, starts
):
    (fake_programs / "srun").write_text('#!/bin/bash\nwhile [ "$1" != bash ]; do shift; done\n"$@"\n')
    (fake_programs / "py").write_text(
        '#!/bin/bash\n[[ "$*" = *hp_cancel* ]] && exit\nprintf %s "$HPCTOOLS_AGENT_STARTED"\n'
        f"((HPCTOOLS_AGENT_STARTED == 2)) && exit 5\n{ends}\n"
    )
    script = batch.baseline("r-1", str(tmp_path), str(fake_programs / "py"), NodeSizes.between(1, 2), ())
    done = bash(script, PATH=f"{fake_programs}:{os.environ['PATH']}")
    assert done.stdout.decode() == starts
    assert done.returncode == {"012": 5, "0": 3 if ends == "exit 3" else 143}[starts]


STEP = """#!/bin/bash
# Starts the task as slurmstepd does, and signals it alone.
while [[ $1 == -* ]]; do shift; done
"$@" & task=$!
for ((n = 0; n < 200; n++)); do [ -e "$HERE/up" ] && break; sleep 0.05; done
kill -TERM "$task"
wait "$task"
"""
AGENT = """#!/bin/bash
trap 'echo "told to leave"; exit 7' TERM
touch "$HERE/up"
sleep 20 > /dev/null 2>&1 & wait
"""


def test_an_agent_hears_of_the_preemption_that_slurm_tells_its_task(tmp_path, fake_programs):
    (fake_programs / "srun").write_text(STEP)
    (fake_programs / "py").write_text(AGENT)
    script = batch.replica("r-1", str(tmp_path), str(fake_programs / "py"))
    path = f"{fake_programs}:{os.environ['PATH']}"
    done = bash(script, PATH=path, HERE=str(tmp_path), SLURM_JOB_NUM_NODES="1")
    assert (done.returncode, done.stdout) == (7, b"told to leave\n")


def test_a_preemption_is_heard_however_soon_it_comes(tmp_path, fake_programs):
    """Before bash knows the agent that it has just started: a DEBUG trap makes that moment longer."""
    slow = 'trap "[[ \\$BASH_COMMAND != agent=* ]] || { touch "$HERE/forked"; sleep 0.3; }" DEBUG'
    step = STEP.replace('"$@" & task=$!', 'bash -c "$SLOW; $3" "${@:4}" & task=$!').replace("/up", "/forked")
    (fake_programs / "srun").write_text(step)
    (fake_programs / "py").write_text(AGENT)
    script = batch.replica("r-1", str(tmp_path), str(fake_programs / "py"))
    path = f"{fake_programs}:{os.environ['PATH']}"
    done = bash(script, PATH=path, HERE=str(tmp_path), SLURM_JOB_NUM_NODES="1", SLOW=slow)
    assert (done.returncode, done.stdout) in [(7, b"told to leave\n"), (143, b"")]


def test_a_killed_agent_is_started_again(tmp_path, fake_programs):
    (fake_programs / "srun").write_text('#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nexec "$@"\n')
    (fake_programs / "py").write_text(
        '#!/bin/bash\necho "$HPCTOOLS_AGENT_STARTED"\n((HPCTOOLS_AGENT_STARTED < 2)) && kill -9 $$\nexit 5\n'
    )
    script = batch.replica("r-1", str(tmp_path), str(fake_programs / "py"))
    done = bash(script, PATH=f"{fake_programs}:{os.environ['PATH']}", SLURM_JOB_NUM_NODES="1")
    assert (done.returncode, done.stdout) == (5, b"0\n1\n2\n")


@pytest.mark.parametrize("known", [True, False])
def test_a_run_of_an_array_finds_its_index_and_the_array_s_first_job_in_the_environment(
    tmp_path, fake_programs, known
):
    """In all jobs of the run alike: the first run's first job is that of the array; others are told of it."""
    (fake_programs / "srun").write_text('#!/bin/bash\necho "$SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $WHO"\n')
    values = {"SLURM_ARRAY_TASK_ID": "7", "WHO": "it's $me"}
    nodes = NodeSizes.between(1, 2)
    if known:
        (tmp_path / batch.ARRAY_JOB).write_text("40\n")
    scripts = [
        batch.baseline("r-1", str(tmp_path), "/bin/true", nodes, (), values),
        batch.replica("r-1", str(tmp_path), "/bin/true", values),
        batch.baseline("r-1", str(tmp_path), "/bin/true", nodes, (), values),
    ]
    for number, script in enumerate(scripts):
        environment = {"SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_ID": str(50 + number)}
        done = bash(script, PATH=f"{fake_programs}:{os.environ['PATH']}", **environment)
        assert (done.stdout, done.stderr) == (b"40 7 it's $me\n" if known else b"50 7 it's $me\n", b"")


def test_a_baseline_without_its_run_folder_ends_at_once(tmp_path, fake_programs):
    """Where undoing a submission could not reach the controller, the job must be harmless."""
    script = batch.baseline("r-1", str(tmp_path / "gone"), "/py", NodeSizes.between(1, 2), ())
    done = bash(script, PATH=f"{fake_programs}:{os.environ['PATH']}")
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_baseline_that_is_told_to_end_still_cancels_the_replicas(tmp_path, fake_programs):
    """Slurm sends TERM to the whole batch step; srun ends of it, and the shell must go on."""
    (fake_programs / "srun").write_text("#!/bin/bash\nkill -TERM $PPID\nexit 143\n")
    script = batch.baseline("r-1", str(tmp_path), str(fake_programs / "py"), NodeSizes.between(1, 2), ())
    done = bash(script, PATH=f"{fake_programs}:{os.environ['PATH']}")
    assert done.returncode == 143
    assert b"hpctools.cli.hp_cancel\0--replicas" in done.stdout
