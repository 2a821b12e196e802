"""An elastic submission as data: whole scripts and commands, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hpctools.elastic.spec import RunSpec
from hpctools.errors import HpctoolsError, SubmitError, UsageError
from hpctools.slurm.limits import Account, Bounds, Limits, PartitionTimes
from hpctools.slurm.sbatch_options import read_environment
from hpctools.slurm.types import Partition
from hpctools.submit import batch
from hpctools.submit.inheritance import gpu_tres, gpus_per_node
from hpctools.submit.intent import read_intent, read_invocation
from hpctools.submit.plan import ElasticSubmission, Facts, plan_elastic
from hpctools.submit.policy_file import parse_policy
from hpctools.submit.render import elastic_json, elastic_text

GOLDEN = Path(__file__).parent / "golden"
PARTITIONS = (
    Partition("gpu", total_nodes=6, is_default=True),
    Partition("big", total_nodes=60, max_nodes=4),
    Partition("small", total_nodes=2),
)
FACTS = Facts(
    user="nlp1",
    python="/opt/hpctools/bin/python",
    runs_root=Path("/home/nlp1/.hpctools/runs"),
    suffix="3fa9c1",
    created="2026-02-03T10:00:00.000+00:00",
    partitions=PARTITIONS,
)
SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=2:6 --gpus-per-node=4
#SBATCH --ntasks-per-node=4   # one for each GPU
#SBATCH --job-name="my train" --output=out-%j.txt --mail-type=END
#SBATCH -t 60 -A nlp-lab-a --qos=high -w node-1
#SBATCH --parsable

source ~/env/bin/activate
python train.py "$@"
"""


def plans(
    tmp_path: Path, argv: list[str], script: str = SCRIPT, facts: Facts = FACTS, **environment: str
) -> tuple[ElasticSubmission, ...]:
    (tmp_path / "job.sh").write_text(script)
    intent = read_intent(
        read_invocation(argv), environment=environment, cwd=tmp_path, standard_input=lambda: None
    )
    assert intent.is_elastic
    return plan_elastic(replace(intent, cwd=Path("/home/nlp1/project")), facts)


def plan(
    tmp_path: Path, argv: list[str], script: str = SCRIPT, facts: Facts = FACTS, **environment: str
) -> ElasticSubmission:
    (submission,) = plans(tmp_path, argv, script, facts, **environment)
    return submission


@pytest.mark.parametrize(
    ("golden", "argv"),
    [
        ("script.txt", ["--exclusive", "-t", "30", "--hold", "job.sh", "--epochs", "3 4"]),
        ("command.txt", ["-N1:1", "--gpus-per-node=1", "--", "python", "-u", "train.py", "it's"]),
    ],
)
def test_the_dry_run_shows_every_script_and_command_whole(tmp_path, golden, argv):
    assert elastic_text(plan(tmp_path, argv)) == (GOLDEN / golden).read_text()


def test_the_json_holds_the_same_object(tmp_path):
    submission = plan(tmp_path, ["job.sh", "x"])
    values = elastic_json(submission)
    assert values["run"] == "my-train-3fa9c1"
    assert values["folder"] == "/home/nlp1/.hpctools/runs/my-train-3fa9c1"
    assert values["files"] == {file.name: file.text for file in submission.files}
    assert list(values["files"]) == ["baseline.sh", "next-baseline.sh", "replica.sh", "script"]
    assert values["files"]["script"] == SCRIPT
    (replicas,) = values["commands"]["replicas"]
    assert replicas["count"] == 4
    assert replicas["command"][2:-1] == [*submission.spec.replica_options, "--nodes=1"]
    assert values["spec"]["command"] == ("/home/nlp1/.hpctools/runs/my-train-3fa9c1/script", "x")


def test_the_spec_says_what_the_coordinator_needs(tmp_path):
    spec = plan(tmp_path, ["-D", "sub", "job.sh"]).spec
    assert (spec.min_nodes, spec.max_nodes, spec.workers_per_node) == (2, 6, 4)
    assert (spec.user, spec.workdir) == ("nlp1", "/home/nlp1/project/sub")
    assert spec.replica_script == "/home/nlp1/.hpctools/runs/my-train-3fa9c1/replica.sh"
    assert "--chdir=/home/nlp1/project/sub" in spec.replica_options


