"""sbatch's command line and #SBATCH lines, read as sbatch itself reads them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from hpctools.errors import UsageError
from hpctools.slurm.sbatch_options import (
    ARITIES,
    SHORT_NAMES,
    Arity,
    Option,
    complete,
    directive,
    foreign_directive,
    read_command_line,
    read_directives,
    read_environment,
    split_directive,
)


@pytest.mark.parametrize(
    ("words", "options", "rest"),
    [
        (["job.sh", "-N", "2"], [], ["job.sh", "-N", "2"]),
        (["-N", "2", "job.sh"], [("nodes", "2")], ["job.sh"]),
        (["-N2", "job.sh"], [("nodes", "2")], ["job.sh"]),
        (["--nodes=2:6", "job.sh", "--nodes=1"], [("nodes", "2:6")], ["job.sh", "--nodes=1"]),
        (["-HN", "2", "job.sh"], [("hold", None), ("nodes", "2")], ["job.sh"]),
        (
            ["-HOsN2", "j"],
            [(n, None) for n in ("hold", "overcommit", "oversubscribe")] + [("nodes", "2")],
            ["j"],
        ),
        (["-k", "job.sh"], [("no-kill", None)], ["job.sh"]),
        (["-koff", "job.sh"], [("no-kill", "off")], ["job.sh"]),
        (["--exclusive", "user", "job.sh"], [("exclusive", None)], ["user", "job.sh"]),
        (["--exclusive=user", "job.sh"], [("exclusive", "user")], ["job.sh"]),
        (["--part", "gpu", "job.sh"], [("partition", "gpu")], ["job.sh"]),
        (["--job", "--nodes", "job.sh"], [("job-name", "--nodes")], ["job.sh"]),
        (["--tasks-per-node", "2", "j"], [("ntasks-per-node", "2")], ["j"]),
        (["--comment", "", "j"], [("comment", "")], ["j"]),
        (["-W", "-", "x"], [("wait", None)], ["-", "x"]),
        (["--container-image", "a.sqsh", "job.sh"], [("container-image", "a.sqsh")], ["job.sh"]),
        (["--site-plugin=x", "job.sh"], [("site-plugin", "x")], ["job.sh"]),
    ],
)
def test_the_script_is_the_first_word_that_is_no_option_and_no_value(words, options, rest):
    line = read_command_line(words)
    assert [(option.name, option.value) for option in line.options] == options
    assert list(line.rest) == rest
    assert not line.after_dashes


def test_two_dashes_end_the_options():
    line = read_command_line(["--gpus", "4", "--", "python", "--nodes", "--", "x"])
    assert (line.after_dashes, line.rest) == (True, ("python", "--nodes", "--", "x"))
    assert line.options == (Option("gpus", "4"),)


def test_a_colon_separates_heterogeneous_components():
    line = read_command_line(["-N1", ":", "-N2", "job.sh"])
    assert line.heterogeneous
    assert [option.value for option in line.options] == ["1", "2"]
    assert line.rest == ("job.sh",)


@pytest.mark.parametrize("words", [["--nodes"], ["-N"], ["--time"], ["-HN"]])
def test_a_missing_value_is_named(words):
    with pytest.raises(UsageError, match="needs a value"):
        read_command_line(words)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("nodes", "nodes"),
        ("nod", "nod"),
        ("time", "time"),
        ("tim", "tim"),
        ("array", "array"),
        ("gpus", "gpus"),
        ("res", "reservation"),  # newer releases know --resources and --resv-ports too
        ("cluster", "clusters"),
        ("dry-run", "dry-run"),
    ],
)
def test_abbreviations_follow_getopt_long(written, name):
    assert complete(written) == name


def test_directives_are_read_up_to_the_first_command():
    script = (
        "#!/bin/bash\n#SBATCH -N 2:6 --time=10 # as long as it takes\n\n  # comment\n"
        '#SBATCH --comment="a \\"b\\" #c" --job-name=\'x y\'\n #SBATCH --hold\nhostname\n#SBATCH --gpus=1\n'
    )
    lines = read_directives(script, "job.sh")
    assert [option for line in lines for option in line.options] == [
        Option("nodes", "2:6", "job.sh line 2"),
        Option("time", "10", "job.sh line 2"),
        Option("comment", 'a "b" #c', "job.sh line 5"),
        Option("job-name", "x y", "job.sh line 5"),
    ]


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("#!/bin/sh\n#SBATCH -N1\n#PBS -l walltime=10:00\n", 3),
        ("#!/bin/sh\nhostname\n#BSUB -q gpu\n#PBS -A nlp\n", 3),
        ("#!/bin/sh\n" + 100 * "x\n" + "#PBS -q gpu\n", 102),
        ("#!/bin/sh\n" + 101 * "x\n" + "#PBS -q gpu\n", None),
        ("#!/bin/sh\n #PBS -q gpu\n# PBS -q gpu\n##BSUB -q gpu\n", None),
    ],
)
def test_options_of_other_systems_are_seen_where_sbatch_sees_them(script, line):
    assert foreign_directive(script) == line


def test_a_hetjob_line_marks_a_heterogeneous_job():
    lines = read_directives("#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\n", "job.sh")
    assert [line.heterogeneous for line in lines] == [False, True, False]


@pytest.mark.parametrize(
    ("line", "complaint"), [('--comment="a', 'unmatched "'), (": -N2", "unexpected `:`")]
)
def test_a_directive_that_sbatch_cannot_read_is_named_with_its_line(line, complaint):
    with pytest.raises(UsageError, match=f"job.sh line 3: {complaint}"):
        read_directives(f"#!/bin/sh\n\n#SBATCH {line}\n", "job.sh")


values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0"), min_size=1)


@given(st.sampled_from([name for name in ARITIES if ARITIES[name] is Arity.REQUIRED]), values)
def test_a_directive_carries_any_value_on_one_line(name, value):
    line = directive(Option(name, value))
    assert list(split_directive(line.removeprefix("#SBATCH"), "x")) == [f"--{name}={value}"]


def test_environment_variables_are_options():
    environment = {"SBATCH_PARTITION": "gpu", "SBATCH_TIMELIMIT": "5", "SBATCH_WAIT": "1", "PATH": "/bin"}
    assert read_environment(environment) == (
        Option("partition", "gpu", "$SBATCH_PARTITION"),
        Option("wait", None, "$SBATCH_WAIT"),
        Option("time", "5", "$SBATCH_TIMELIMIT"),
    )


def test_switches_have_two_variables():
    asked = {"SBATCH_REQ_SWITCH": "2"}
    assert [each.word for each in read_environment(asked)] == ["--switches=2"]
    waits = {**asked, "SBATCH_WAIT4SWITCH": "1:00:00"}
    assert [each.word for each in read_environment(waits)] == ["--switches=2@1:00:00"]


EARLY = {"help", "usage", "version", "verbose", "quiet", "wrap", "autocomplete"}
LATER = {
    "consolidate-segments",
    "external",
    "extra",
    "mem-update",
    "oom-kill-step",
    "resources",
    "resv-ports",
}
LATER |= {"segment", "spread-segments", "stepmgr", "tres-bind", "tres-per-task"}
IN_22_05 = sorted(
    name
    for name in ARITIES
    if name not in EARLY | LATER and not name.startswith(("container", "no-container"))
)
plain_words = st.text("abcxyz0123=:", min_size=1, max_size=6)


@st.composite
def spelled_options(draw: st.DrawFn) -> list[str]:
    name = draw(st.sampled_from(IN_22_05))
    short = next((letter for letter, long in SHORT_NAMES.items() if long == name), None)
    value = draw(plain_words)
    spelled = draw(st.sampled_from(["long", "equals", "prefix", *(["short", "attached"] if short else [])]))
    has_value = ARITIES[name] is Arity.REQUIRED
    if spelled == "equals":
        return [f"--{name}={value}"] if ARITIES[name] is not Arity.NONE else [f"--{name}"]
    if spelled == "attached" and ARITIES[name] is not Arity.NONE:
        return [f"-{short}{value}"]
    if spelled in ("short", "attached"):
        return [f"-{short}", value] if has_value else [f"-{short}"]
    written = name[: draw(st.integers((len(name) + 1) // 2, len(name)))] if spelled == "prefix" else name
    return [f"--{written}", value] if has_value else [f"--{written}"]


@pytest.fixture(scope="module")
def slurm_conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    path.write_text("ClusterName=t\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=n1\n")
    return path


@pytest.mark.skipif(not shutil.which("sbatch"), reason="Slurm is not installed")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=st.lists(spelled_options(), max_size=4))
def test_the_script_is_found_where_the_real_sbatch_finds_it(slurm_conf: Path, options: list[list[str]]):
    """sbatch names the script that it cannot open, before it needs a controller."""
    words = [word for option in options for word in option] + ["script-1.nowhere", "script-2.nowhere"]
    done = subprocess.run(
        ["sbatch", *words],
        env={**os.environ, "SLURM_CONF": str(slurm_conf)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    marker = "sbatch: error: Unable to open file "
    opened = [line.removeprefix(marker) for line in done.stderr.splitlines() if line.startswith(marker)]
    event(f"opened: {bool(opened)}")
    if opened:  # otherwise this release knows the option not, or finds an abbreviation ambiguous
        assert [read_command_line(words).rest[0]] == opened
