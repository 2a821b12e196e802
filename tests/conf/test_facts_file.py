"""The facts of an installation as a file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.conf import Endpoint, Facts
from hpctools.conf.facts_file import dump_facts, load_facts
from hpctools.errors import HpctoolsError
from hpctools.site.nodes import Hardware

ENDPOINT = st.builds(Endpoint, st.sampled_from(["127.0.0.1", "ctl-1", "no"]), st.integers(1, 65535))
NAME = st.sampled_from(["n1", "yes", "12", "n", "null"])
FACTS = st.builds(
    Facts,
    slurm_version=st.none() | st.just((22, 5, 8)) | st.just((24, 11)),
    cgroup=st.sampled_from(["v1", "v2", "none"]),
    slurm_user=st.none() | NAME,
    node_counts=st.dictionaries(NAME, st.integers(0, 9)),
    node_endpoints=st.dictionaries(NAME, ENDPOINT),
    slurmdbd_endpoint=st.none() | ENDPOINT,
    slurmd_port=st.integers(1, 65535),
    hardware=st.dictionaries(NAME, st.just(Hardware(sockets=1, cores_per_socket=4, memory_mib=4096))),
    constrain_cores=st.booleans(),
    extra_parameters=st.dictionaries(NAME, st.sampled_from(["no", "1", "1:2", "# x", "'", ""])),
)


@given(FACTS)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, facts: Facts) -> None:
    path = tmp_path_factory.getbasetemp() / "facts.yaml"
    path.write_text(dump_facts(facts))
    assert load_facts(path) == facts


def test_a_password_is_never_written_and_comes_from_a_file_of_its_own(tmp_path: Path) -> None:
    assert "secret" not in dump_facts(Facts(storage_password="secret"))
    facts, password = tmp_path / "facts.yaml", tmp_path / "password"
    facts.write_text("storage_password_file: password\n")
    password.write_text("s3cret\n")
    password.chmod(0o600)
    assert load_facts(facts).storage_password == "s3cret"
    password.chmod(0o644)
    with pytest.raises(HpctoolsError, match="others may read it; chmod 600"):
        load_facts(facts)


def test_to_a_file_that_says_nothing_yet_a_line_can_be_added(tmp_path: Path) -> None:
    """After `{}` every line was no valid YAML."""
    path = tmp_path / "facts.yaml"
    path.write_text(f"{dump_facts(Facts())}cgroup: v1\n")
    assert load_facts(path) == Facts(cgroup="v1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n", "the facts are no mapping"),
        ("nodes: 3\n", "'nodes' cannot be stated here; known: .*cgroup"),
        ("storage_password: x\n", "name a file that holds it: storage_password_file"),
        ("cgroup: v3\n", "cgroup: input should be 'v1', 'v2' or 'none'"),
        ("slurm_version: 22.05\n", "slurm_version: 22.05 is no release; write it in quotes"),
        ("slurmdbd_endpoint: {address: a}\n", "slurmdbd_endpoint.port: field required"),
        ("extra_parameters: {KillWait: 3}\n", "extra_parameters.KillWait: input should be a valid string"),
        ("a: [\n", "valid YAML"),
    ],
)
def test_wrong_facts_say_file_and_key(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "facts.yaml"
    path.write_text(text)
    with pytest.raises(HpctoolsError, match=expected) as caught:
        load_facts(path)
    assert str(path) in str(caught.value)


def test_an_empty_file_and_none(tmp_path: Path) -> None:
    path = tmp_path / "facts.yaml"
    path.write_text("# nothing\n")
    assert load_facts(path) == Facts()
    with pytest.raises(HpctoolsError, match=r"cannot read the facts in .*: No such file"):
        load_facts(tmp_path / "none.yaml")