def test_a_list_of_qos_is_sbatchs(tmp_path):
    """Of which it takes the first that may be had, since Slurm 24.11."""
    account = Account("nlp-lab-a", True, ("medium", "high", "elastic"))
    known = Limits("nlp1", frozenset({"associations", "qos"}), (account,), {"elastic": Bounds("e")}, {}, {})
    submission = plan(tmp_path, ["-N1:2", "--qos=high,medium", "--", "x"], facts=replace(FACTS, limits=known))
    assert "--qos=high,medium" in submission.options


def test_a_replica_inherits_what_the_environment_asks_for(tmp_path):
    options = plan(tmp_path, ["-N1:2", "--", "train"], SBATCH_ACCOUNT="nlp", SBATCH_GRES="gpu:1").spec
    assert options.replica_options[:2] == ("--account=nlp", "--gres=gpu:1")


def test_the_strongest_of_several_values_is_inherited_once(tmp_path):
    argv = ["-N1:2", "-p", "small", "--mem=1", "--site-plugin=a", "--site-plugin=b", "-p", "gpu", "--", "x"]
    assert plan(tmp_path, argv).spec.replica_options[:4] == (
        "--mem=1",
        "--site-plugin=a",
        "--site-plugin=b",
        "--partition=gpu",
    )


class Everything(dict):
    """An environment in which each variable of sbatch's is set."""

    def __contains__(self, name):
        return True

    def __missing__(self, name):
        return "1"


@pytest.mark.parametrize("option", read_environment(Everything()), ids=lambda option: option.place)
def test_a_variable_is_for_a_replica_by_a_word_or_not_there_for_its_sbatch(tmp_path, option):
    variable = option.place.removeprefix("$")
    try:
        spec = plan(
            tmp_path, ["-N1:2", "--", "x"], facts=replace(FACTS, partitions=None), **{variable: "1"}
        ).spec
    except SubmitError:
        return  # no run with it
    words = {word[2:].partition("=")[0] for word in spec.replica_options}
    assert (option.name in words) is not (variable in batch.NOT_INHERITED.split())
    if variable in batch.NOT_INHERITED.split():  # another baseline job has it all the same
        assert option.name in {word[2:].partition("=")[0] for word in spec.baseline_options}


def test_of_two_variables_of_one_option_it_is_sbatchs_that_is_taken(tmp_path):
    hints = {"SBATCH_HINT": "nomultithread", "SLURM_HINT": "compute_bound"}
    spec = plan(tmp_path, ["-N1:2", "--", "x"], **hints).spec
    assert spec.replica_options[0] == spec.baseline_options[0] == "--hint=nomultithread"
    assert plan(tmp_path, ["-N1:2", "--", "x"], SLURM_HINT="b").spec.replica_options[0] == "--hint=b"


@pytest.mark.parametrize(
    ("line", "words", "variables", "taken"),
    [
        ("", ["--mem=64G"], {"SBATCH_MEM_PER_CPU": "4G"}, ["--mem=64G"]),
        ("", ["--mem-per-gpu=9G"], {"SBATCH_MEM_PER_NODE": "4G"}, ["--mem-per-gpu=9G"]),
        ("--mem=64G", [], {"SBATCH_MEM_PER_CPU": "4G"}, ["--mem=64G"]),
        ("--mem=64G", [], {"SBATCH_MEM_PER_NODE": "4G"}, ["--mem=4G"]),
        ("", ["-c4"], {"SBATCH_CPUS_PER_GPU": "8"}, ["--cpus-per-task=4"]),
        ("", ["--hint=nomultithread"], {"SBATCH_THREADS_PER_CORE": "2"}, ["--hint=nomultithread"]),
        ("", ["-s"], {"SBATCH_EXCLUSIVE": "user"}, ["--oversubscribe"]),
        ("-s", [], {"SBATCH_EXCLUSIVE": "user"}, ["--exclusive=user"]),
        ("-S2", [], {"SBATCH_THREAD_SPEC": "4"}, ["--thread-spec=4"]),
        ("--mem=1", ["--mem-per-cpu=2"], {}, ["--mem=1", "--mem-per-cpu=2"]),  # as the first: refused
    ],
)
def test_jobs_that_the_run_submits_get_what_sbatch_takes_for_the_first(
    tmp_path, line, words, variables, taken
):
    """It says nothing of a variable that words overrule, and refuses the same two as words."""
    script = f"#!/bin/sh\n#SBATCH -N1:2 {line}\n"
    submission = plan(tmp_path, [*words, "job.sh"], script, **variables)
    for options in (submission.spec.replica_options, submission.spec.baseline_options):
        assert list(options[: len(taken)]) == taken
        assert options[len(taken)].startswith(("--qos=elastic", "--nodes="))


