"""Shell completion: what it prints is taken by the shells that are here, and bash completes with it."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from hpctools.cli.completion import COMMANDS, script, trust_words, words_of

PATH = f"{Path(sys.executable).parent}:/usr/bin:/bin"
START = "PROMPT='ready> '; autoload -Uz compinit; compinit -u -D; unsetopt beep\n"
TYPED = {
    "hp-status --wat": "hp-status --watch",
    "hpctools-api backu": "hpctools-api backup",
    "hpctools valid": "hpctools validate",
    "hp-submit --elastic-pol": "hp-submit --elastic-policy",
    "hp-submit --job-n": "hp-submit --job-name",
    "hp-submit tru": "hp-submit trust",
    "hp-submit trust --fing": "hp-submit trust --fingerprint",
}
SBATCHS = "time partition job-name output mem account gres gpus-per-node qos array export nodes wrap help"
OURS = "elastic-policy elastic-mode resume cluster upload follow submission dry-run json yes debug"
OF_OTHERS = {"--epochs", "--from", "--fingerprint", "--nproc-per-node", "--stdin-request"}


@pytest.mark.parametrize("module", COMMANDS)
def test_each_command_has_its_options(module: str) -> None:
    found = words_of(module)
    assert {
        "--help",
        "--json" if module not in ("hp_login_agent", "hp_logs", "hp_fetch") else "--help",
    } <= found
    assert all(word.startswith("-") and word.replace("-", "").isalnum() for word in found)


def test_hp_submit_has_sbatchs_options_and_none_of_an_example() -> None:
    """Those of a training program in an example of the help were offered, and few of sbatch's."""
    found = words_of("hp_submit")
    assert {f"--{name}" for name in (*SBATCHS.split(), *OURS.split())} - found == set()
    assert found & OF_OTHERS == set()
    assert trust_words() == {"--cluster", "--fingerprint", "--from", "--help"}


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("hp-submit --job-n", "--job-name"),
        ("hp-submit --epo", ""),
        ("hp-submit --fing", ""),
        ("hp-submit tru", "trust"),
        ("hp-submit job.sh tru", ""),
        ("hp-submit trust --fing", "--fingerprint"),
        ("hp-submit trust --job-n", ""),
    ],
)
def test_bash_offers_what_hp_submit_takes_there(typed: str, offered: str) -> None:
    before, last = typed.split()[-2:]
    asked = (
        f"{script('bash')}\ncomplete -p hp-submit | grep -q -- '-F _hpctools_submit hp-submit' || exit 3\n"
        f"COMP_WORDS=({typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()\n"
        f'_hpctools_submit hp-submit {last} {before}; echo "${{COMPREPLY[@]}}"'
    )
    words = ["bash", "--norc", "-c", asked]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (f"{offered}\n", "", 0)


