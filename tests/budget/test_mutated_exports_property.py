"""Damaged CSV exports are refused whole, or read as Python's own reader reads them; nothing between."""

from __future__ import annotations

import csv
import gzip
import io
import random
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from pathlib import Path

import pytest

from api.services.export_files import read_columns
from hpctools.budget import cur
from hpctools.budget.bill_table import totals
from hpctools.budget.month import Month, day_start
from hpctools.budget.normalise import Wanted, add_up, finish, merge
from hpctools.errors import BudgetError
from tests.budget.exports_lines import CLUSTER_TAG, TAG, cur_line

FEW, MANY = 100, 4000
NOVEMBER = Month(2026, 11)
NOW = day_start(NOVEMBER.days[20])
WANTED = Wanted(cur.SOURCE, "UnblendedCost", NOVEMBER, TAG, CLUSTER_TAG)
COST, CURRENCY = "line_item_unblended_cost", "line_item_currency_code"
STRANGE = b"\",;\n\r\t\x00 \\'=+-.0123456789eE\xff\xc3"


def lines(dice: random.Random) -> list[dict[str, str]]:
    return [
        cur_line(
            {"user_hpctools_node_group": dice.choice(("big", "small", 'a "quoted", name')), "x": "ü\n"},
            line_item_unblended_cost=dice.choice(("37.688", "-0.0000000001", "8.0E-7", "12", "0.1")),
            line_item_currency_code=dice.choice(("USD", "USD", "EUR")),
            line_item_resource_id=f"i-{number}",
        )
        for number in range(dice.randrange(1, 6))
    ]


def text_of(rows: list[dict[str, str]], dice: random.Random) -> bytes:
    """Columns in any order, quoted or not, with either end of a line: all that is the same bill."""
    names = dice.sample(list(rows[0]), len(rows[0]))
    made = io.StringIO(newline="")
    quoting = dice.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    writer = csv.DictWriter(made, names, quoting=quoting, lineterminator=dice.choice(("\n", "\r\n")))
    writer.writeheader()
    writer.writerows(rows)
    return dice.choice((b"", b"", b"\xef\xbb\xbf")) + made.getvalue().encode()


def cut(text: bytes, dice: random.Random) -> bytes:
    return text[: dice.randrange(len(text))]


def without_some(text: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(text))
    return text[:at] + text[at + dice.randrange(1, 60) :]


def with_some_twice(text: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(text))
    return text[: at + dice.randrange(1, 60)] + text[at:]


def with_another_byte(text: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(text))
    return text[:at] + bytes([dice.choice(STRANGE)]) + text[at + dice.randrange(2) :]


def with_another_line(text: bytes, dice: random.Random) -> bytes:
    each = text.splitlines(keepends=True)
    each.insert(
        dice.randrange(len(each) + 1), dice.choice((b"\n", b",\n", b"x\n", b'""\n', each[0], each[-1]))
    )
    return b"".join(each)


def as_it_is(text: bytes, dice: random.Random) -> bytes:
    return text


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    as_it_is,
    cut,
    without_some,
    with_some_twice,
    with_another_byte,
    with_another_byte,
    with_another_line,
)


def ours(path: Path) -> dict[str, Decimal] | str | None:
    """The sums of the currencies, or why it is refused; None of a file with nothing."""
    try:
        found = read_columns(path, cur.COLUMNS, cur.TAGS, path.name)
        if found is None:
            return None
        table = finish(merge([add_up(cur.lines(found, WANTED, path.name), path.name)]), WANTED, NOW)
    except BudgetError as error:
        return str(error)
    return {code: amount for code, amount in totals(table).items() if amount}


def reference(text: bytes) -> dict[str, Decimal] | None:
    """The same by Python's reader, which knows nothing of bills; None where it is not a whole table."""
    try:
        rows = list(csv.reader(io.StringIO(text.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error):
        return None
    if not rows or len(set(rows[0])) < len(rows[0]) or any(len(row) != len(rows[0]) for row in rows):
        return None
    sums: Counter[str] = Counter()
    for row in rows[1:]:
        line = dict(zip(rows[0], row, strict=True))
        try:
            sums[line[CURRENCY].strip()] += Decimal(line[COST].strip())  # type: ignore[assignment]
        except (KeyError, InvalidOperation):
            return None
    return {code: Decimal(amount) for code, amount in sums.items() if amount}


def check(number: int, folder: Path) -> str:
    dice = random.Random(number)
    text = text_of(lines(dice), dice)
    damage = dice.choice(DAMAGES)
    damaged = damage(text, dice)
    path = folder / dice.choice(("x.csv", "x.csv.gz"))
    path.write_bytes(damaged if path.suffix == ".csv" else gzip.compress(damaged, 1))
    got, expected = ours(path), reference(damaged)
    if isinstance(got, str):
        assert path.name in got or "add up" in got, got
        assert len(got) < 1500
        assert damage is not as_it_is, got
        return "refused"
    # A carriage return alone is the end of a line to some and a space to others.
    if got is not None and not re.search(rb"\r(?!\n)", damaged):
        assert got == expected, damaged
    return "read"


def checked(numbers: range, folder: Path) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for number in numbers:
        try:
            outcomes[check(number, folder)] += 1
        except AssertionError as error:
            raise AssertionError(f"check({number}): {error}") from error
    return outcomes


def test_damaged_exports(tmp_path: Path) -> None:
    outcomes = checked(range(FEW), tmp_path)
    assert min(outcomes["read"], outcomes["refused"]) > FEW / 10


@pytest.mark.long
@pytest.mark.timeout(600)
def test_thousands_of_damaged_exports(tmp_path: Path) -> None:
    checked(range(FEW, FEW + MANY), tmp_path)