def test_percent_signs_in_a_path_are_no_file_name_pattern(tmp_path):
    facts = replace(FACTS, runs_root=Path("/home/100%j/runs"))
    options = plan(tmp_path, ["-N1:2", "--", "x"], facts=facts).spec.replica_options
    assert "--output=/home/100%%j/runs/x-3fa9c1/logs/replica-%j.out" in options


@pytest.mark.parametrize(
    ("argv", "run_id"),
    [
        (["-N1:2", "--", "python", "-u", "dir/train.py", "-m", "x"], "train-3fa9c1"),
        (["-N1:2", "--", "python3.11", "-m", "pkg.train"], "pkg.train-3fa9c1"),
        (["-N1:2", "--", "python", "-c", "import train; train.main()"], "python-3fa9c1"),
        (["-N1:2", "--", "python", "-W", "ignore", "train.py"], "train-3fa9c1"),
        (["-N1:2", "--", "python"], "python-3fa9c1"),
        (["-N1:2", "--", "./run me!.sh"], "run-me-3fa9c1"),
        (["-N1:2", "-J", "../../etc", "--", "x"], "etc-3fa9c1"),
        (["-N1:2", "-J", "\u00fc\n/..", "--", "x"], "run-3fa9c1"),
        (["-N1:2", "-J", "x" * 300, "--", "x"], f"{'x' * 40}-3fa9c1"),
        (["-N1:2", "--wrap", "a | b"], "wrap-3fa9c1"),
        (["-N1:2", "job.sh"], "my-train-3fa9c1"),
    ],
)
def test_a_run_is_named_after_its_job_and_can_be_a_folder(tmp_path, argv, run_id):
    assert plan(tmp_path, argv).spec.id == run_id


def test_wrap_is_run_by_a_shell(tmp_path):
    assert plan(tmp_path, ["-N1:2", "--wrap", "a | b"]).spec.command == ("/bin/sh", "-c", "a | b")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["-n", "8", "--", "x"],
            "command line: --ntasks is not for an elastic run; leave it out; say how many workers each",
        ),
        (["--gpus=8", "--", "x"], "an elastic run; leave it out; say how many GPUs each node gives"),
        (
            ["--wait", "--", "x"],
            "--wait is not for an elastic run; leave it out; follow the run with: hp-status --watch RUN",
        ),
        (
            ["--signal=B:USR1@60", "--", "x"],
            "--signal is not for an elastic run; leave it out; before it ends",
        ),
        (
            ["-i", "in.txt", "--", "x"],
            "--input is not for an elastic run; leave it out; each worker is started with no input",
        ),
        (["-M", "other", "--", "x"], "--clusters is not for an elastic run"),
        (["--comment=mine", "--", "x"], "--comment is not for an elastic run"),
        (["-n", "8", ":", "-n", "9", "--", "x"], "heterogeneous"),
        (["--ntasks-per-node=0", "--", "x"], "--ntasks-per-node=0 is no number of workers"),
        (["--elastic-mode=live", "--", "torchrun", "x.py"], "torchrun starts processes itself"),
        (["--wrap", "a; srun b"], "srun starts processes itself"),
        (["-p", "nope", "--", "x"], "there is no partition nope; this cluster has: big, gpu, small"),
        (["-p", "small", "--", "x"], "--nodes 2:6: partition small has only 2 nodes; ask for at most 2"),
        (["-N2:67", "-p", "gpu,big", "--", "x"], "partition gpu,big has only 66 nodes; ask for at most 66"),
        (
            ["-N5:60", "-p", "big", "--", "x"],
            "a job in partition big may have at most 4 nodes; lower the minimum",
        ),
        (
            ["-N1,2,8", "-p", "big", "--", "x"],
            "a job in partition big may have at most 4 nodes (MaxNodes), and a replica job of this run 6; "
            "take "
            "smaller steps: at most 4 nodes from one size to the next",
        ),
    ],
)
def test_what_cannot_be_elastic_is_refused_in_one_line(tmp_path, argv, message):
    with pytest.raises(HpctoolsError) as caught:
        plan(tmp_path, ["-N2:6", *argv])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_per_job_total_in_the_script_is_refused_with_its_line(tmp_path):
    with pytest.raises(SubmitError, match=r"^job.sh line 2: --ntasks is not for an elastic run"):
        plan(tmp_path, ["job.sh"], "#!/bin/sh\n#SBATCH -N2:4 -n 8\n")


