"""Columns against records: whatever sacct prints, both say the same, and both refuse the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.errors import BudgetError
from hpctools.slurm import accounting_table
from hpctools.slurm.accounting import parse
from hpctools.slurm.accounting_table import from_records, read, schema, to_records

RECORDED = Path(__file__).parents[1] / "recorded/22.05.8"
LINE = (
    "17|uni-gpu|4|nlp1|nlp-lab-a|nlp|medium|2026-11-21T12:00:00|2026-11-21T12:00:05|2026-11-21T12:01:05|"
    "00:00:00|COMPLETED|billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=2|reserved-[1-2]|"
)


@pytest.fixture
def only_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the columns do not know is not asked of the records."""

    def refuse(_: str) -> Any:
        raise AssertionError("asked for records")

    monkeypatch.setattr(accounting_table, "parse", refuse)


@pytest.mark.usefixtures("only_columns")
def test_a_recorded_day_is_read_in_columns() -> None:
    text = (RECORDED / "sacct-day.txt").read_text()
    table = read(text)
    assert dict(table.schema) == schema()
    assert to_records(table) == list(parse(text))


allocations = st.sampled_from(
    [
        "",
        "cpu=1",
        "cpu=2,gres/gpu=4,gres/gpu:a100=4,mem=1.50G,node=1",
        "billing=3,cpu=2,gres/gpu:a100=3,gres/gpu:h100=1,mem=512K",
        "cpu=3,energy=123456,gres/gpu_mem=4,gres/shard=2,mem=77",
        "fs/disk=7,gres/shard:a=3,mem=2T",
    ]
)
moments = st.sampled_from(["2026-11-21T12:00:00", "2024-02-29T23:59:59"])
lines = st.builds(
    lambda number, submit, start, end, stopped, state, got, nodes: "|".join(
        [
            f"{number}|uni|{number * 7}|u|a|p|q|{submit}|{start}|{end}|{stopped}|{state}|{got}|{nodes}|",
        ]
    ),
    st.integers(1, 2**40),
    moments,
    st.one_of(moments, st.just("Unknown")),
    st.one_of(moments, st.just("Unknown"), st.just("None")),
    st.sampled_from(["00:00:00", "32-00:00:00", "01:02", "05:00.999"]),
    st.sampled_from(["RUNNING", "CANCELLED by 1001", "OUT_OF_MEMORY"]),
    allocations,
    st.sampled_from(["n-1", "n-[1-3],m-2", "None assigned", ""]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(lines, max_size=6))
def test_columns_say_what_records_say(answer: list[str]) -> None:
    text = "".join(f"{line}\n" for line in answer)
    assert to_records(read(text)) == list(parse(text))


@pytest.mark.parametrize(
    "odd",
    [
        LINE.rpartition("|")[0],
        f"{LINE}|more",
        LINE.replace("|4|", "|x|"),
        LINE.replace("2026-11-21T12:00:05", "12:00"),
        LINE.replace("2026-11-21T12:00:05", "2026-13-21T12:00:05"),
        LINE.replace("00:00:00|COMP", "soon|COMP"),
        LINE.replace("cpu=8", "cpu"),
        LINE.replace("mem=64G", "mem=64Q"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(odd: str) -> None:
    with pytest.raises(BudgetError, match="line 2 of sacct's output cannot be read"):
        read(f"{LINE}\n{odd}\n{LINE}\n")


def test_a_short_and_a_long_line_do_not_make_up_for_each_other() -> None:
    with pytest.raises(BudgetError, match="line 1 of sacct's output"):
        read(f"{LINE.rpartition('|')[0]}\n{LINE}|more\n")


def test_blank_lines_and_no_lines_are_nothing() -> None:
    assert read("").height == 0
    assert to_records(read(f"\n{LINE}\n\n{LINE}")) == [*parse(LINE), *parse(LINE)]
    assert from_records(()).schema == read("").schema
