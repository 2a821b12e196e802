"""`hpctools sandbox`: a real Slurm cluster on this machine."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpctools.errors import SandboxError, UsageError

NARROWEST = 100  # columns; a pid cut in half helps nobody

if TYPE_CHECKING:
    from hpctools.sandbox.cluster import Sandbox
    from hpctools.sandbox.status import Status


@click.group()
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="HPCTOOLS_SANDBOX",
    help="State folder (default: $HPCTOOLS_SANDBOX, else .hpctools-sandbox here).",
)
@click.pass_context
def sandbox(context: click.Context, state: Path | None) -> None:
    """A real Slurm cluster on this machine: munge, MariaDB, slurmdbd, slurmctld, slurmds, sshd, AWS, API."""
    from hpctools.sandbox.cluster import Sandbox
    from hpctools.sandbox.layout import default_root

    context.obj = Sandbox(state or default_root())


@sandbox.command()
@click.option("--site", "site_file", type=click.Path(path_type=Path, dir_okay=False), help="Site file to be.")
@click.option("--nodes", type=int, help="Compute nodes (default: as many as the site always has).")
@click.option(
    "--slurm",
    default="",
    metavar="RELEASE",
    help="Slurm release to run: 24.11, or `site` for what the site states (default: the machine's own).",
)
@click.option("--no-cgroup", is_flag=True, help="Track jobs without cgroups, as on a machine with cgroup v2.")
@click.option("--json", "as_json", is_flag=True, help="Print the status as JSON when done.")
@click.pass_obj
def up(
    box: Sandbox, site_file: Path | None, nodes: int | None, slurm: str, no_cgroup: bool, as_json: bool
) -> None:
    """Bring it up, or heal it: only what does not run is started.

    \b
    Example:  hpctools sandbox up --site site.yaml --nodes 6
    """
    from hpctools.sandbox.blueprint import example_site
    from hpctools.sandbox.rise import up as bring_up

    chosen = site_file or example_site()
    if chosen is None:
        raise UsageError("no site file is named", "give one with --site")
    begin = time.monotonic()
    done: list[str] = []

    def report(name: str, seconds: float) -> None:
        done.append(name)
        if not as_json:
            click.echo(f"  {name:<24}{seconds:6.2f} s")

    bring_up(box, chosen, nodes, report, cgroup="none" if no_cgroup else "", slurm=slurm)
    if as_json:
        return _show_json(box)
    spent = time.monotonic() - begin
    click.echo(f"ready in {spent:.1f} s" if done else "already up; nothing to do")
    return None


@sandbox.command()
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_obj
def status(box: Sandbox, as_json: bool) -> int:
    """What runs, where, since when. Exit code 0 when all of it does, 1 otherwise.

    \b
    Example:  hpctools sandbox status
    """
    from hpctools.sandbox.status import status as look

    found = look(box)
    if as_json:
        _show_json(box)
    else:
        _show(found)
    return 0 if found.state == "running" else 1


@sandbox.command()
@click.pass_obj
def down(box: Sandbox) -> None:
    """End its processes and remove its folder; nothing is left.

    \b
    Example:  hpctools sandbox down
    """
    from hpctools.sandbox.fall import down as take_down

    click.echo("down" if take_down(box) else f"no sandbox in {box.layout.root}; nothing to do")


@sandbox.command(
    name="exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option("--user", default="root", show_default=True, help="Unix account.")
@click.option(
    "--host", default="", help="Host (default: the controller for root, else the first login node)."
)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def execute(box: Sandbox, user: str, host: str, argv: tuple[str, ...]) -> int:
    """Run a command inside; without one, a shell. Its exit code is ours, and Ctrl-C is its own.

    \b
    Example:  hpctools sandbox exec --user nlp1 -- sbatch --wrap hostname
    """
    return box.attach(list(argv) or ["bash", "--login"], user=user, host=host)


@sandbox.command()
@click.argument("daemon", required=False)
@click.option("-n", "--lines", default=20, show_default=True, help="Lines of each log.")
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows.")
@click.pass_obj
def logs(box: Sandbox, daemon: str | None, lines: int, follow: bool) -> int:
    """Show the logs of one daemon, or of all.

    \b
    Example:  hpctools sandbox logs slurmctld --follow
    """
    from hpctools.slurm import run

    found = sorted(box.layout.logs.glob("*.log")) if box.layout.logs.is_dir() else []
    names = [path.stem for path in found]
    if not found:
        raise SandboxError(f"no sandbox in {box.layout.root}", "start it: hpctools sandbox up")
    if daemon and daemon not in names:
        raise UsageError(f"no daemon {daemon!r}", f"there are: {', '.join(names)}")
    chosen = [str(path) for path in found if daemon in (None, path.stem)]
    return run.attach(["tail", "-n", str(lines), *(["-F"] if follow else []), "--", *chosen])


@sandbox.command()
@click.option("--days", type=int, help="How far back (default: to the first of the month before).")
@click.option("--seed", default=1, show_default=True, help="Another seed, another past.")
@click.pass_obj
def history(box: Sandbox, days: int | None, seed: int) -> None:
    """Give it a past of made-up jobs, so that budgets and reports have something to show.

    These jobs never ran: they are invented and loaded into slurmdbd as an archive is put back. Their ids
    start at 900001, and AdminComment says what they are. A second call adds none.

    \b
    Example:  hpctools sandbox history && hpctools sandbox exec -- sacct -a -X -S now-30days
    """
    from hpctools.sandbox.history import load

    added = load(box, int(time.time()), days, seed)
    click.echo(f"{added} made-up jobs loaded; none of them ever ran" if added else "nothing to add")


@sandbox.command()
@click.argument("names", nargs=-1, metavar="[RELEASE]...")
@click.option("--all", "all_of_them", is_flag=True, help="Make all.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def releases(names: tuple[str, ...], all_of_them: bool, as_json: bool) -> int:
    """Make the folders of other Slurm releases that `up --slurm` runs; without names only list what there is.

    Each is a whole Debian that carries the release, from the mirror that apt uses: two minutes, 0.8 GB. It is
    made once, and again when what it is made of has changed. Exit code 1 when one cannot be made.

    \b
    Example:  hpctools sandbox releases 24.11 && hpctools sandbox up --slurm 24.11
    """
    from hpctools.sandbox import releases as known

    own = known.own().name
    wanted = tuple(known.SUITES) if all_of_them else names
    for name in wanted:
        if name != own:
            _make_release(name)
    lacks = {name: "" if name == own else known.lack(name) for name in known.SUITES}
    if as_json:
        click.echo(json.dumps([{"release": name, "lack": why} for name, why in lacks.items()]))
    else:
        for name, why in lacks.items():
            here = "this machine's own" if name == own else f"ready in {known.shelf() / name}"
            click.echo(f"{name}  {f'missing: {why}' if why else here}")
    return 1 if any(lacks[name] for name in wanted) else 0


def _make_release(name: str) -> None:
    """Make one; what keeps it from being made is told, and does not keep the others from it."""
    from hpctools.sandbox import releases as known

    if name not in known.SUITES:
        raise UsageError(f"no Slurm release {name!r} is known", f"there are: {', '.join(known.SUITES)}")
    begin = time.monotonic()
    try:
        if known.build(name):
            click.echo(f"  {name:<24}{time.monotonic() - begin:6.2f} s", err=True)
    except SandboxError as error:
        click.echo(f"hpctools: {error}", err=True)


def _show_json(box: Sandbox) -> None:
    from hpctools.sandbox.status import status as look

    def plain(value: Any) -> Any:
        return str(value)

    click.echo(json.dumps(asdict(look(box)), default=plain, indent=1))


def _show(found: Status) -> None:
    click.echo(f"sandbox {found.root}: {found.state}")
    if not found.daemons:
        return
    from rich import box as shapes
    from rich.console import Console
    from rich.table import Table

    table = Table(box=shapes.SIMPLE)
    for column in ("daemon", "host", "state", "pid", "port", "since"):
        table.add_column(column)
    for d in found.daemons:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(d.since)) if d.since else ""
        color = "green" if d.state == "running" else "red"
        table.add_row(d.name, d.host, f"[{color}]{d.state}[/]", str(d.pid), str(d.port or ""), since)
    console = Console(highlight=False)
    console.width = max(console.width, NARROWEST)
    console.print(table)
    click.echo("nodes:  " + "  ".join(f"{name} {state}" for name, state in found.nodes))
    click.echo(f"people: {' '.join(found.people)}")
    click.echo(f"page:   {found.api}")
    for line in found.ssh:
        click.echo(f"login:  {line}")
