"""`hpctools hyperpod validate|render|convert|advise` as people use them."""

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner

from hpctools.cli.hyperpod import SUBCOMMANDS, hyperpod
from hpctools.errors import HpctoolsError, UsageError
from hpctools.slurm.run import Completed, run
from tests.hyperpod.samples import legacy, slurmconfig, write
from tests.hyperpod.stack_outputs import LIFECYCLE, RAW

ROOT = Path(__file__).parents[2]
UNIVERSITY = str(ROOT / "slurm-conf/examples/university/site.yaml")
TWIN = str(ROOT / "slurm-conf/examples/two-controllers/site.yaml")


def invoke(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(hyperpod, list(map(str, arguments)), standalone_mode=False)
    if result.exception:
        raise result.exception
    return (result.return_value or 0), result.stdout, result.stderr


def command(*arguments: object, **environment: str) -> Completed:
    """The real command, in a process of its own."""
    argv = [sys.executable, "-m", "hpctools.cli.main", "hyperpod", *map(str, arguments)]
    return run(argv, timeout=60, env={**os.environ, **environment}, cwd=ROOT, check=False)


def test_good_files_end_with_0_and_one_line(tmp_path: Path) -> None:
    path = write(tmp_path, anything=slurmconfig())["anything"]
    assert invoke("validate", path) == (0, f"{path}: valid; Slurm in the request (SlurmConfig)\n", "")


def test_files_are_told_apart_by_what_they_say(tmp_path: Path) -> None:
    request, provisioning = legacy()
    paths = write(tmp_path, provisioning_parameters=request, cluster=provisioning)
    swapped = paths["provisioning_parameters"], paths["cluster"]
    for order in (swapped, swapped[::-1]):
        code, out, _ = invoke("validate", *order)
        assert (
            code,
            out.splitlines()[-1].endswith("valid; legacy style (provisioning_parameters.json)"),
        ) == (0, True)


def test_a_folder_is_searched_for_both(tmp_path: Path) -> None:
    request, provisioning = legacy()
    write(tmp_path, **{"cluster-config": request})
    (tmp_path / "lifecycle").mkdir()
    write(tmp_path / "lifecycle", provisioning_parameters=provisioning)
    assert invoke("validate", tmp_path)[0] == 0
    write(tmp_path, **{"cluster-config": slurmconfig()})
    code, out, _ = invoke("validate", tmp_path)
    assert code == 1
    assert "[both-styles]" in out


def test_a_legacy_request_finds_the_file_beside_it(tmp_path: Path) -> None:
    request, provisioning = legacy()
    paths = write(tmp_path, cluster=request, provisioning_parameters=provisioning)
    assert invoke("validate", paths["cluster"])[0] == 0
    # Beside a request that says everything a file that lies there is none of its business.
    write(tmp_path, cluster=slurmconfig())
    assert invoke("validate", paths["cluster"])[0] == 0


def test_all_findings_with_file_line_and_pointer_and_1(tmp_path: Path) -> None:
    request, provisioning = legacy()
    request["InstanceGroups"][0]["InstanceCount"] = "1"
    provisioning["controller_group"] = "hed"
    one, two = write(tmp_path, cluster=request, provisioning=provisioning).values()
    code, out, _ = invoke("validate", one, two)
    assert code == 1
    assert out.splitlines() == [
        f"{one}:5: /InstanceGroups/0/InstanceGroupName instance group 'head', which"
        " provisioning_parameters.json does not name; name it there: HyperPod refuses groups whose part it"
        " does not know [group-without-part]",
        f"{one}:7: /InstanceGroups/0/InstanceCount '1'; write a whole number: 1 without quotes [type]",
        f"{two}:4: /controller_group 'hed', which is no instance group; write one of head, door,"
        " gpu, cpu (head?) [unknown-group]",
        f"{one}, {two}: 3 errors; legacy style (provisioning_parameters.json)",
    ]


def test_json_is_one_object_with_everything(tmp_path: Path) -> None:
    request = slurmconfig()
    del request["ClusterName"]
    path = write(tmp_path, cluster=request)["cluster"]
    code, out, _ = invoke("validate", "--json", path)
    assert code == 1
    assert json.loads(out) == {
        "files": [str(path)],
        "style": "slurmconfig",
        "valid": False,
        "findings": [
            {
                "file": str(path),
                "line": 1,
                "pointer": "",
                "rule": "missing-key",
                "found": "no ClusterName",
                "remedy": "add ClusterName",
                "severity": "error",
            }
        ],
    }


@pytest.mark.parametrize("arguments", [(), ("a", "b", "c"), ("/nonexistent/x.json",), (ROOT / "docs",)])
@pytest.mark.parametrize("name", ["validate", "advise"])
def test_wrong_usage(name: str, arguments: tuple[object, ...]) -> None:
    with pytest.raises(UsageError):
        invoke(name, *arguments)


def test_two_requests_are_wrong_usage(tmp_path: Path) -> None:
    paths = write(tmp_path, a=slurmconfig(), b=slurmconfig())
    with pytest.raises(UsageError, match=r"are both a cluster-config\.json"):
        invoke("validate", *paths.values())


def test_a_site_file_is_wrong_usage_with_a_hint() -> None:
    for name in ("validate", "convert"):
        more = ["--to", "legacy"] if name == "convert" else []
        with pytest.raises(UsageError, match="hpctools hyperpod render"):
            invoke(name, UNIVERSITY, *more)


def test_a_region_without_aws_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--region"):
        invoke("validate", "--region", "eu-central-1", *write(tmp_path, a=slurmconfig()).values())


@pytest.mark.skipif(os.geteuid() != 0, reason="another account is needed")
def test_a_file_that_may_not_be_read_is_a_finding() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        path = write(folder, cluster=slurmconfig())["cluster"]
        path.chmod(0)
        other = ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-m", "hpctools.cli.main"]
        done = run([*other, "hyperpod", "validate", str(path)], timeout=60, cwd=ROOT, check=False)
    assert (done.code, "Traceback" in done.stderr) == (1, False)
    assert f"{path}: cannot be read: permission denied; name a file that you may read" in done.stdout


def test_exit_codes_of_the_real_command(tmp_path: Path) -> None:
    good = write(tmp_path, good=slurmconfig())["good"]
    bad = write(tmp_path, bad={"ClusterName": "x", "InstanceGroups": []})["bad"]
    assert command("validate", good).code == 0
    missing = command("validate", tmp_path / "missing.json")
    assert (missing.code, "Traceback" in missing.stderr) == (2, False)
    away = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_REGION": "eu-central-1",
    }
    unreachable = command("validate", "--aws", good, **away)
    assert (unreachable.code, "does not answer" in unreachable.stdout) == (3, True)
    nowhere = {"AWS_CONFIG_FILE": "/nonexistent", "AWS_REGION": "", "AWS_DEFAULT_REGION": ""}
    both = command("validate", "--aws", bad, **nowhere)
    found = ("no AWS region is named" in both.stdout, "[limit]" in both.stdout)
    assert (both.code, found) == (1, (True, True)), "what was found without AWS is told all the same"
    assert "Traceback" not in unreachable.stderr


