from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.paging import Page, cut
from api.problems import ProblemError


def pages(items: list[tuple[str, int]], limit: int) -> list[list[tuple[str, int]]]:
    found = []
    cursor = None
    while True:
        part, cursor = cut(items, Page(limit, cursor), "things", lambda item: item, [str, int])
        found.append(part)
        if cursor is None:
            return found


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=5)


@given(st.sets(st.tuples(TEXT, st.integers(-(2**62), 2**62)), max_size=30), st.integers(1, 12))
def test_pages_are_the_list_in_order_each_item_once(items: set[tuple[str, int]], limit: int) -> None:
    found = pages(list(items), limit)
    assert [item for page in found for item in page] == sorted(items)
    assert all(len(page) == limit for page in found[:-1])
    assert len(found[-1]) <= limit


def test_what_comes_and_goes_in_between_moves_nothing_else() -> None:
    items = [("a", 1), ("b", 1), ("c", 1), ("d", 1)]
    first, cursor = cut(items, Page(2), "things", lambda item: item, [str, int])
    changed = [("0", 1), ("a", 2), ("c", 1), ("d", 1)]
    second, end = cut(changed, Page(2, cursor), "things", lambda item: item, [str, int])
    assert (first, second, end) == ([("a", 1), ("b", 1)], [("c", 1), ("d", 1)], None)


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "é",
        "====",
        "bnVsbA",
        encoded([]),
        encoded(7),
        encoded({"a": 1}),
        encoded(["mark", "a", 1]),
        base64.urlsafe_b64encode(b"[" * 3000).decode(),
    ],
)
def test_what_is_no_cursor(cursor: str) -> None:
    with pytest.raises(ProblemError) as refused:
        Page(2, cursor).after("things", [str, int])
    assert refused.value.status == 422


def test_a_cursor_is_for_one_list_and_one_kind_of_key() -> None:
    items = [("a", 1), ("b", 2)]
    _, cursor = cut(items, Page(1), "things", lambda item: item, [str, int])
    assert Page(1, cursor).after("things", [str, int]) == ("a", 1)
    mark = json.loads(base64.urlsafe_b64decode((cursor or "") + "=="))[0]
    wrong = [
        [mark, "a"],
        [mark, 1, "a"],
        [mark, "a", True],
        [mark, "a", 1.0],
        [mark, "a\x00", 1],
        [mark, "a", 2**63],
    ]
    for value in wrong:
        with pytest.raises(ProblemError):
            Page(1, encoded(value)).after("things", [str, int])
    with pytest.raises(ProblemError):
        Page(1, cursor).after("other things", [str, int])
