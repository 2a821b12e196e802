"""Who asks any command for help is shown what to type, and the command takes that."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.metadata import distribution

import click
import pytest
from click.testing import CliRunner

from api.commands.main import cli
from hpctools.cli.completion import CLICK, COMMANDS
from hpctools.cli.main import hpctools

GROUPS: dict[str, click.Group] = {"hpctools": hpctools, "hpctools-api": cli}


def leaves(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    """The commands below a group, each with its words."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from leaves(command, *above, name)
        else:
            yield (*above, name)


ALL = [(name, *words) for name, group in GROUPS.items() for words in leaves(group)]


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_each_command_has_an_example_that_it_takes(words: tuple[str, ...]) -> None:
    said = CliRunner().invoke(GROUPS[words[0]], [*words[1:], "--help"]).output
    found = re.search(rf"Examples?:\s+({' '.join(words)}\b[^\n]*)", said)
    assert found, said
    _understood(words, found[1])


def _understood(words: tuple[str, ...], example: str) -> None:
    """The command's own parser takes the line; nothing is run."""
    group = GROUPS[words[0]]
    context = click.Context(group)
    for word in words[1:]:
        command = context.command
        assert isinstance(command, click.Group)
        inner = command.get_command(context, word)
        assert inner is not None
        context = click.Context(inner, parent=context, info_name=word)
    given = shlex.split(re.split(r" (?:&&|\||>) ?|  +#| >", example)[0])[len(words) :]
    try:
        context.command.make_context(words[-1], given, parent=context.parent)
    except click.BadParameter as error:
        if "does not exist" not in error.message:  # that is a file of the reader's
            raise


def test_completion_knows_every_program_that_is_installed() -> None:
    installed = {
        each.name for each in distribution("hpctools").entry_points if each.group == "console_scripts"
    }
    assert installed == {*CLICK, *(name.replace("_", "-") for name in COMMANDS)}
