from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from api.commands.statement import print_statement
from hpctools.budget.month import Month
from hpctools.budget.statement import Knowledge
from tests.budget.plain_charges import Charge, stated


def test_names_are_printed_as_they_are(
    site: Any, november: Month, capsys: pytest.CaptureFixture[str]
) -> None:
    charges = [Charge(november.start, "attributed", "old[/b]", "", "USD", Decimal(3))]
    known = Knowledge(0, november.start, True, {})
    print_statement(stated(site, site.by_name["root"], november, charges, known), as_json=False)
    assert "old[/b]" in capsys.readouterr().out