def test_a_per_job_total_in_the_environment_is_refused_with_its_variable(tmp_path):
    with pytest.raises(SubmitError, match=r"^\$SBATCH_GPUS: --gpus is not for an elastic run"):
        plan(tmp_path, ["-N1:2", "--", "x"], SBATCH_GPUS="4")


@pytest.mark.parametrize(
    ("line", "variables", "remedy"),
    [
        ("-N2:4 -n 8", {}, "take it out there; say how many workers each node runs"),
        ("-N2:4 --requeue", {}, "take it out there; the run replaces lost replica jobs by itself"),
        ("-N2:4", {"SBATCH_GPUS": "4"}, "unset SBATCH_GPUS; say how many GPUs each node gives"),
        ("-N2:4", {"SLURM_CLUSTERS": "here"}, "unset SLURM_CLUSTERS; submit on a login node"),
    ],
)
def test_another_word_does_not_take_a_refused_one_away(tmp_path, line, variables, remedy):
    better = ["--ntasks-per-node=2", "--gpus-per-node=2", "job.sh"]
    with pytest.raises(SubmitError) as caught:
        plan(tmp_path, better, f"#!/bin/sh\n#SBATCH {line}\n", **variables)
    assert f"is not for an elastic run; {remedy}" in str(caught.value)


def test_nodes_to_exclude_are_named_as_no_later_job_finds_a_file_of_them(tmp_path):
    script = "#!/bin/sh\n#SBATCH -N2:4 --exclude='./bad nodes.txt'\n"
    with pytest.raises(SubmitError) as caught:
        plan(tmp_path, ["job.sh"], script)
    said = str(caught.value)
    assert said.startswith("job.sh line 2: --exclude=./bad nodes.txt names a file, ")
    assert said.endswith("--exclude=$(paste -sd, './bad nodes.txt')")
    assert "--exclude=n1,n2" in plan(tmp_path, ["-x", "n1,n2", "job.sh"], script).spec.replica_options


@pytest.mark.parametrize(("given", "later"), [("a.bb", "/home/nlp1/project/a.bb"), ("/b/a.bb", "/b/a.bb")])
def test_a_file_of_burst_buffers_is_found_from_the_folder_of_any_later_submission(tmp_path, given, later):
    submission = plan(tmp_path, ["-N2:4", "--bbf", given, "--", "x"])
    assert f"--bbf={given}" in submission.options
    assert f"--bbf={later}" in submission.spec.baseline_options


def test_options_of_other_batch_systems_are_not_dropped_without_a_word(tmp_path):
    script = "#!/bin/sh\n#SBATCH -N2:4\n#PBS -A nlp\npython train.py\n"
    with pytest.raises(SubmitError) as caught:
        plan(tmp_path, ["job.sh"], script)
    assert str(caught.value) == (
        "job.sh line 3: options of PBS or LSF are not for an elastic run; "
        "write them as #SBATCH lines, or have them ignored: --ignore-pbs"
    )
    assert "--ignore-pbs" in plan(tmp_path, ["--ignore-pbs", "job.sh"], script).options
    plan(tmp_path, ["job.sh"], script, SBATCH_IGNORE_PBS="")
    plan(tmp_path, ["job.sh"], script.replace("N2:4", "N2:4 --ignore-pbs"))


def test_a_launcher_in_the_script_is_refused_with_its_line(tmp_path):
    with pytest.raises(SubmitError, match=r"^job.sh line 4: srun starts processes itself"):
        plan(tmp_path, ["job.sh"], "#!/bin/sh\n#SBATCH -N2:4\n\nsrun python train.py\n")


def test_a_stray_word_in_a_directive_is_refused(tmp_path):
    with pytest.raises(SubmitError, match="'foo' in an #SBATCH line is no option"):
        plan(tmp_path, ["job.sh"], "#!/bin/sh\n#SBATCH -N2:4 foo\n")


def test_unknown_partitions_are_not_checked(tmp_path):
    assert plan(tmp_path, ["-N2:600", "--", "x"], facts=replace(FACTS, partitions=None)).spec.max_nodes == 600


