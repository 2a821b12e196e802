"""What comes of whole site files: findings, or every file of the configuration, compared as whole texts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hpctools.conf import (
    AccountTree,
    Bundle,
    Endpoint,
    Facts,
    bootstrap_commands,
    compile,
    load_file,
    sync_commands,
)
from hpctools.site import InvalidSiteError, load, loads
from hpctools.site.nodes import Hardware

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden"
REFERENCE = ROOT / "slurm-conf/examples/university/site.yaml"
FINDINGS = sorted((GOLDEN / "findings").glob("*.yaml"))

Golden = Callable[[Path, str], None]

SANDBOX_NODES = [f"reserved-{n}" for n in (1, 2, 3, 4)] + ["shared-1"]

CASES = {
    "university": (REFERENCE, Facts()),
    # As on one machine: every daemon on loopback with a port of its own, cores counted but not bound.
    "university-on-one-machine": (
        REFERENCE,
        Facts(
            slurm_version=(22, 5, 8),
            cgroup="v1",
            slurm_user="slurm",
            node_counts={"shared": 1},
            node_endpoints={name: Endpoint("127.0.0.1", 17001 + n) for n, name in enumerate(SANDBOX_NODES)},
            node_hostnames={"shared-1": "other-host"},
            controller_endpoints={"ctl-1": Endpoint("127.0.0.1", 16817)},
            slurmdbd_endpoint=Endpoint("127.0.0.1", 16819),
            hardware={"shared": Hardware(sockets=1, cores_per_socket=4, memory_mib=4096)},
            constrain_cores=False,
            constrain_ram=False,
            constrain_devices=False,
            extra_parameters={"SlurmdParameters": "config_overrides", "SlurmdTimeout": "20"},
        ),
    ),
    "nodes-without-gpus": (
        GOLDEN / "nodes-without-gpus/site.yaml",
        Facts(slurm_version=(26, 5), cgroup="none", storage_password="s3cret"),
    ),
    "shared-gpus": (GOLDEN / "shared-gpus/site.yaml", Facts(slurm_version=(25, 11))),
    "every-kind-of-gpu": (GOLDEN / "every-kind-of-gpu/site.yaml", Facts(slurm_version=(22, 5, 8))),
    "mig-slices": (GOLDEN / "mig-slices/site.yaml", Facts(slurm_version=(22, 5, 8))),
    "burst-only-department": (GOLDEN / "burst-only-department/site.yaml", Facts()),
    "shared-partitions": (GOLDEN / "shared-partitions/site.yaml", Facts()),
    "tree": (GOLDEN / "tree/site.yaml", Facts(slurm_version=(22, 5, 8), node_counts={"fat": 5, "thin": 0})),
    "blocks": (GOLDEN / "blocks/site.yaml", Facts()),
    "several-controllers": (GOLDEN / "several-controllers/site.yaml", Facts(slurm_version=(26, 5, 5))),
    "power-saving": (GOLDEN / "power-saving/site.yaml", Facts(slurm_version=(22, 5, 8))),
    "containers-and-scripts": (GOLDEN / "containers-and-scripts/site.yaml", Facts(slurm_version=(26, 5, 5))),
    "over-subscribe": (GOLDEN / "over-subscribe/site.yaml", Facts()),
    "host-lists": (GOLDEN / "host-lists/site.yaml", Facts()),
    "nested-labs": (GOLDEN / "nested-labs/site.yaml", Facts()),
    "centre": (ROOT / "slurm-conf/examples/centre/site.yaml", Facts()),
}


@pytest.mark.parametrize("case", CASES)
def test_every_file_of_a_configuration(case: str, golden: Golden) -> None:
    site, facts = CASES[case]
    bundle = compile(load(site), facts)
    expected = GOLDEN / case / "expected"
    files = {
        **{file.path: file for file in bundle.files},
        **{f"{host}/{file.path}": file for host, there in bundle.elsewhere.items() for file in there},
    }
    for path, file in files.items():
        golden(expected / path, file.text)
    golden(expected / "accounts.txt", accounts_text(bundle))
    assert {str(path.relative_to(expected)) for path in expected.rglob("*") if path.is_file()} == {
        *files,
        "accounts.txt",
    }


def accounts_text(bundle: Bundle) -> str:
    """Everything that slurmdbd is told when it knows nothing: commands, and the file that is loaded."""
    empty = AccountTree((), (), (), {}, ())
    first = bootstrap_commands(bundle.accounts, empty)
    known = AccountTree(bundle.accounts.clusters, (), (), {}, ())
    loaded = load_file(bundle.accounts, known)
    rest = [command for command in sync_commands(bundle.accounts, loaded.live) if command not in first]
    lines = [*map(" ".join, first), "load:", loaded.text + "then:", *map(" ".join, rest)]
    return "\n".join(lines) + "\n"


def test_every_command_of_a_busy_year(golden: Golden) -> None:
    """Limits, tiers, a lab and people move: what slurmdbd is told, and what when all of it is taken back."""
    year = GOLDEN / "busy-year"
    before, after = (compile(load(year / f"{name}.yaml")).accounts for name in ("before", "after"))
    there, back = sync_commands(after, before), sync_commands(before, after)
    golden(year / "there.txt", "".join(" ".join(command) + "\n" for command in there))
    golden(year / "back.txt", "".join(" ".join(command) + "\n" for command in back))


def test_only_the_database_file_is_kept_from_others() -> None:
    bundle = compile(load(REFERENCE))
    assert {file.path: oct(file.mode) for file in bundle.files} == {
        "slurm.conf": "0o644",
        "gres.conf": "0o644",
        "cgroup.conf": "0o644",
        "slurmdbd.conf": "0o600",
    }


def test_a_password_is_in_one_file_and_in_no_repr() -> None:
    site, facts = CASES["nodes-without-gpus"]
    bundle = compile(load(site), facts)
    assert "s3cret" not in "".join(file.text for file in bundle.files)
    (daemon,) = bundle.elsewhere["books.example.org"]
    assert (daemon.path, daemon.mode, "s3cret" in daemon.text) == ("slurmdbd.conf", 0o600, True)
    assert "s3cret" not in repr(bundle) + repr(facts)


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.stem)
def test_all_findings_of_a_bad_site(path: Path, golden: Golden) -> None:
    with pytest.raises(InvalidSiteError) as caught:
        loads(path.read_text(encoding="utf-8"), "site.yaml")
    golden(path.with_suffix(".txt"), f"{caught.value}\n")


def test_no_expected_findings_without_a_site() -> None:
    assert FINDINGS
    assert {path.stem for path in (GOLDEN / "findings").glob("*.txt")} == {path.stem for path in FINDINGS}
