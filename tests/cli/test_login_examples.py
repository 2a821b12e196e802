"""Who asks a command of login nodes or laptops for help is shown what to type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import click
import pytest
from click.testing import CliRunner

from hpctools.cli.completion import COMMANDS
from hpctools.cli.login import login
from hpctools.cli.remote_submission import trust


def leaves(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    """The commands below a group, each with its words."""
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from leaves(command, *above, name)
        else:
            yield (*above, name)


@pytest.mark.parametrize("words", list(leaves(login, "login")), ids=" ".join)
def test_each_command_of_login_nodes_has_an_example_of_itself(words: tuple[str, ...]) -> None:
    said = CliRunner().invoke(login, [*words[1:], "--help"]).output
    assert re.search(rf"Examples?:\n +hpctools {' '.join(words)}", said), said


@pytest.mark.parametrize("module", COMMANDS)
def test_each_command_of_its_own_has_an_example(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = module.replace("_", "-")
    code = __import__(f"hpctools.cli.{module}", fromlist=["main"]).main
    with suppress(SystemExit):
        code(["--help"])
    said = capsys.readouterr().out
    assert re.search(rf"[Ee]xamples?:\s+{name}\b", said), said


def test_trust_tells_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert trust(["--help"]) == 0
    assert "Examples:\n  hp-submit trust uni\n" in capsys.readouterr().out
