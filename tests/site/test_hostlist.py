"""Host lists: what they expand to, in which order, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.conf.text import fold
from hpctools.site.hostlist import MOST_NODES, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a-1,b", ["a-1", "b"]),
        ("gpu[08-11]", ["gpu08", "gpu09", "gpu10", "gpu11"]),
        ("n[3,1-2]", ["n3", "n1", "n2"]),
        ("b[1-2],a1", ["b1", "b2", "a1"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[1-2].example.org", ["n1.example.org", "n2.example.org"]),
        ("10.0.0.[8-10]", ["10.0.0.8", "10.0.0.9", "10.0.0.10"]),
    ],
)
def test_expansion_in_the_order_of_the_text(text: str, names: list[str]) -> None:
    assert list(expand(text)) == names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "a host list such as"),
        ("a,", "a host list such as"),
        ("a b", "a host list such as"),
        ("a[1", "a host list such as"),
        ("a[]", "a host list such as"),
        ("a[x]", "a host list such as"),
        ("a[1-2-3]", "a host list such as"),
        ("-a", "a host list such as"),
        ("a[1]-", "a host list such as"),
        ("@all", "a host list such as"),
        ("a\n", "a host list such as"),
        ("a#b", "a host list such as"),
        ("a[٢]", "a host list such as"),
        ("a[3-1]", "ranges that rise"),
        ("a[1-2],a2", "names each host once"),
        ("a[1,1]", "names each host once"),
        ("a[0-999999999]", f"at most {MOST_NODES} hosts"),
        ("a[1-60000][1-60000]", f"at most {MOST_NODES} hosts"),
        ("a[1-40000],b[1-40000]", f"at most {MOST_NODES} hosts"),
    ],
)
def test_what_is_no_host_list(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        expand(text)


NAME = st.from_regex(r"[a-z][a-z0-9.-]{0,4}[a-z](0{0,3}[0-9]{0,11})?", fullmatch=True)


@given(st.lists(NAME, max_size=60))
def test_what_is_folded_expands_to_the_same_names(names: list[str]) -> None:
    folded = fold(names)
    assert sorted(expand(folded)) == sorted(set(names)) if names else folded == ""


@given(
    st.lists(
        st.integers(0, 30).flatmap(lambda n: st.sampled_from([f"a{n}", f"a{n:02}", f"a{n:03}"])), min_size=1
    )
)
def test_numbers_of_different_widths_are_kept_apart(names: list[str]) -> None:
    assert sorted(expand(fold(names))) == sorted(set(names))
    assert fold(reversed(names)) == fold(names)


def test_five_thousand_nodes_are_one_range() -> None:
    assert fold(f"n{number:04}" for number in range(5000)) == "n[0000-4999]"
