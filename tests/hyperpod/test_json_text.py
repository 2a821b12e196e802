"""The JSON reader agrees with Python's on everything that is JSON, and tells all that Python passes over."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.hyperpod.json_text import BROKEN, parse

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([None, 0, 2, "\t"]), st.booleans())
def test_whatever_python_writes_is_read_as_it_was(value: Any, indent: int | str | None, ascii_: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_)
    read = parse(text)
    if any(0xD800 <= ord(letter) <= 0xDFFF for letter in str(value)):
        return
    assert read.faults == ()
    assert read.data == value


@given(st.text(alphabet="{}[]\",:0123456789.eE+-truefalsn \n\\/*#'$", max_size=40))
def test_what_python_refuses_is_refused_and_nothing_else(text: str) -> None:
    read = parse(text)
    try:
        value = json.loads(text)
    except ValueError:
        assert [fault.rule for fault in read.faults][-1] == "not-json"
        assert read.data is BROKEN
    else:
        assert "not-json" not in {fault.rule for fault in read.faults}
        if not read.faults:
            assert read.data == value


def test_every_place_has_its_line() -> None:
    read = parse('{\n "a": [\n  1,\n  {"b":\n  2}\n ]\n}')
    assert read.lines == {(): 1, ("a",): 2, ("a", 0): 3, ("a", 1): 4, ("a", 1, "b"): 5}


@pytest.mark.parametrize(
    ("text", "line", "rule", "found"),
    [
        ('{"a": 1,\n "a": 2}', 2, "duplicate-key", "a second 'a' (the first on line 1)"),
        ("[1,\nNaN]", 2, "not-a-value", "NaN, for which JSON has no word"),
        ("[-Infinity]", 1, "not-a-value", "-Infinity, for which JSON has no word"),
        ('["\\ud800"]', 1, "not-a-value", "half of a surrogate pair"),
        (f"[{'9' * 5000}]", 1, "not-a-value", "a number of 5000 digits"),
        ('{"a": 1,}', 1, "not-json", "a comma with nothing behind it but '}'"),
        ('{\n// remark\n"a": 1}', 2, "not-json", "a comment"),
        ("{'a': 1}", 1, "not-json", "single quotes"),
        ('{"a": ${COUNT}}', 1, "not-json", "a placeholder, '${COUNT}}'"),
        ('{"a" 1}', 1, "not-json", "no colon behind a key at column 6, before '1}'"),
        ('{"a": 1} x', 1, "not-json", "something behind the end of the document at column 10, before 'x'"),
        ('{"a": "b', 1, "not-json", "a broken text: unterminated string starting at"),
        ('{"a": [1, 2', 1, "not-json", "no comma and no ']' behind a value"),
        ("", 1, "not-json", "an end in the middle of the document"),
        ("[" * 5000, 1, "not-json", "values inside each other, 60 deep"),
    ],
)
def test_a_fault_names_its_line_and_what_stands_there(text: str, line: int, rule: str, found: str) -> None:
    (fault,) = parse(text).faults
    assert (fault.line, fault.rule, fault.found) == (line, rule, found)
    assert fault.remedy
