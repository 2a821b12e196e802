"""Workers and login nodes: they fetch Slurm's configuration from the controllers.

A worker's slurmd, or where there is no slurmd to run, the login node's sackd, is told the controllers'
addresses as resource_config.json has them now: a replaced controller has another one.
"""

from __future__ import annotations

import socket
import time

from provision import slurmd_start
from provision.failures import Failure
from provision.files import is_so, on_node, write_whole
from provision.processes import call
from provision.services import drop_in, drop_in_path, is_active, start
from provision.slurm_conf import INCLUDE, INCLUDE_LINE
from provision.step import Context

CONTROLLER_SECONDS = 1200.0  # it may have to install MariaDB first
INCLUDE_SECONDS = 60.0  # then on without: the controller's own step has failed, and says why
NAMED_SECONDS = 300.0  # the agent names a new node in slurm.conf, and slurmctld takes it over
SETTLE_SECONDS = 0.5  # a daemon that cannot use its configuration ends within this
PORT = 6817


def conf_server(context: Context) -> str:
    """The controllers' addresses as `--conf-server` takes them."""
    port = context.settings.section("slurm").get("slurmctld_port") or PORT
    return ",".join(f"{address}:{port}" for address in context.controllers)


def is_done(context: Context) -> bool:
    """Whether this node has its daemon, asked of these controllers; on a login node whether commands work."""
    if context.role == "login" and not _unit_here():
        return _commands_work()
    daemon = _daemon(context)
    if not is_active(daemon):
        return False
    return (_is_ours(daemon, context) or _asks(daemon, context)) and _has_loaded(context)


def do(context: Context) -> None:
    """Tell the daemon where the controllers are, and start it.

    Raises:
        Failure: no controller is known, or it does not start.
    """
    if not context.controllers:
        raise Failure("resource_config.json names no controller yet")
    if context.role == "login" and not _unit_here():
        raise Failure("commands cannot reach slurmctld, and there is neither sackd nor slurmd on this node")
    daemon = _daemon(context)
    write_whole(on_node(f"/etc/default/{daemon}"), _options(daemon, context), 0o644)
    # After the unit's own lines, so that it holds whether or not the unit reads that file.
    drop_in(daemon, _drop_in(daemon))
    _wait_for_controller(context)
    _start_with_ours(daemon, context)


def _start_with_ours(daemon: str, context: Context) -> None:
    """Start it, and again for as long as what it has fetched is the agent's alone."""
    until = time.monotonic() + INCLUDE_SECONDS
    _start_until_it_stays(daemon)
    while (lacks := _lacks_ours(context)) and time.monotonic() < until:
        time.sleep(SETTLE_SECONDS)
        _start_until_it_stays(daemon)
    if lacks:
        print(
            f"{daemon} runs without {INCLUDE}, which the controller does not ship: see the controller's log; "
            "once it does, run on_create.sh here again"
        )
    if _wants_ours(context):
        slurmd_start.note(with_ours=not lacks)


def _start_until_it_stays(daemon: str) -> None:
    """Start it until it runs: it ends as long as the controller's slurm.conf does not name this node yet."""
    until = time.monotonic() + NAMED_SECONDS
    while True:
        why = _started(daemon)
        if not why:
            return
        if time.monotonic() > until:
            raise Failure(f"{daemon} does not stay up: {why}; see `journalctl -u {daemon}`")
        time.sleep(1)


def _started(daemon: str) -> str:
    """Start it; why it does not run, empty when it does."""
    try:
        start(daemon)
    except Failure as failure:
        return str(failure)
    time.sleep(SETTLE_SECONDS)
    return "" if is_active(daemon) else "it has ended"


def _wants_ours(context: Context) -> bool:
    """Whether plugins of this node's daemon depend on our Include."""
    return context.role == "compute" and (context.settings.folder / "slurm" / INCLUDE).exists()


def _has_loaded(context: Context) -> bool:
    """Whether slurmd was started with what it has fetched by now; a reconfigure loads no plugins anew."""
    if not _wants_ours(context):
        return True
    with_ours = slurmd_start.started_with_ours()
    return with_ours is True or (with_ours is False and _lacks_ours(context))


def _lacks_ours(context: Context) -> bool:
    """Whether what was fetched is the agent's alone, as it is for some seconds after nodes came or went.

    A slurmd that started with it has another SelectType than slurmctld will have, and no job runs there.
    """
    fetched = on_node("/run/slurm/conf/slurm.conf")
    if not (context.settings.folder / "slurm" / INCLUDE).exists() or not fetched.exists():
        return False
    return INCLUDE_LINE not in fetched.read_text(encoding="utf-8", errors="replace").splitlines()


def _wait_for_controller(context: Context) -> None:
    """Wait until one answers: all nodes of a cluster are made at once, and the controller takes longest."""
    port = int(context.settings.section("slurm").get("slurmctld_port") or PORT)
    until = time.monotonic() + CONTROLLER_SECONDS
    while not any(_answers(address, port) for address in context.controllers):
        if time.monotonic() > until:
            where = " or ".join(context.controllers)
            raise Failure(f"no slurmctld answers at {where}, port {port}; see the log of the controller")
        time.sleep(0.5)


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=3).close()
    except OSError:
        return False
    return True


def _unit_here() -> str:
    """The unit that brings the configuration to a login node; empty when commands have it otherwise."""
    for unit in ("sackd", "slurmd"):
        if call(["systemctl", "cat", unit], limit=10).code == 0:
            return unit
    return ""


def _daemon(context: Context) -> str:
    return (_unit_here() or "slurmd") if context.role == "login" else "slurmd"


def _commands_work() -> bool:
    return call(["scontrol", "ping"], limit=10).code == 0


def _options(daemon: str, context: Context) -> str:
    return (
        "# Made by hpctools' lifecycle scripts.\n"
        f'{daemon.upper()}_OPTIONS="--conf-server {conf_server(context)}"\n'
    )


def _drop_in(daemon: str) -> str:
    return f"# Made by hpctools' lifecycle scripts.\n[Service]\nEnvironmentFile=-/etc/default/{daemon}\n"


def _is_ours(daemon: str, context: Context) -> bool:
    written = is_so(on_node(f"/etc/default/{daemon}"), _options(daemon, context))
    return written and is_so(on_node(drop_in_path(daemon)), _drop_in(daemon))


def _asks(daemon: str, context: Context) -> bool:
    """Whether it was started for these controllers, by HyperPod's agent or anybody."""
    wanted = set(context.controllers)
    return any(_servers(words) >= wanted for _, words in slurmd_start.command_lines(daemon))


def _servers(words: list[str]) -> set[str]:
    """The hosts after --conf-server, with or without `=`; none stated is none."""
    joined = " ".join(words).replace("--conf-server=", "--conf-server ")
    _, found, rest = joined.partition("--conf-server ")
    return {host.partition(":")[0] for host in rest.split(" ")[0].split(",")} if found else set()
