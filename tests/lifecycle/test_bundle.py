"""A bundle: what is in it, that no secret is, and that its name is the hash of what is in it."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hpctools import conf
from hpctools.cli.hyperpod_bundle import bundle_of
from hpctools.cli.main import hpctools
from hpctools.errors import HpctoolsError
from hpctools.hyperpod.bundle import BundleFile, NodeBundle, bundle, read_bundle, write_bundle
from hpctools.hyperpod.bundle_secrets import refuse_secrets
from hpctools.hyperpod.payload import SlurmPart, mount_settings, settings
from hpctools.site import load, loads
from tests.hyperpod.stack_outputs import RAW, outputs
from tests.lifecycle.node import CONTROLLER, SCRIPTS, USUAL, Node
from tests.lifecycle.world import SITE, site_bundle

ROOT = SCRIPTS.parent
EXAMPLE = ROOT / "slurm-conf/examples/university/site.yaml"


@pytest.fixture
def outputs_file(tmp_path: Path) -> Path:
    path = tmp_path / "outputs.json"
    path.write_text(json.dumps(RAW))
    return path


def made_by(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(hpctools, ["hyperpod", "bundle", *map(str, words)])
    if isinstance(done.exception, HpctoolsError):
        return done.exception.exit_code, str(done.exception)
    return done.exit_code, done.output


def test_the_command_writes_all_that_a_node_needs(tmp_path: Path, outputs_file: Path) -> None:
    out = tmp_path / "lifecycle"
    code, said = made_by(EXAMPLE, "--out", out, "--outputs", outputs_file, "--json")
    assert code == 0, said
    told = json.loads(said)
    assert told["hash"] == read_bundle(out).hash
    tracked = subprocess.run(
        ["git", "ls-files", "lifecycle-scripts", "pam"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    shipped = {path.removeprefix("lifecycle-scripts/") for path in tracked if (ROOT / path).exists()}
    assert shipped <= set(told["files"])
    made = {path for path in told["files"] if path.startswith("site/")}
    assert made == {
        "site/settings.json",
        "site/slurm/associations.json",
        "site/slurm/cgroup.conf",
        "site/slurm/hpctools.conf",
        "site/slurm/slurmdbd.conf",
    }
    assert not [path for path in told["files"] if "__pycache__" in path or path.startswith(".")]


def test_what_was_written_runs_on_a_node(tmp_path: Path) -> None:
    write_bundle(site_bundle(), tmp_path / "out")
    node = Node(tmp_path / "node", CONTROLLER)
    done = subprocess.run(
        ["bash", str(tmp_path / "out/on_create.sh"), "--list"],
        env={"PATH": USUAL, "HPCTOOLS_ROOT": str(node.root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stdout
    steps = [line.split()[0] for line in done.stdout.splitlines()]
    assert steps == sorted(
        path.name
        for path in (SCRIPTS / "steps").iterdir()
        if re.search("roles:.*controller", path.read_text())
    )


def test_the_same_site_gives_the_same_bundle_and_another_gives_another() -> None:
    assert site_bundle() == site_bundle()
    assert site_bundle().hash == site_bundle().hash
    assert site_bundle(lambda text: text.replace("nlp2", "nlp3")).hash != site_bundle().hash


@given(
    st.dictionaries(st.text("ab/", min_size=1, max_size=4), st.tuples(st.binary(max_size=4), st.booleans())),
    st.dictionaries(st.text("ab/", min_size=1, max_size=4), st.tuples(st.binary(max_size=4), st.booleans())),
)
def test_the_hash_tells_files_apart(
    one: dict[str, tuple[bytes, bool]], other: dict[str, tuple[bytes, bool]]
) -> None:
    def made(files: dict[str, tuple[bytes, bool]]) -> NodeBundle:
        return NodeBundle(tuple(BundleFile(path, *files[path]) for path in sorted(files)))

    assert (made(one).hash == made(other).hash) == (one == other)


def test_a_second_bundle_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    first = site_bundle()
    write_bundle(NodeBundle((*first.files, BundleFile("steps/99-old", b"old"))), tmp_path / "out")
    write_bundle(first, tmp_path / "out")
    assert read_bundle(tmp_path / "out") == first


@pytest.mark.parametrize("anew", [True, False], ids=["new folder", "over an earlier one"])
@pytest.mark.parametrize("at", [1, 2, 5, 1000])
def test_a_bundle_that_was_interrupted_is_none_and_is_written_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, anew: bool
) -> None:
    made, real, folder = site_bundle(), Path.write_bytes, tmp_path / "out"
    if not anew:
        write_bundle(made, folder)
    writes = iter(range(1, at + 1))

    def write(path: Path, content: bytes) -> int:
        if next(writes) == min(at, len(made.files)):
            raise KeyboardInterrupt
        return real(path, content)

    monkeypatch.setattr(Path, "write_bytes", write)
    with pytest.raises(KeyboardInterrupt):
        write_bundle(made, folder)
    monkeypatch.undo()
    with pytest.raises(HpctoolsError, match="is no bundle"):
        read_bundle(folder)
    write_bundle(made, folder)
    assert read_bundle(folder) == made


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(HpctoolsError, match="has something else in it"):
        write_bundle(site_bundle(), tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_file_systems_that_are_not_there_yet_are_asked_for(tmp_path: Path) -> None:
    code, said = made_by(EXAMPLE, "--out", tmp_path / "out")
    assert (code, "nobody knows the addresses of the file systems scratch, home" in said) == (2, True), said
    assert not (tmp_path / "out").exists()


BALANCER = "load_balancer: {allow_from: [10.0.0.0/8]}"
SCALING = "scaling: {instance_type: m7i.2xlarge, image: ami-0123456789abcdef0}"
TARGETS = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/login/0123456789abcdef"


@pytest.mark.parametrize(
    ("more", "elsewhere", "unknown"),
    [
        ("accounting_database: {}", "", "the address of the accounting database"),
        (f"login: {{{BALANCER}}}", "", "the load balancer's list of login nodes"),
        (f"login: {{{BALANCER}}}", f"lifecycle: {{login_balance: {{target_group: '{TARGETS}'}}}}\n", ""),
        (f"login: {{{BALANCER}, {SCALING}}}", "", ""),
    ],
)
def test_what_only_the_stack_knows_is_asked_for(
    tmp_path: Path, more: str, elsewhere: str, unknown: str
) -> None:
    """Nodes set up a database of their own, and were on no balancer's list, without a word."""
    site = tmp_path / "site.yaml"
    site.write_text(f"{SITE}{elsewhere}aws: {{region: eu-central-1, file_systems: [], {more}}}\n")
    code, said = made_by(site, "--out", tmp_path / "out")
    assert (code, said.partition(" before ")[0]) == ((2, f"nobody knows {unknown}") if unknown else (0, said))
    assert (tmp_path / "out").exists() is (not unknown)