def test_the_jobs_share_one_name_and_one_comment(tmp_path):
    submission = plan(tmp_path, ["job.sh"])
    shared = ("--job-name=my train", "--comment=hp-run:my-train-3fa9c1", "--no-requeue", "--open-mode=append")
    assert submission.options[-4:] == shared
    assert submission.spec.replica_options[-4:] == shared


@pytest.mark.parametrize(
    ("line", "words", "variables"),
    [
        ("", ["--open-mode=truncate"], {}),
        ("--open-mode=truncate", [], {}),
        ("", [], {"SBATCH_OPEN_MODE": "truncate"}),
    ],
)
def test_the_first_job_may_truncate_its_output_and_no_later_one(tmp_path, line, words, variables):
    script = f"#!/bin/sh\n#SBATCH -N1:2 {line}\n"
    submission = plan(tmp_path, [*words, "job.sh"], script, **variables)
    assert "--open-mode=append" not in submission.options
    assert [word for word in submission.options if word.startswith("--open-mode")] == words
    for options in (submission.spec.replica_options, submission.spec.baseline_options):
        assert options[-1] == "--open-mode=append"


POLICY = parse_policy(
    "elasticPolicy:\n  replicaDiscreteValues: [2, 3, 6]\n  gracefulShutdownTimeoutInSeconds: 5\n"
    "  scalingTimeoutInSeconds: 60\n  scale_config: {6: {lr: 0.1}}\nrunPolicy: {jobMaxRetryCount: 2}\n"
    "checkpoint: {keep: 3}\n",
    "policy.yaml",
)
LIMITS = Limits(
    user="nlp1",
    enforced=frozenset({"limits"}),
    accounts=(),
    qos={"elastic": Bounds("QoS elastic", minutes=45)},
    grace={"elastic": 30},
    partitions={},
)


def test_a_policy_file_is_in_the_dry_run_and_in_the_runs_description(tmp_path):
    argv = [
        "--elastic-policy",
        "policy.yaml",
        "-t",
        "1:00:00",
        "--gpus-per-node=1",
        "--",
        "python",
        "train.py",
    ]
    submission = plan(tmp_path, argv, facts=replace(FACTS, policy=POLICY, limits=LIMITS))
    assert elastic_text(submission) == (GOLDEN / "policy.txt").read_text()
    spec = RunSpec.from_json(json.loads(json.dumps(submission.spec.to_json())))
    assert spec == submission.spec
    assert spec.elastic_policy == POLICY.policy((2, 3, 6))
    assert (spec.grace_seconds, spec.graceful_seconds) == (30.0, 5.0)
    assert (spec.time_limit_s, spec.replica_nodes) == (3600.0, (1, 3))
    assert (spec.recovery, spec.checkpoint) == ({"runPolicy": {"jobMaxRetryCount": 2}}, {"keep": 3})


def test_nodes_may_choose_among_the_policys_sizes(tmp_path):
    facts = replace(FACTS, policy=POLICY)
    argv = ["--elastic-policy=policy.yaml", "--", "x"]
    assert plan(tmp_path, ["-N2,6", *argv], facts=facts).spec.sizes == (2, 6)
    assert plan(tmp_path, ["-N3", *argv], facts=facts).spec.allowed_sizes == (3,)
    with pytest.raises(
        UsageError, match=r"--nodes 2:6 does not fit policy.yaml line 1, which allows 2, 3, 6"
    ):
        plan(tmp_path, ["-N2:6", *argv], facts=facts)
    bare = replace(FACTS, policy=parse_policy("checkpoint: {keep: 3}", "policy.yaml"))
    assert plan(tmp_path, ["-N2:6:2", *argv], facts=bare).spec.sizes == (2, 4, 6)
    with pytest.raises(UsageError, match="nothing says how many nodes the run may have"):
        plan(tmp_path, argv, facts=bare)


def test_a_file_that_runs_share_may_have_settings_for_sizes_that_nodes_leaves_out(tmp_path):
    text = "elasticPolicy: {replicaDiscreteValues: [2, 4, 6]}\nscale_config: {6: {lr: 0.1}}\n"
    facts = replace(FACTS, policy=parse_policy(text, "policy.yaml"))
    argv = ["-N2:4:2", "--elastic-policy=policy.yaml", "--", "x"]
    assert plan(tmp_path, argv, facts=facts).spec.sizes == (2, 4)


