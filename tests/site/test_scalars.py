"""Times, money and names."""

from decimal import Decimal
from typing import Annotated, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from hpctools.site import scalars
from hpctools.site.scalars import parse_duration, spell_duration


@given(st.integers(0, 99_999 * 86_400))
def test_a_time_is_read_as_it_was_written(seconds: int) -> None:
    assert parse_duration(spell_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:00:08", 8), ("12:30:00", 45_000), ("100:00:00", 360_000), ("2-00", 172_800), ("1-02:03", 93_780)],
)
def test_the_forms_of_a_time(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["90", "90:00", "1-24:00:00", "00:60:00", "00:00:60", "-1:00:00", "1-", "", "1:2:3", "٢-00", "2-00\n"],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(PydanticCustomError):
        parse_duration(text)


# Kinds that are no names: they are converted, or are for people and the cloud, where more is allowed.
VALUES = ("Duration", "Money", "Text", "TagKey", "FilePath", "OverSubscribe")

MONEY = TypeAdapter(scalars.Money)


@given(st.decimals(0, 10**12, places=2))
def test_money_is_exact(amount: Decimal) -> None:
    assert MONEY.validate_python(str(amount), strict=True) == amount


@pytest.mark.parametrize(
    "value", [25000.0, 25000, True, None, "1.234", "1e3", "-1.00", "1,000.00", "NaN", "1.00\n", ""]
)
def test_what_is_no_money(value: object) -> None:
    with pytest.raises(ValidationError, match="an amount as text in quotes"):
        MONEY.validate_python(value, strict=True)


NAMES = [name for name, kind in vars(scalars).items() if get_origin(kind) is Annotated and name not in VALUES]


@pytest.mark.parametrize("kind", NAMES)
@given(text=st.text(min_size=1, max_size=60))
def test_no_name_carries_anything_that_slurm_would_read_as_syntax(kind: str, text: str) -> None:
    """Whatever a name is, either it is refused or it is made of harmless characters only."""
    adapter = TypeAdapter(getattr(scalars, kind))
    for candidate in (text, f"a{text}", f"a{text}b"):
        try:
            accepted = adapter.validate_python(candidate, strict=True)
        except ValidationError:
            continue
        assert accepted == candidate
        assert accepted.isascii()
        assert not set(accepted) & set(" \t\n\r\x00\"'`$;|&=,#[]{}()<>*?!\\%:/")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("AccountName", "root"),
        ("PartitionName", "default"),
        ("PartitionName", "all"),
        ("UserName", "root"),
        ("AccountName", "a\n"),
        ("AccountName", "a" * 41),
        ("GroupName", "a-"),
        ("GroupName", "a--b"),
        ("GroupName", "a_b"),
        ("HostName", "-a"),
        ("HostName", "a..b"),
        ("TagKey", "aws:x"),
    ],
)
def test_names_that_are_refused(kind: str, name: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(getattr(scalars, kind)).validate_python(name, strict=True)