def test_what_the_stack_gave_out_comes_to_the_nodes() -> None:
    site = load(EXAMPLE)
    made = settings(site, SlurmPart({}), outputs(site))
    assert [(mount["source"], mount["path"], mount["required"]) for mount in made["mounts"]] == [
        (f"{RAW['FileSystemScratchDnsName']}@tcp:/abcdefgh", "/fsx", True),
        (f"{RAW['FileSystemHomeDnsName']}:/fsx", "/home", True),
        ("nas.uni.example:/export/corpora", "/corpora", False),
    ]
    assert made["accounting"] == {
        "slurmdbd_port": 6819,
        "name": "slurm_acct_db",
        "user": "slurm",
        "endpoint": RAW["DatabaseEndpoint"],
        "port": 3306,
        "secret": RAW["DatabaseSecretArn"],
    }
    assert made["cluster"] == {
        "name": "uni-gpu",
        "groups": {"controller": "controller", "reserved": "compute", "shared": "compute", "spot": "compute",
                   "login": "login"},
    }  # fmt: skip
    assert made["slurm"]["folder"] == "/opt/slurm/etc"
    assert made["containers"]["limit"] == 900, "seconds"
    json.dumps(made)


def test_a_mount_of_the_stack_wins_over_one_of_the_same_folder() -> None:
    site = load(EXAMPLE)
    both = site.lifecycle.mounts[0].model_copy(update={"path": "/fsx"})
    twice = site.model_copy(update={"lifecycle": site.lifecycle.model_copy(update={"mounts": (both,)})})
    paths = [mount["path"] for mount in mount_settings(twice, outputs(twice))]
    assert paths == ["/fsx", "/home"]


SECRETS = {
    "key.pem": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n",
    "slurmdbd.conf": "DbdHost=x\n storagepass = hunter2\n",
    "settings.json": '{"identity": {"bind_password": "hunter2"}}',
    "aws": "aws_access_key_id=AKIAIOSFODNN7EXAMPLE\n",
    "sssd.conf": "ldap_default_authtok = hunter2\n",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_refused_by_file_and_line_and_not_repeated(name: str) -> None:
    with pytest.raises(HpctoolsError, match=re.escape(f"site/{name}:")) as caught:
        refuse_secrets({"on_create.sh": b"#!/bin/bash\n", f"site/{name}": SECRETS[name].encode()})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_that_somebody_put_into_a_bundle_is_not_uploaded(name: str, tmp_path: Path) -> None:
    write_bundle(site_bundle(), tmp_path / "out")
    (tmp_path / "out/site" / f"added-{name}").write_text(SECRETS[name])
    with pytest.raises(HpctoolsError, match="a secret in it"):
        read_bundle(tmp_path / "out")


def test_a_password_that_the_facts_have_stays_out_of_the_bundle() -> None:
    site, facts = loads(SITE), conf.Facts(storage_password="hunter2")
    with pytest.raises(HpctoolsError, match="would hold a password; keep it in AWS Secrets") as caught:
        bundle_of(site, None, facts)
    assert "hunter2" not in str(caught.value)


def test_the_legacy_file_lies_beside_the_scripts_where_the_style_wants_it() -> None:
    site = load(EXAMPLE)
    assert site.hyperpod is not None
    legacy = site.hyperpod.model_copy(update={"style": "legacy", "continuous": False, "node_groups": {}})
    found = site.model_copy(update={"hyperpod": legacy})
    made = bundle_of(found, outputs(found), conf.Facts())
    assert json.loads(made.file("provisioning_parameters.json").content)["workload_manager"] == "slurm"
    usual = bundle_of(site, outputs(site), conf.Facts())
    assert "provisioning_parameters.json" not in {file.path for file in usual.files}


def test_a_wheel_ships_the_scripts() -> None:
    """An editable install finds them beside the package, a wheel within it."""
    text = (ROOT / "pyproject.toml").read_text()
    assert '"lifecycle-scripts" = "hpctools/nodes/lifecycle-scripts"' in text
    assert '"pam" = "hpctools/nodes/pam"' in text


def test_scripts_within_the_package_are_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "hpctools"
    shutil.copytree(SCRIPTS, package / "nodes/lifecycle-scripts")
    (package / "nodes/pam").mkdir()
    (package / "nodes/lifecycle-scripts/on_create.sh").write_text("of the wheel\n")
    monkeypatch.setattr("hpctools.hyperpod.bundle._PACKAGE", package)
    assert bundle({"version": 1}, {}).file("on_create.sh").content == b"of the wheel\n"
