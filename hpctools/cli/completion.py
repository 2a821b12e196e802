"""`hpctools completion SHELL`: what makes a shell complete the words of all our commands."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from importlib import import_module

import click
from click.shell_completion import get_completion_class

from hpctools.cli.output import show

CLICK = {"hpctools": "hpctools.cli.main", "hpctools-api": "api.commands.main"}
COMMANDS = ("hp_cancel", "hp_fetch", "hp_login", "hp_login_agent", "hp_logs", "hp_status", "hp_submit")
_OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][a-z-]*")


_CLUSTERS = "hpctools completion clusters 2>/dev/null"
_BASH_CLUSTERS = f"""\
_hpctools_clusters() {{
  if [[ $3 == --cluster || $3 == trust ]]; then COMPREPLY=($(compgen -W "$({_CLUSTERS})" -- "$2")); fi
}}
"""
_FIRST = {"hp_submit": ("trust",)}
"""Words that are no options, in the place of a script."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish", "clusters"]))
def completion(shell: str) -> None:
    """Print what a shell needs to complete all our commands; `clusters`, which it asks for.

    \b
    Examples:
      hpctools completion bash >/etc/bash_completion.d/hpctools
      hpctools completion zsh >"${fpath[1]}/_hpctools"
      hpctools completion fish >~/.config/fish/conf.d/hpctools.fish
    """
    show("".join(f"{name}\n" for name in _clusters()) if shell == "clusters" else script(shell))


def _clusters() -> list[str]:
    from hpctools.remote.clusters import load, place

    return sorted(load(place(os.environ)).known)


def script(shell: str) -> str:
    """The whole script of a shell."""
    if shell == "zsh":
        return _zsh()
    asking = [_asking(name, shell) for name in CLICK]
    words = [_words(name, shell) for name in COMMANDS]
    return "".join([*asking, *([_BASH_CLUSTERS] if shell == "bash" else []), *words])


def _asking(program: str, shell: str) -> str:
    """click's own: the program is asked as somebody types."""
    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"there is no completion for {shell}")
    return found(click.Command(program), {}, program, f"_{_word(program).upper()}_COMPLETE").source() + "\n"


def _word(program: str) -> str:
    """A program's name in that of a variable or a function."""
    return program.replace("-", "_")


def _zsh() -> str:
    """One file for all programs: zsh reads which ones it completes in the first line, and nothing else.

    So none can register another one, as click's own files would, one for each program.
    """
    programs = [*CLICK, *(module.replace("_", "-") for module in COMMANDS)]
    functions = [_function(name) for name in CLICK]
    cases = [f'{name}) _{_word(name)}_completion "$@" ;;' for name in CLICK]
    for module in COMMANDS:
        options = " ".join(
            f"'--cluster:cluster:($({_CLUSTERS}))'" if word == "--cluster" else word
            for word in sorted(words_of(module))
        )
        first, others = "", "_files"
        for word in _FIRST.get(module, ()):
            first += f"'1:script:{{compadd {word}; _files}}' "
            others = f"{{if (( ${{words[(I){word}]}} )); then compadd $({_CLUSTERS}); else _files; fi}}"
        cases.append(f"{module.replace('_', '-')}) _arguments {options} {first}'*:file:{others}' ;;")
    return "\n".join(
        [
            f"#compdef {' '.join(programs)}",
            *functions,
            "_hpctools_programs() {",
            "  case $service in",
            *(f"    {case}" for case in cases),
            "  esac",
            "}",
            # The file is the function's first body, which zsh still runs the second time, as a function.
            "if [[ $zsh_eval_context[-1] == (loadautofunc|shfunc) ]]; then",
            '  _hpctools_programs "$@"',
            "else",
            f"  compdef _hpctools_programs {' '.join(programs)}",
            "fi",
            "",
        ]
    )


def _function(program: str) -> str:
    """click's function of a program, without what registers it."""
    return _asking(program, "zsh").partition("\n")[2].partition("\nif [[ $zsh_eval_context")[0]


def _words(module: str, shell: str) -> str:
    """Options of a command that starts faster than it could be asked."""
    program = module.replace("_", "-")
    options = sorted(words_of(module))
    first = _FIRST.get(module, ())
    if shell == "bash":
        return f"complete -o default -F _hpctools_clusters -W '{' '.join([*options, *first])}' {program}\n"
    lines = [
        f"complete -c {program} -l {word[2:]}" + (f" -xa '({_CLUSTERS})'" if word == "--cluster" else "")
        for word in options
        if word.startswith("--")
    ]
    for word in first:
        behind = f"-n '__fish_seen_subcommand_from {word}'"
        lines += [f"complete -c {program} -n __fish_use_subcommand -a {word}"]
        lines += [f"complete -c {program} {behind} -xa '({_CLUSTERS})'"]
    return "".join(f"{line}\n" for line in lines)


def words_of(module: str) -> set[str]:
    """The options of one of our commands: those of its help."""
    found = import_module(f"hpctools.cli.{module}")
    if hasattr(found, "HELP"):  # hp-submit has no parser: all of sbatch's options are its own
        return {word for word in _OPTION.findall(found.HELP) if word.startswith("--") and word != "--"}
    make: Callable[[], argparse.ArgumentParser] = getattr(found, "parser", None) or found._parser
    return {word for action in make()._actions for word in action.option_strings}
