"""Whatever stands in the files: findings, never a crash; and nothing that a terminal would act on."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.advise import advise, of_files
from hpctools.hyperpod.check import check
from hpctools.hyperpod.convert import to_legacy, to_slurmconfig
from hpctools.hyperpod.document import LARGEST, of_bytes, read
from hpctools.hyperpod.live import judge
from tests.hyperpod.samples import continuous, files, legacy, several_controllers, slurmconfig
from tests.hyperpod.test_live_rules import FACTS

ODD: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(
        ["Controller", "Compute", "head", "gpu", "Continuous", "ml.p5.48xlarge", "s3://sagemaker-a"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["InstanceGroupName", "SlurmConfig", "NodeType", "x"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, each in inner for place in places(each, (*at, key)))]


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[Any, Any]:
    """A good cluster with up to three places that hold something odd, or nothing."""
    base = draw(
        st.sampled_from([(slurmconfig(), None), (continuous(), None), legacy(), several_controllers()])
    )
    pair = [copy.deepcopy(base[0]), copy.deepcopy(base[1])]
    for _ in range(draw(st.integers(1, 3))):
        which = draw(st.integers(0, 1 if isinstance(pair[1], dict) else 0))
        if not isinstance(pair[which], dict):
            continue
        place = draw(st.sampled_from(places(pair[which])))
        if not place:
            pair[which] = draw(ODD)
            continue
        holder = pair[which]
        for step in place[:-1]:
            holder = holder[step]
        if draw(st.booleans()):
            holder[place[-1]] = draw(ODD)
        else:
            del holder[place[-1]]
    return pair[0], pair[1]


@settings(max_examples=200, deadline=None)
@given(spoilt(), st.booleans())
def test_odd_files_are_judged_and_never_crash(pair: tuple[Any, Any], updates: bool) -> None:
    given_ = replace(files(*pair), updates=updates)
    report = check(given_)
    for finding in (*report.findings, *judge(given_, FACTS)):
        assert str(finding).isprintable()
        assert finding.remedy
    assert advise(of_files(given_)).reasons
    for convert in (to_slurmconfig, to_legacy):
        try:
            made = convert(given_, report.errors)
        except HpctoolsError:
            continue
        assert check(files(made.request, made.provisioning)).errors == ()


def test_an_odd_name_does_nothing_to_a_terminal() -> None:
    request, provisioning = copy.deepcopy(legacy())
    request["InstanceGroups"][0]["InstanceGroupName"] = "a\x1b[2Jb\n\u202ec"
    del request["InstanceGroups"][0]["LifeCycleConfig"]
    said = [str(each) for each in check(files(request, provisioning)).findings if each.rule == "lifecycle"]
    assert len(said) == 1
    assert r" a\x1b[2Jb\n\u202ec without LifeCycleConfig" in said[0]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_bytes_are_read_or_told(content: bytes) -> None:
    document, findings = of_bytes(content, "f.json")
    assert document.file == "f.json"
    for finding in findings:
        assert str(finding).isprintable()


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "unreadable"),
        (b" \n", "unreadable"),
        (b"\xff\xfe{\x00}\x00", "unreadable"),
        (b"\xc3\x28", "unreadable"),
        (b"{" + b" " * LARGEST + b"}", "unreadable"),
        (b"\xef\xbb\xbf{}", "byte-order-mark"),
    ],
)
def test_what_is_no_text_of_json(content: bytes, rule: str) -> None:
    assert [finding.rule for finding in of_bytes(content, "f.json")[1]] == [rule]


def test_behind_a_byte_order_mark_everything_else_is_still_told() -> None:
    document, _ = of_bytes(b"\xef\xbb\xbf" + json.dumps(slurmconfig()).encode(), "f.json")
    assert document.data == slurmconfig()


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (finding,) = read(tmp_path)[1]
    assert finding.found == "cannot be read: is a directory"


def test_a_file_without_end_is_refused_at_once() -> None:
    (finding,) = read(Path("/dev/zero"))[1]
    assert finding.found == "more than 1 MiB"


def test_the_largest_cluster_is_checked() -> None:
    """As many groups as CreateCluster takes, each with all that it can have."""
    request = slurmconfig()
    request["InstanceGroups"] += [
        {**copy.deepcopy(request["InstanceGroups"][2]), "InstanceGroupName": f"g{n}"} for n in range(96)
    ]
    assert check(files(request)).findings == ()
    request["InstanceGroups"].append({**request["InstanceGroups"][2], "InstanceGroupName": "one-more"})
    assert [finding.rule for finding in check(files(request)).findings] == ["limit"]