@pytest.mark.parametrize("section", ["", "elasticPolicy:\n  "])
def test_settings_for_a_size_that_nodes_does_not_name_are_refused_with_their_line(tmp_path, section):
    text = f"checkpoint: {{keep: 3}}\n{section}scale_config: {{2: {{}}, 5: {{lr: 0.1}}}}\n"
    facts = replace(FACTS, policy=parse_policy(text, "policy.yaml"))
    argv = ["--elastic-policy=policy.yaml", "--", "x"]
    line = text.splitlines().index(next(each for each in text.splitlines() if "scale_config" in each)) + 1
    path = "elasticPolicy.scale_config.5" if section else "scale_config.5"
    with pytest.raises(SubmitError) as caught:
        plan(tmp_path, ["-N2,4", *argv], facts=facts)
    assert str(caught.value) == (
        f"policy.yaml line {line}: {path}: is no size of the run; allowed by --nodes: 2, 4"
    )
    assert plan(tmp_path, ["-N2:5", *argv], facts=facts).spec.policy["scale_config"].keys() == {"2", "5"}


@pytest.mark.parametrize(
    ("command", "modules"),
    [(["python", "-u", "train.py", "x"], ()), (["/venv/bin/python3.11", "-m", "train"], ("torchvision",))],
)
def test_modules_that_each_node_imports_once(tmp_path, command, modules):
    facts = replace(FACTS, policy=parse_policy(f"preload: [{', '.join(modules)}]\n", "policy.yaml"))
    found = plan(tmp_path, ["-N1:2", "--elastic-policy=policy.yaml", "--", *command], facts=facts)
    assert found.spec.preload == modules
    assert RunSpec.from_json(json.loads(json.dumps(found.spec.to_json()))) == found.spec
    assert '"preload": [' in elastic_text(found)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--", "./train.py"], "needs a command that starts Python with a script or a module"),
        (["--", "python", "-c", "code"], "needs a command that starts Python with a script or a module"),
        (["--", "bash", "run.sh"], "needs a command that starts Python with a script or a module"),
        (["job.sh"], "needs a command that starts Python with a script or a module"),
        (["--elastic-mode=restart", "--", "python", "train.py"], "not for restart mode"),
    ],
)
def test_workers_that_cannot_be_forked_are_refused(tmp_path, argv, said):
    facts = replace(FACTS, policy=parse_policy("elasticPolicy: {}\npreload: []\n", "policy.yaml"))
    script = "#!/bin/sh\npython train.py\n"
    with pytest.raises(SubmitError, match=f"policy.yaml line 2: preload: .*{said}"):
        plan(tmp_path, ["-N1:2", "--elastic-policy=policy.yaml", *argv], script, facts)


def test_the_runs_of_an_array_do_not_save_in_one_place(tmp_path):
    """They would go on from each other's checkpoints, and remove them."""
    facts = replace(FACTS, policy=parse_policy("checkpoint:\n  folder: /scratch/run7\n", "policy.yaml"))
    argv = ["-N1:2", "--elastic-policy=policy.yaml", "--", "x"]
    with pytest.raises(SubmitError, match=r"policy.yaml line 2: checkpoint.folder is one place, .* --array"):
        plans(tmp_path, ["--array=0-3%1", *argv], facts=facts)
    (one,) = plans(tmp_path, ["--array=3", *argv], facts=facts)
    assert one.spec.checkpoint == {"folder": "/scratch/run7"}


def test_an_array_is_a_run_for_each_index(tmp_path):
    script = "#!/bin/sh\n#SBATCH -N1:2 --output=o-%A_%a.txt --dependency=afterok:7\n#SBATCH --array=4-6%2\n"
    first, second, third = plans(tmp_path, ["job.sh"], script)
    assert [each.spec.id for each in (first, second, third)] == [f"job-3fa9c1_{n}" for n in (4, 5, 6)]
    assert [each.follows for each in (first, second, third)] == ["", "", "job-3fa9c1_4"]
    assert (
        third.options[-1] == "--dependency=afterok:7"
    )  # what is added to it is known when that run has a job
    assert "--comment=hp-run:job-3fa9c1_5" in second.options
    baseline, _, replica, _ = second.files
    assert "#SBATCH --output=o-%j_5.txt\n" in baseline.text
    assert not any("array" in line for line in baseline.text.splitlines() if line.startswith("#SBATCH"))
    for job in (baseline, replica):
        assert "export SLURM_ARRAY_TASK_ID=5\n" in job.text
    assert elastic_text(third).count("afterok:7,afterany:JOB-OF-job-3fa9c1_4") == 1
    with pytest.raises(SubmitError, match="cannot be joined with the limit of --array"):
        plans(tmp_path, ["-d", "afterok:1?afterok:2", "job.sh"], script)
    with pytest.raises(SubmitError, match="unset SBATCH_ARRAY_INX and give --array"):
        plans(tmp_path, ["job.sh"], script, SBATCH_ARRAY_INX="1-3")