def test_bash_completes_with_it() -> None:
    """What bash offers for `hp-login --se`."""
    asked = f"{script('bash')}\ncomplete -p hp-login hpctools hpctools-api >/dev/null && compgen -W " + (
        '"$(complete -p hp-login | sed -E "s/.*-W \'([^\']*)\'.*/\\1/")" -- --se'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", asked], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("--sessions\n", "", 0)


def test_bash_completes_clusters(tmp_path: Path) -> None:
    (tmp_path / "clusters.yaml").write_text("clusters: {uni: [login1], other: [login9]}\n")
    asked = (
        f"{script('bash')}\n_hpctools_clusters hp-logs u --cluster; echo ${{COMPREPLY[@]}}; "
        "COMPREPLY=(); _hpctools_clusters hp-logs u --to; echo ${#COMPREPLY[@]}; "
        "COMP_WORDS=(hp-submit trust o); COMP_CWORD=2; "
        "_hpctools_submit hp-submit o trust; echo ${COMPREPLY[@]}"
    )
    environment = {**os.environ, "PATH": PATH, "HPCTOOLS_CLUSTERS": str(tmp_path / "clusters.yaml")}
    done = subprocess.run(
        ["bash", "--norc", "-c", f"COMPREPLY=(); {asked}"],
        capture_output=True, text=True, timeout=60, check=False, env=environment,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["uni", "0", "other"], done.stderr


def test_zsh_completes_with_it_where_it_finds_it(tmp_path: Path) -> None:
    """Each command is the first that somebody types in a new shell, which finds the file by itself."""
    functions = tmp_path / "functions"
    functions.mkdir()
    (functions / "_hpctools").write_text(script("zsh"))
    (tmp_path / ".zshrc").write_text(f"fpath=({functions} $fpath)\n{START}")
    for first in TYPED:
        typed = [first, *(other for other in TYPED if other != first)]
        awaited = [TYPED[each] for each in typed]
        shown = typed_at("zsh", typed, awaited, ZDOTDIR=str(tmp_path))
        assert [each for each in awaited if each not in shown] == [], shown


def test_zsh_takes_it_from_a_startup_file_too(tmp_path: Path) -> None:
    (tmp_path / ".zshrc").write_text(START + script("zsh"))
    shown = typed_at("zsh", ["hp-login --ses"], ["hp-login --sessions"], ZDOTDIR=str(tmp_path))
    assert "hp-login --sessions" in shown


def test_zsh_and_fish_complete_clusters(tmp_path: Path) -> None:
    (tmp_path / "clusters.yaml").write_text("clusters: {uni: [login1], other: [login9]}\n")
    (tmp_path / ".zshrc").write_text(START + script("zsh"))
    environ = {"HPCTOOLS_CLUSTERS": str(tmp_path / "clusters.yaml"), "ZDOTDIR": str(tmp_path)}
    typed = ["hp-logs --cluster un", "hp-submit trust un", "hp-submit trust --fingerprint x oth"]
    awaited = ["hp-logs --cluster uni", "hp-submit trust uni", "hp-submit trust --fingerprint x other"]
    shown = typed_at("zsh", typed, awaited, **environ)
    assert [each for each in awaited if each not in shown] == [], shown
    (tmp_path / "fish/conf.d").mkdir(parents=True)
    (tmp_path / "fish/conf.d/hpctools.fish").write_text(script("fish"))
    environ |= {"PATH": PATH, "XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    for begun in ("hp-logs --cluster ", "hp-submit trust "):
        done = subprocess.run(
            ["fish", "-c", f"complete -C '{begun}'"],
            capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environ},
        )  # fmt: skip
        assert done.stdout.split() == ["other", "uni"], done


def typed_at(shell: str, typed: Sequence[str], awaited: Sequence[str], **environ: str) -> str:
    """What a terminal shows when somebody types these, one after the other, each with the tab key.

    Each is waited for, 30 s at most, and then taken back.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(shell, [shell, "-i"], {**os.environ, "PATH": PATH, "TERM": "dumb", **environ})
    try:
        shown = until_shown(terminal, "ready> ")
        for words, completed in zip(typed, awaited, strict=True):
            os.write(terminal, f"\x15{words}\t".encode())  # Ctrl-U: an empty line
            shown += until_shown(terminal, completed)
        return shown
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def until_shown(terminal: int, awaited: str) -> str:
    """What a terminal shows up to that, or for 30 s, or until the shell ends."""
    shown, limit = "", time.monotonic() + 30
    with suppress(OSError):  # how Linux tells that nobody is at the other end any more
        while awaited not in shown and time.monotonic() < limit:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 4096).decode(errors="replace")
    return shown


def test_fish_completes_with_it_where_it_finds_it(tmp_path: Path) -> None:
    place = tmp_path / "fish" / "conf.d"
    place.mkdir(parents=True)
    (place / "hpctools.fish").write_text(script("fish"))
    environ = {**os.environ, "PATH": PATH, "XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    for typed, completed in TYPED.items():
        done = subprocess.run(
            ["fish", "-c", f"complete -C '{typed}'"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environ,
        )
        assert completed.split()[-1] in done.stdout.split(), (typed, done)