def test_render_prints_and_writes_the_same(tmp_path: Path) -> None:
    _, printed, _ = invoke("render", TWIN)
    _, told, _ = invoke("render", TWIN, "--out", tmp_path / "out")
    names = ["cluster-config.json", "provisioning_parameters.json"]
    texts = [(tmp_path / "out" / name).read_text() for name in names]
    assert printed == "\n".join(f"==> {name} <==\n{text}" for name, text in zip(names, texts, strict=True))
    assert [f"wrote {tmp_path / 'out' / name}" for name in names] == told.splitlines()[:2]
    again = invoke("render", TWIN, "--out", tmp_path / "out")
    assert again[1] == told
    assert invoke("validate", tmp_path / "out")[0] == 0


@pytest.mark.parametrize("form", ["described", "plain"])
def test_render_takes_the_stacks_outputs_in_both_forms(tmp_path: Path, form: str) -> None:
    listed = [{"OutputKey": key, "OutputValue": value} for key, value in RAW.items()]
    given: Any = {"Stacks": [{"StackName": "s", "Outputs": listed}]} if form == "described" else RAW
    path = write(tmp_path, outputs=given)["outputs"]
    _, out, _ = invoke("render", UNIVERSITY, "--outputs", path, "--lifecycle", LIFECYCLE, "--json")
    told = json.loads(out)
    golden = ROOT / "tests/golden/hyperpod/university/cluster-config.json"
    assert told["files"] == {"cluster-config.json": golden.read_text()}
    assert (told["style"], told["strategy"], told["written"]) == ("slurmconfig", None, [])


