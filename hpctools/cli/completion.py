"""`hpctools completion SHELL`: what makes a shell complete the words of all our commands."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module

import click
from click.shell_completion import get_completion_class

from hpctools.cli.output import show

CLICK = {"hpctools": "hpctools.cli.main", "hpctools-api": "api.commands.main"}
COMMANDS = ("hp_cancel", "hp_fetch", "hp_login", "hp_login_agent", "hp_logs", "hp_status", "hp_submit")

_CLUSTERS = "hpctools completion clusters 2>/dev/null"
_BASH_CLUSTERS = f"""\
_hpctools_clusters() {{
  if [[ $3 == --cluster || $3 == trust ]]; then COMPREPLY=($(compgen -W "$({_CLUSTERS})" -- "$2")); fi
}}
"""
_BASH_SUBMIT = """\
_hpctools_submit() {{
  local words='{options}'
  if (( COMP_CWORD == 1 )); then words+=' trust'
  elif [[ ${{COMP_WORDS[1]}} == trust ]]; then words='{trust}'; fi
  _hpctools_clusters "$@"
  COMPREPLY+=($(compgen -W "$words" -- "$2"))
}}
complete -o default -F _hpctools_submit hp-submit
"""
_FISH_TRUST = "__fish_seen_subcommand_from trust"


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
        taken = f"_arguments {_zsh_options(words_of(module))} '*:file:_files'"
        cases.append(f"{module.replace('_', '-')}) {_zsh_submit() if module == 'hp_submit' else taken} ;;")
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


def _zsh_options(words: Iterable[str]) -> str:
    clusters = f"'--cluster:cluster:($({_CLUSTERS}))'"
    return " ".join(clusters if word == "--cluster" else word for word in sorted(words))


def _zsh_submit() -> str:
    """`trust` stands in the place of a script, and takes other options."""
    trust = " ".join([_zsh_options({"--cluster", "--help"}), "'--fingerprint:key:( )' '--from:file:_files'"])
    options = _zsh_options(words_of("hp_submit"))
    return (
        "if (( CURRENT > 2 )) && [[ $words[2] == trust ]]; then "
        f"_arguments {trust} '1:word:(trust)' '*:cluster:($({_CLUSTERS}))'; else "
        f"_arguments {options} '1:script:{{compadd trust; _files}}' '*:file:_files'; fi"
    )


def _function(program: str) -> str:
    """click's function of a program, without what registers it."""
    return _asking(program, "zsh").partition("\n")[2].partition("\nif [[ $zsh_eval_context")[0]


def _words(module: str, shell: str) -> str:
    """Options of a command that starts faster than it could be asked."""
    program, options = module.replace("_", "-"), sorted(words_of(module))
    if shell == "bash" and module == "hp_submit":
        return _BASH_SUBMIT.format(options=" ".join(options), trust=" ".join(sorted(trust_words())))
    if shell == "bash":
        return f"complete -o default -F _hpctools_clusters -W '{' '.join(options)}' {program}\n"
    if module == "hp_submit":
        return _fish(program, options, f"not {_FISH_TRUST}") + _fish_trust(program)
    return _fish(program, options)


def _fish(program: str, words: Sequence[str], where: str = "") -> str:
    begin = f"complete -c {program}" + (f" -n '{where}'" if where else "")
    lines = [
        f"{begin} -l {word[2:]}" + (f" -xa '({_CLUSTERS})'" if word == "--cluster" else "")
        for word in words
        if word.startswith("--")
    ]
    return "".join(f"{line}\n" for line in lines)


def _fish_trust(program: str) -> str:
    first = f"complete -c {program} -n __fish_use_subcommand -a trust\n"
    clusters = f"complete -c {program} -n '{_FISH_TRUST}' -xa '({_CLUSTERS})'\n"
    return first + clusters + _fish(program, sorted(trust_words()), _FISH_TRUST)


def words_of(module: str) -> set[str]:
    """The options of one of our commands."""
    if module == "hp_submit":  # it has no parser: all of sbatch's options are its own
        from hpctools.remote.shipping import OURS, SWITCHES
        from hpctools.slurm.sbatch_options import ARITIES
        from hpctools.submit.intent import OUR_FLAGS, OUR_VALUES

        return {f"--{name}" for name in (*ARITIES, *OUR_FLAGS, *OUR_VALUES, *OURS, *SWITCHES)}
    found = import_module(f"hpctools.cli.{module}")
    make: Callable[[], argparse.ArgumentParser] = getattr(found, "parser", None) or found._parser
    return {word for action in make()._actions for word in action.option_strings}


def trust_words() -> set[str]:
    """The options of `hp-submit trust`."""
    from hpctools.cli.remote_submission import TRUST_OPTIONS

    return {*TRUST_OPTIONS, "--help"}
