"""`hpctools hyperpod ...`: clusters on Amazon SageMaker HyperPod. Subcommands are imported when asked for."""

from __future__ import annotations

from importlib import import_module

import click

# name -> (module:function, help)
SUBCOMMANDS = {
    "render": (
        "hpctools.cli.hyperpod_render:render",
        "write the files that HyperPod creates the cluster from",
    ),
    "validate": (
        "hpctools.cli.hyperpod_validate:validate",
        "check such files, ours or anybody's; all findings at once",
    ),
    "convert": (
        "hpctools.cli.hyperpod_convert:convert",
        "turn one of HyperPod's two configuration styles into the other",
    ),
    "advise": (
        "hpctools.cli.hyperpod_advise:advise",
        "which style and which SlurmConfigStrategy fit, and why",
    ),
    "template": (
        "hpctools.cli.hyperpod_template:template",
        "show the CloudFormation template of what is around the cluster",
    ),
    "create": ("hpctools.cli.hyperpod_create:create", "from a site to a running cluster, with all around it"),
    "update": (
        "hpctools.cli.hyperpod_update:update",
        "make stack, scripts and cluster what the site says now",
    ),
    "status": ("hpctools.cli.hyperpod_status:status", "what there is of a cluster, and whether it is well"),
    "delete": (
        "hpctools.cli.hyperpod_delete:delete",
        "delete a cluster; what has data stays unless told otherwise",
    ),
    "bundle": (
        "hpctools.cli.hyperpod_bundle:bundle",
        "put together what each node configures itself from",
    ),
    "upload": (
        "hpctools.cli.hyperpod_upload:upload",
        "put that where HyperPod finds it",
    ),
}


class HyperPodGroup(click.Group):
    """A group whose commands are named in SUBCOMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, as they are shown."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in SUBCOMMANDS:
            return None
        module, function = SUBCOMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(import_module(module), function)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in SUBCOMMANDS.items()])


@click.group(cls=HyperPodGroup)
def hyperpod() -> None:
    """Clusters on Amazon SageMaker HyperPod: their files, their checks, their life."""
