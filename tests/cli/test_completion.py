"""Shell completion: what it prints is taken by the shells that are here, and bash completes with it."""

from __future__ import annotations

import subprocess

import pytest

from hpctools.cli.completion import COMMANDS, script, words_of


@pytest.mark.parametrize("module", COMMANDS)
def test_each_command_has_its_options(module: str) -> None:
    found = words_of(module)
    assert {
        "--help",
        "--json" if module not in ("hp_login_agent", "hp_logs", "hp_fetch") else "--help",
    } <= found
    assert all(word.startswith("-") and word.replace("-", "").isalnum() for word in found)


def test_bash_completes_with_it() -> None:
    """What bash offers for `hp-login --se`."""
    asked = f"{script('bash')}\ncomplete -p hp-login hpctools hpctools-api >/dev/null && compgen -W " + (
        '"$(complete -p hp-login | sed -E "s/.*-W \'([^\']*)\'.*/\\1/")" -- --se'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", asked], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("--sessions\n", "", 0)


def test_the_other_shells_get_theirs() -> None:
    assert "_HPCTOOLS_COMPLETE=zsh_complete" in script("zsh")
    assert "complete -c hp-status -l watch\n" in script("fish")
