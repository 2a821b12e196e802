"""`hpctools`: the sysadmin's command. Subcommands are imported when they are asked for."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from keyword import iskeyword
from typing import Any

import click

from hpctools import __version__
from hpctools.cli.ending import NOBODY_READS, complain, open_what_is_closed, settled
from hpctools.errors import CommandError, HpctoolsError

COMMANDS = {
    "validate": "check a site file; all findings at once",
    "render": "compile a site file to Slurm's configuration files",
    "preflight": "boot a configuration with a throwaway slurmctld before anything is touched",
    "import": "make a site file from a cluster that is there already",
    "plan": "show what separates the cluster from its site, and what it takes",
    "drift": "the same for cron and monitoring: quiet when nothing differs",
    "apply": "make a cluster what its site says, all of it or nothing",
    "rollback": "bring back an earlier configuration",
    "history": "who applied what, when, and what came of it",
    "identity": "the people's directory: what nodes are told of it, and who is in its groups",
    "budget": "what departments may spend and spent, alerts, and keeping to it",
    "login": "login nodes: who is on them, draining them, what stands in front of them",
    "doctor": "what is wrong with this installation, why it matters and what to do",
    "hyperpod": "clusters on Amazon SageMaker HyperPod: render, validate, create, ...",
    "completion": "what makes a shell complete the words of all our commands",
    "sandbox": "a real Slurm cluster on this machine in one command",
}


class NobodyReads(Exception):
    """Whoever read our output has gone (`| head`). click ends on that with 1, which would mean a finding."""


@contextmanager
def _read_by_somebody() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise NobodyReads from None


class LazyGroup(click.Group):
    """A group whose commands are modules `hpctools.cli.<name>` with a command object of that name."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the command line; `--help` is shown here."""
        with _read_by_somebody():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Do what it says."""
        with _read_by_somebody():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, as they are shown."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in COMMANDS:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command: click.Command = getattr(import_module(f"hpctools.cli.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="hpctools")
def hpctools(debug: bool) -> None:
    """Slurm-side management for research HPC: sites, sandboxes, elastic runs, budgets."""


def main() -> None:
    """Entry of the command; ends the process with the error tree's exit codes."""
    open_what_is_closed()
    gc.set_threshold(100_000)  # commands are short, and what they build they keep: a tenth of a big plan
    sys.exit(settled(_outcome()))


def _outcome() -> int:
    try:
        code = hpctools.main(standalone_mode=False)
    except HpctoolsError as error:
        return _failed(error)
    except click.exceptions.Abort:
        complain("hpctools: interrupted")
        return 130
    except click.ClickException as error:
        with suppress(OSError):
            error.show()
        return error.exit_code
    except NobodyReads:
        return NOBODY_READS
    except OSError as error:
        return _failed(HpctoolsError(f"{error.filename or 'system'}: {error.strerror or error}"))
    return code if isinstance(code, int) else 0


def _failed(error: HpctoolsError) -> int:
    if "--debug" in sys.argv:
        raise error
    complain(f"hpctools: {error}")
    if isinstance(error, CommandError) and "\n" in error.stderr_tail:
        for line in error.stderr_tail.splitlines():
            complain(f"  | {line}")
    return error.exit_code


if __name__ == "__main__":
    main()
