"""How a file that cannot be a bill is refused: which file, what is wrong, what was expected."""

from __future__ import annotations

from reprlib import Repr
from typing import NoReturn

from hpctools.errors import BudgetError

_short = Repr()
_short.maxstring = _short.maxother = 60


def clip(value: object) -> str:
    """A value from a file as an error may show it: quoted and short."""
    return _short.repr(value)


def refuse_line(where: str, what: str, expected: str) -> NoReturn:
    """Refuse a file for one of its lines.

    Raises:
        BudgetError: always.
    """
    raise BudgetError(f"{where}: {what}", f"{expected}; nothing was stored")
