"""Messages over streams that come in pieces of any size."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.remote.wire import GREETING, Wire, WireClosed, WireError

FIELDS = st.dictionaries(
    st.text(min_size=1).filter(lambda name: name != "bytes"),
    st.none() | st.integers() | st.text(st.characters(exclude_categories=())) | st.lists(st.text()),
)


def stream(data: bytes, pieces: list[int]) -> Wire:
    """A wire on which some bytes come in pieces."""
    rest, sizes = bytearray(data), list(pieces)

    def receive(size: int) -> bytes:
        take = min(size, sizes.pop(0) if sizes else size)
        found = bytes(rest[:take])
        del rest[:take]
        return found

    return Wire(receive, lambda _: None)


@given(st.lists(st.tuples(FIELDS, st.binary())), st.binary(), st.lists(st.integers(1, 9)))
def test_what_is_put_is_what_is_got(
    messages: list[tuple[dict[str, object], bytes]], preface: bytes, pieces: list[int]
) -> None:
    """Whatever a shell's startup files print before, and however the bytes are cut."""
    sent = bytearray()
    there = Wire(lambda _: b"", sent.extend)
    there.greet()
    for fields, data in messages:
        there.put(fields, data)
    before = preface.replace(b"@", b"")
    here = stream(before + bytes(sent), pieces)
    assert here.find_greeting() == before
    got = [here.get() for _ in messages]
    assert [(dict(each.fields), each.data) for each in got] == messages
    with pytest.raises(WireClosed):
        here.get()


@given(st.integers(0, 60))
def test_a_stream_that_ends_early_is_closed_not_misread(cut: int) -> None:
    whole = json.dumps({"need": [[0, 12]], "bytes": 40}).encode() + b"\n" + b"x" * 40
    with pytest.raises(WireClosed):
        stream(whole[:cut], []).get()


@pytest.mark.parametrize("line", [b"{}x", b"[]", b'{"bytes": -1}', b'{"bytes": 99999999}', b"7", b"[" * 9999])
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(WireError):
        stream(line + b"\n", []).get()


def test_a_submission_of_many_files_with_long_chinese_names_is_a_line_that_is_taken() -> None:
    """Escaped, its ten thousand names are as long as no line may be."""
    name = "\u8bad" * 130
    files = [{"path": f"{name}/{number}", "digest": "0" * 64} for number in range(10_000)]
    sent = bytearray()
    Wire(lambda _: b"", sent.extend).put({"files": files})
    assert stream(bytes(sent), []).get()["files"] == files


def test_a_flood_without_a_greeting_is_given_up() -> None:
    with pytest.raises(WireError, match="megabyte"):
        stream(b"x" * (2 << 20), []).find_greeting()


def test_the_greeting_is_found_behind_a_line_without_end() -> None:
    assert stream(b"welcome" + GREETING + b'{"a":1}\n', []).find_greeting() == b"welcome"