def test_all_jobs_of_a_run_tell_the_program_where_the_run_was_submitted(tmp_path):
    """sbatch would tell those that the run itself submits its own folder."""
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH -N1:2\n#SBATCH --time=9\n")
    asked = read_invocation(["job.sh"])
    intent = read_intent(asked, environment={}, cwd=tmp_path, standard_input=lambda: None)
    (run,) = plan_elastic(replace(intent, cwd=Path("/home/nlp1/it's mine")), FACTS)
    batch_scripts = [file for file in run.files if file.name != "script"]
    assert len(batch_scripts) == 3
    for file in batch_scripts:
        folder = "export SLURM_SUBMIT_DIR='/home/nlp1/it'\"'\"'s mine'\n"
        assert file.text.index(folder) < file.text.index("srun --nodes")


def test_the_index_is_in_a_file_name_from_the_environment(tmp_path):
    script = "#!/bin/sh\n#SBATCH -N1:2 --output=mine\n#SBATCH --array=4-6\n"
    files = {"SBATCH_OUTPUT": "o-%A_%2a.txt", "SBATCH_ERROR": "e-%a.txt", "SBATCH_INPUT": "none"}
    _, second, _ = plans(tmp_path, ["-ee.txt", "job.sh"], script, SBATCH_ACCOUNT="%a", **files)
    given = [word for word in second.options if not word.startswith(("--nodes", "--job-name", "--comment"))]
    assert given[:3] == ["--error=e-5.txt", "--output=o-%j_05.txt", "--error=e.txt"]  # sbatch takes the last
    assert given[3:] == ["--no-requeue", "--open-mode=append"]
    assert {"--output=o-%j_05.txt", "--error=e.txt", "--input=none"} < set(second.spec.baseline_options)


def test_another_baseline_asks_for_all_but_what_only_the_first_could(tmp_path):
    argv = ["-d", "afterok:3", "--begin=now+1hour", "--hold", "--exclusive", "job.sh"]
    submission = plan(tmp_path, argv, SBATCH_ACCOUNT="nlp", SBATCH_GRES="gpu:1")
    assert submission.spec.baseline_options[:7] == (
        "--gpus-per-node=4",
        "--ntasks-per-node=4",
        "--output=out-%j.txt",
        "--mail-type=END",
        "--time=60",
        "--qos=high",
        "--account=nlp",
    )
    assert not {"begin", "dependency", "hold", "nodelist"} & {
        word[2:].partition("=")[0] for word in submission.spec.baseline_options
    }
    assert submission.spec.baseline_script.endswith("/next-baseline.sh")
    files = {file.name: file.text for file in submission.files}
    lines = files["next-baseline.sh"].splitlines()
    assert [each for each in files["baseline.sh"].splitlines() if not each.startswith("#SBATCH")] == lines


@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        (["--gpus-per-node=4"], 4),
        (["--gpus-per-node=a100:2,h100:1"], 3),
        (["--gres=gpu:a100:8(S:0-1),nvme:2"], 8),
        (["--gres=gpu"], 1),
        (["--gres=gpumem:3"], None),
        ([], None),
    ],
)
def test_gpus_of_a_node_are_counted(tmp_path, words, gpus):
    intent = read_intent(
        read_invocation([*words, "--", "x"]), environment={}, cwd=tmp_path, standard_input=lambda: None
    )
    assert gpus_per_node(intent) == gpus


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--gpus-per-node=a100:4"], {"gres/gpu": 4, "gres/gpu:a100": 4}),
        (["--gpus-per-node=3090"], {"gres/gpu": 3090}),
        (["--gres=gpu:a100:2,gpu:a10g:1,nvme:2"], {"gres/gpu": 3, "gres/gpu:a100": 2, "gres/gpu:a10g": 1}),
        (["--gres=gres/gpu:3090:2(S:0)"], {"gres/gpu": 2, "gres/gpu:3090": 2}),
        (["--gres=gpu:1g.5gb"], {"gres/gpu": 1, "gres/gpu:1g.5gb": 1}),
        (["--gres=gpu"], {"gres/gpu": 1}),
        (["--gres=gpu=4"], {"gres/gpu": 4}),
        (["--gres=gpu:a100=4,nvme=2"], {"gres/gpu": 4, "gres/gpu:a100": 4}),
        (["--exclusive"], {}),
    ],
)
def test_types_of_gpus_that_are_named_are_counted(tmp_path, words, found):
    intent = read_intent(
        read_invocation([*words, "--", "x"]), environment={}, cwd=tmp_path, standard_input=lambda: None
    )
    assert gpu_tres(intent) == found