def test_render_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    with pytest.raises(HpctoolsError, match=r"nothing says hyperpod\.execution_role"):
        invoke("render", UNIVERSITY)
    with pytest.raises(UsageError, match="holds no outputs"):
        invoke("render", UNIVERSITY, "--outputs", write(tmp_path, o={})["o"])
    with pytest.raises(UsageError, match="not-json"):
        invoke("render", UNIVERSITY, "--outputs", write(tmp_path, o="{")["o"])
    site = ROOT / "slurm-conf/examples/centre/site.yaml"
    with pytest.raises(HpctoolsError, match="no hyperpod section"):
        invoke("render", site)


def test_render_leaves_no_file_of_the_other_style_beside_it(tmp_path: Path) -> None:
    own = ROOT / "slurm-conf/examples/own-network/site.yaml"
    write(tmp_path, provisioning_parameters={})
    with pytest.raises(UsageError, match="HyperPod refuses it beside SlurmConfig"):
        invoke("render", own, "--out", tmp_path)
    assert not (tmp_path / "cluster-config.json").exists()


def test_convert_there_and_back(tmp_path: Path) -> None:
    request, provisioning = legacy()
    provisioning["worker_groups"][0]["partition_name"] = "p5"
    given = write(tmp_path, a=request, b=provisioning)
    code, out, err = invoke("convert", *given.values(), "--to", "slurmconfig", "--out", tmp_path / "new")
    assert (code, out) == (0, f"wrote {tmp_path / 'new/cluster-config.json'}\n")
    assert "mind: take provisioning_parameters.json away" in err
    assert invoke("convert", tmp_path / "new", "--to", "legacy", "--out", tmp_path / "old")[0] == 0
    back = [
        json.loads((tmp_path / "old" / name).read_text())
        for name in ("cluster-config.json", "provisioning_parameters.json")
    ]
    assert back == [request, provisioning]


def test_convert_ends_with_1_when_something_is_lost(tmp_path: Path) -> None:
    path = write(tmp_path, a=slurmconfig())["a"]
    code, out, err = invoke("convert", path, "--to", "legacy")
    assert code == 1
    assert "lost: SlurmConfigStrategy Managed: the legacy style always merges" in err
    assert out.startswith("==> cluster-config.json <==\n{")
    told = json.loads(invoke("convert", path, "--to", "legacy", "--json")[1])
    assert (len(told["lost"]), sorted(told["files"])) == (
        1,
        ["cluster-config.json", "provisioning_parameters.json"],
    )


def test_convert_writes_over_nothing_that_it_reads(tmp_path: Path) -> None:
    write(tmp_path, **{"cluster-config": slurmconfig()})
    with pytest.raises(UsageError, match="holds the files that are converted"):
        invoke("convert", tmp_path, "--to", "legacy", "--out", tmp_path)


def test_advice_for_a_site_and_for_files(tmp_path: Path) -> None:
    code, out, _ = invoke("advise", UNIVERSITY)
    assert code == 0
    assert out.splitlines()[:2] == ["style: slurmconfig", "SlurmConfigStrategy: none may be stated"]
    request = slurmconfig()
    request["NodeProvisioningMode"] = "Continuous"
    path = write(tmp_path, a=request)["a"]
    code, out, _ = invoke("advise", path, "--json")
    assert (code, json.loads(out)["conflicts"]) == (
        1,
        ["Managed with continuous provisioning: leave it out, or the request is refused"],
    )


def test_the_group_lists_without_importing() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from hpctools.cli.hyperpod import hyperpod;"
        "r = CliRunner().invoke(hyperpod, ['--help']); assert r.exit_code == 0, r.output;"
        "heavy = ('boto', 'pydantic', 'hpctools.site'); print(r.output);"
        "assert not [name for name in sys.modules if name.startswith(heavy)]"
    )
    done = run([sys.executable, "-c", code], timeout=60, cwd=ROOT)
    assert all(name in done.stdout for name in SUBCOMMANDS)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_is_there_and_has_help(name: str) -> None:
    result = CliRunner().invoke(hyperpod, [name, "--help"])
    assert (result.exit_code, "Usage" in result.output) == (0, True)
