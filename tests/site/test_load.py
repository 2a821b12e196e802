"""Loading a site: what it says of a good file, and all findings of a bad one at once."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
from pydantic import BaseModel

from hpctools.errors import SiteError, UsageError
from hpctools.site import Finding, InvalidSiteError, Site, User, load, loads, warnings
from hpctools.site.scalars import OLDEST_RELEASE
from hpctools.slurm.versions import OLDEST, parse_release

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "slurm-conf/examples/university/site.yaml"
EXAMPLES = sorted((ROOT / "slurm-conf/examples").glob("*/site.yaml"))

MINIMAL = """\
cluster: {name: tiny, controllers: [ctl]}
node_groups:
  - {name: cpu, instance_type: m5.large, count: 2}
departments:
  - name: bio
    supervisor: ada
    partition: {node_groups: [cpu]}
    labs:
      - {name: bio-a, supervisor: bob, members: [cy]}
tiers:
  normal: {priority: 1, default: true}
"""


def test_the_smallest_site() -> None:
    site = loads(MINIMAL)
    assert site.users() == (
        User("ada", "bio", ("bio",)),
        User("bob", "bio-a", ("bio-a",)),
        User("cy", "bio-a", ("bio-a",)),
    )
    assert site.node_names("cpu") == ("cpu-1", "cpu-2")
    assert site.default_tier == "normal"
    assert site.replica_tier is None
    assert site.departments[0].partition_name == "bio"
    assert site.cluster.provider == "own"


def test_a_site_survives_being_written_as_data_and_read_again() -> None:
    site = load(REFERENCE)
    assert Site.model_validate(site.model_dump()) == site


def test_the_examples_use_every_key() -> None:
    """Whatever a site file may say is shown there: a key is documentation only once somebody has used it."""
    used = {
        (owner(type(model), key), key)
        for path in EXAMPLES
        for model in stated_models(load(path))
        for key in model.model_fields_set
    }
    known = {(owner(model, key), key) for model in inner_models(Site) for key in model.model_fields}
    # One GPU is shared in one way; the other two stand there as comments, and in docs/gpus.md.
    rest = {(name, key) for name, key in known - used if name not in ("Share", "MigDevice")}
    # What an import takes over as it is; nobody writes it.
    assert rest == {("NodeGroup", "gres_lines")}


def owner(model: type[BaseModel], key: str) -> str:
    """The model that says what a key is: the model itself, or one that it has it from."""
    stating = (each for each in reversed(model.__mro__) if key in vars(each).get("__annotations__", ()))
    return next(stating).__name__


def inner_models(
    model: type[BaseModel], seen: frozenset[type[BaseModel]] = frozenset()
) -> set[type[BaseModel]]:
    """A model and all that it is made of."""
    found = {model}
    for field in model.model_fields.values():
        for inner in _models_in(field.annotation):
            if inner not in found | seen:
                found |= inner_models(inner, seen | found)
    return found


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models_in(each)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_examples_warn_of_nothing_but_shards(path: Path) -> None:
    assert all("shards" in f"{warning}" for warning in warnings(load(path)))


def stated_models(value: object) -> Iterator[BaseModel]:
    """Every model within a value that the file states, itself included."""
    if isinstance(value, BaseModel):
        yield value
        children: Iterable[object] = [getattr(value, key) for key in value.model_fields_set]
    elif isinstance(value, dict):
        children = value.values()
    else:
        children = value if isinstance(value, tuple) else ()
    for child in children:
        yield from stated_models(child)


def test_facts_say_how_many_nodes_there_really_are() -> None:
    site, facts = load(REFERENCE), SimpleNamespace(node_counts={"reserved": 1, "shared": 0})
    assert site.node_names("reserved", facts) == ("reserved-1",)
    assert site.node_names("shared", facts) == ()
    assert site.node_names("spot", facts) == ()
    assert site.node_names("login", facts) == ("login-1", "login-2")
    with pytest.raises(UsageError, match="no node group 'nope'; it has: reserved, shared, spot, login"):
        site.node_names("nope")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"a: \xff\xfe")
    assert unreadable(tmp_path / "missing.yaml") == "no such file or directory"
    assert unreadable(tmp_path) == "is a directory"
    assert unreadable(binary) == "bytes that are not UTF-8 at offset 3"


def unreadable(path: Path) -> str:
    with pytest.raises(InvalidSiteError) as caught:
        load(path)
    (finding,) = caught.value.findings
    assert (finding.file, finding.line, finding.path) == (str(path), 0, "")
    assert str(finding).startswith(f"{path}: found ")
    return finding.found


def test_a_byte_order_mark_is_no_finding(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())
    assert load(path) == loads(MINIMAL)


def test_the_error_is_a_line_for_each_finding() -> None:
    with pytest.raises(SiteError) as caught:
        loads("a: 1\na: 2\n", "f")
    assert isinstance(caught.value, InvalidSiteError)
    assert str(caught.value).splitlines() == [str(finding) for finding in caught.value.findings]
    assert (
        Finding("f", 1, "a", "the unknown key 'a'", caught.value.findings[0].expected)
        in caught.value.findings
    )


@pytest.mark.parametrize(
    ("cluster", "finding"),
    [
        ('slurm: "20.11"', "found '20.11', expected 22.05 or later: hpctools supports no older Slurm"),
        ("priority: {half_life: 00:00:10}", "found '00:00:10', expected at least 01:00:00"),
    ],
)
def test_bounds_are_told_in_the_words_of_the_file(cluster: str, finding: str) -> None:
    with pytest.raises(InvalidSiteError) as caught:
        loads(MINIMAL.replace("name: tiny,", f"name: tiny, {cluster},"))
    assert [str(each).partition(": ")[2].partition(": ")[2] for each in caught.value.findings] == [finding]


@pytest.mark.parametrize("key", ["max_time", "default_time"])
def test_a_time_limit_of_nothing_is_a_finding(key: str) -> None:
    with pytest.raises(InvalidSiteError) as caught:
        loads(MINIMAL.replace("node_groups: [cpu]", f"node_groups: [cpu], {key}: 00:00:00"))
    assert [each.expected for each in caught.value.findings] == ["at least 00:00:01"]


@pytest.mark.parametrize("name", ["ALL", "default", "cpu1,All"])
def test_a_node_whose_name_slurm_takes_for_others_is_a_finding(name: str) -> None:
    with pytest.raises(InvalidSiteError, match="has a meaning of its own in Slurm"):
        loads(MINIMAL.replace("count: 2", f'nodes: "{name}"'))


@pytest.mark.parametrize(
    ("limit", "most"),
    [
        ("max_time: 49711-00:00:00", "at most 24855-00:00:00"),
        ("jobs_per_user: 4294967295", "at most 1000000000"),
    ],
)
def test_a_number_that_slurm_takes_for_another_is_a_finding(limit: str, most: str) -> None:
    with pytest.raises(InvalidSiteError) as caught:
        loads(MINIMAL.replace("priority: 1,", f"priority: 1, {limit},"))
    assert [each.expected for each in caught.value.findings] == [most]


def test_the_oldest_release_is_that_of_the_compiler() -> None:
    assert parse_release(OLDEST_RELEASE) == OLDEST


@pytest.mark.parametrize(
    ("more", "finding"),
    [
        (
            "login: {department_sessions: {boi: 4}}\n",
            "login.department_sessions.boi: found 'boi', expected one of: bio (did you mean 'bio'?)",
        ),
        (
            "access:\n  login: {session_hook: /opt/hook, agent_socket: /run/a.sock}\n",
            "either session_hook or agent_socket",
        ),
        ("login: {silent_after: 00:00:01}\n", "login.silent_after"),
        ("login: {when_unreachable: shut}\n", "login.when_unreachable"),
    ],
)
def test_limits_of_sessions_that_cannot_be(more: str, finding: str) -> None:
    with pytest.raises(InvalidSiteError) as caught:
        loads(MINIMAL + more)
    assert len(caught.value.findings) == 1
    assert finding in str(caught.value)
