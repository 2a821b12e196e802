"""Lines of Slurm's files, as slurmctld reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.slurm.conf_text import included, logical_lines, pairs

TEXT = r"""
# a comment
ClusterName=c KillWait=30   # two settings
Nodes=a,\
b
MailDomain=a\#b
NodeName=x \
   Feature=y

include more.conf
Last=1\
"""


def test_lines_have_the_number_that_they_begin_in() -> None:
    assert list(logical_lines(TEXT)) == [
        (3, "ClusterName=c KillWait=30"),
        (4, "Nodes=a,b"),
        (6, "MailDomain=a#b"),
        (7, "NodeName=x    Feature=y"),
        (10, "include more.conf"),
        (11, "Last=1"),
    ]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("A=1 b = 2", [("A", "1"), ("b", "2")]),
        ('Reason="a = b" C=3', [("Reason", "a = b"), ("C", "3")]),
        # slurmctld has a partition whose name has the quotes in it then (measured).
        ("PartitionName='p'", [("PartitionName", "'p'")]),
        ("Flags+=x", [("Flags", "x")]),
        ("A=", [("A", "")]),
        ("include a.conf", []),
    ],
)
def test_settings_of_a_line(line: str, wanted: list[tuple[str, str]]) -> None:
    assert list(pairs(line)) == wanted


def test_what_is_included() -> None:
    assert included('Include "a b.conf"') == "a b.conf"
    assert included("INCLUDE /etc/b.%c") == "/etc/b.%c"
    assert included("IncludeNothing=yes") is None


@given(st.text("ab=\\#\n \"'", max_size=30))
def test_any_text_is_read_to_its_end(text: str) -> None:
    found = list(logical_lines(text))
    numbers = [number for number, _ in found]
    assert numbers == sorted(set(numbers))
    assert all(line == line.strip() and line for _, line in found)