def test_a_limit_of_one_type_of_gpu_is_known_at_submit(tmp_path):
    bounds = (Bounds("account nlp", group={"gres/gpu:a100": 4}),)
    account = Account("nlp", True, ("normal", "elastic"), bounds)
    known = replace(LIMITS, accounts=(account,), enforced=frozenset({"associations", "limits"}))
    facts = replace(FACTS, partitions=None, limits=known)
    with pytest.raises(SubmitError, match="takes up to 8 a100 GPUs and account nlp may have 4"):
        plan(tmp_path, ["-N1:2", "--gpus-per-node=a100:4", "--", "train"], facts=facts)
    plan(tmp_path, ["-N1:2", "--gpus-per-node=v100:4", "--", "train"], facts=facts)


def test_whole_nodes_have_the_gpus_that_a_qos_wants(tmp_path):
    wants_gpus = Bounds("QoS normal", least={"gres/gpu": 1})
    known = replace(LIMITS, qos={**LIMITS.qos, "normal": wants_gpus}, enforced=frozenset({"limits"}))
    facts = replace(FACTS, partitions=None, limits=known)
    plan(tmp_path, ["-N1:2", "--qos=normal", "--exclusive", "--", "train"], facts=facts)
    for words in ([], ["--exclusive=user"]):
        with pytest.raises(SubmitError, match="the baseline job of this run 0; ask for GPUs"):
            plan(tmp_path, ["-N1:2", "--qos=normal", *words, "--", "train"], facts=facts)


def test_cpus_are_those_of_slurm_s_tasks_and_not_of_torchrun_s_workers(tmp_path):
    """`--cpus-per-task 16 -- torchrun --nproc-per-node 4` has 16 CPUs of each node."""
    account = Account("nlp", True, ("normal", "elastic"), (Bounds("account nlp", group={"cpu": 32}),))
    known = replace(LIMITS, accounts=(account,), enforced=frozenset({"associations", "limits"}))
    facts = replace(FACTS, partitions=None, limits=known)
    torchrun = ["--", "torchrun", "--nproc-per-node=4", "train.py"]
    plan(tmp_path, ["-N1:2", "--cpus-per-task=16", *torchrun], facts=facts)
    with pytest.raises(SubmitError, match="takes up to 128 CPUs and account nlp may have 32"):
        plan(tmp_path, ["-N1:2", "--cpus-per-task=16", "--ntasks-per-node=4", *torchrun], facts=facts)


def test_a_run_of_one_size_has_kill_wait_and_no_grace_time(tmp_path):
    known = replace(LIMITS, grace={}, kill_wait=45)
    facts = replace(FACTS, partitions=None, limits=known)
    one = plan(tmp_path, ["-N2:2", "-t", "40", "--", "train"], facts=facts).spec
    several = plan(tmp_path, ["-N1:2", "-t", "40", "--", "train"], facts=facts).spec
    assert (one.grace_seconds, one.kill_wait_s, one.graceful_seconds) == (0.0, 45.0, 45.0)
    assert (several.graceful_seconds, several.closing_seconds) == (0.0, 39.5)


def test_where_partitions_preempt_replicas_have_the_grace_of_the_chosen_ones(tmp_path):
    partitions = {"a": PartitionTimes(None, None, grace=120), "b": PartitionTimes(None, 60, grace=45)}
    known = replace(LIMITS, preempt_type="partition_prio", partitions=partitions)
    facts = replace(FACTS, partitions=None, limits=known)
    one = plan(tmp_path, ["-N1:2", "-p", "a", "-t", "50", "--", "train"], facts=facts).spec
    both = plan(tmp_path, ["-N1:2", "-p", "a,b", "-t", "50", "--", "train"], facts=facts).spec
    assert (one.grace_seconds, both.grace_seconds) == (120.0, 45.0)
