"""Command line and script, read into one intent."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.errors import SubmitError, UsageError
from hpctools.submit.intent import Intent, read_intent, read_invocation
from hpctools.submit.nodes import NodeSizes


def intent(
    tmp_path: Path, argv: list[str], script: str | None = None, stdin: bytes | None = None, **environment: str
) -> Intent:
    if script is not None:
        (tmp_path / "job.sh").write_text(script)
    return read_intent(
        read_invocation(argv), environment=environment, cwd=tmp_path, standard_input=lambda: stdin
    )


def test_our_flags_are_taken_out_and_all_else_stays_as_written(tmp_path):
    argv = [
        "--dry-run",
        "-HN",
        "2",
        "--comment",
        "--json",
        "--json",
        "--tim=3",
        "--debug",
        "job.sh",
        "--json",
    ]
    invocation = read_invocation(argv)
    assert invocation.flags == {"dry-run", "json", "debug"}
    assert invocation.words == ("-HN", "2", "--comment", "--json", "--tim=3")
    found = intent(tmp_path, argv, "#!/bin/sh\n")
    assert (found.script_word, found.arguments) == ("job.sh", ("--json",))
    assert found.effective("comment") == "--json"
    assert {option.name for option in found.options} == {"hold", "nodes", "comment", "tim"}


def test_a_command_after_two_dashes_is_no_script(tmp_path):
    found = intent(tmp_path, ["--gpus", "4", "--json", "--", "python", "--dry-run"])
    assert (found.words, found.command, found.script) == (("--gpus", "4"), ("python", "--dry-run"), None)


def test_the_script_comes_from_standard_input_when_none_is_named(tmp_path):
    found = intent(tmp_path, ["-H"], stdin=b"#!/bin/sh\n#SBATCH -N 1:3\n")
    assert found.script is not None
    assert (found.script.name, found.script.path) == ("standard input", None)
    assert found.nodes == NodeSizes.between(1, 3)


def test_nothing_to_submit_on_a_terminal_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no script and no command"):
        intent(tmp_path, ["-N2"])


@pytest.mark.parametrize("argv", [["--"], ["-N2", "--"], ["--wrap", "x", "--", "y"]])
def test_two_dashes_need_a_command(tmp_path, argv):
    with pytest.raises(UsageError, match="a command belongs after --"):
        intent(tmp_path, argv, stdin=b"#!/bin/sh\n")


def test_wrap_needs_no_script(tmp_path):
    found = intent(tmp_path, ["--wrap", "hostname"])
    assert (found.script, found.command, found.effective("wrap")) == (None, (), "hostname")


def test_words_behind_wrap_are_refused_in_an_elastic_run_since_sbatch_does_not_see_them(tmp_path):
    with pytest.raises(UsageError, match="'x' stands behind it") as refused:
        intent(tmp_path, ["-N1:2", "--wrap", "python", "x", "--lr", "1"])
    assert refused.value.remedy.startswith("put quotes around all of the command")
    with pytest.raises(UsageError, match="'x' stands behind it"):
        intent(tmp_path, ["--elastic-policy=p.yaml", "--wrap", "python", "x"])
    assert intent(tmp_path, ["-N2", "--wrap", "python", "x"]).script is None  # sbatch says it


@pytest.mark.parametrize(
    ("argv", "directive", "nodes"),
    [
        (["job.sh"], "--nodes=2", None),
        (["job.sh"], "--nodes=2:6", NodeSizes.between(2, 6)),
        (["job.sh"], "-N 2:6", NodeSizes.between(2, 6)),
        (["-N2:6", "job.sh"], "--nodes=4", NodeSizes.between(2, 6)),
        (["-N2:6", "job.sh"], "--nodes=1:3", NodeSizes.between(2, 6)),
        (["-N9", "-N2:6", "job.sh"], "--hold", NodeSizes.between(2, 6)),
        (["-N2:6", "-N9", "job.sh"], "--hold", None),
        (["-N4", "job.sh"], "--nodes=2:6", NodeSizes.between(4, 4)),
        (["-N1-15:4", "job.sh"], "--hold", None),
    ],
)
def test_the_strongest_word_decides_whether_the_run_is_elastic(tmp_path, argv, directive, nodes):
    assert intent(tmp_path, argv, f"#!/bin/sh\n#SBATCH {directive}\n").nodes == nodes


def test_sbatchs_own_range_does_not_fit_an_elastic_script(tmp_path):
    with pytest.raises(UsageError, match=r"--nodes 2-4 does not fit job.sh line 2"):
        intent(tmp_path, ["-N2-4", "job.sh"], "#!/bin/sh\n#SBATCH --nodes=2:6\n")


def test_a_wrong_range_names_its_line(tmp_path):
    with pytest.raises(UsageError, match=r"job.sh line 3: --nodes 6:2"):
        intent(tmp_path, ["job.sh"], "#!/bin/sh\n\n#SBATCH --nodes=6:2\n")


@pytest.mark.parametrize("written", ["--elastic-policy=p.yaml", "--elastic-policy p.yaml"])
def test_an_option_of_ours_in_a_script_is_refused_with_its_line_since_sbatch_reads_it_too(tmp_path, written):
    with pytest.raises(UsageError) as refused:
        intent(tmp_path, ["-N1:2", "job.sh"], f"#!/bin/sh\n#SBATCH -t 5\n#SBATCH {written}\n")
    assert refused.value.message == "job.sh line 3: --elastic-policy is no option of sbatch's"
    assert refused.value.remedy.startswith("give it on the command line: hp-submit --elastic-policy=")


def test_a_missing_script_is_an_error(tmp_path):
    with pytest.raises(SubmitError, match="there is no script"):
        intent(tmp_path, ["nothing.sh"])


def test_the_command_line_wins_over_the_environment_and_that_over_the_script(tmp_path):
    script = "#!/bin/sh\n#SBATCH --partition=a --account=a --time=1\n#SBATCH --time=2\n"
    environment = {"SBATCH_PARTITION": "b", "SBATCH_ACCOUNT": "b"}
    found = intent(tmp_path, ["-pc", "job.sh"], script, **environment)
    assert [found.effective(name) for name in ("partition", "account", "time", "qos")] == [
        "c",
        "b",
        "2",
        None,
    ]


def test_a_heterogeneous_job_is_recognised_on_the_line_and_in_the_script(tmp_path):
    assert intent(tmp_path, ["-N1", ":", "-N2", "job.sh"], "#!/bin/sh\n").heterogeneous
    assert intent(tmp_path, ["job.sh"], "#!/bin/sh\n#SBATCH hetjob\n").heterogeneous
    assert not intent(tmp_path, ["job.sh", ":"], "#!/bin/sh\n").heterogeneous
