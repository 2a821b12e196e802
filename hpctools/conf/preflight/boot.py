"""The edge of a preflight: namespaces around a throwaway slurmctld, and what was seen of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpctools.conf.preflight.node_gres import NodeTry
from hpctools.conf.preflight.staging import Staged
from hpctools.errors import CommandError, CommandTimeout, HpctoolsError, UnreachableError
from hpctools.slurm.throwaway.place import Place, search_path
from hpctools.slurm.throwaway.seen import Booted, SeenNode

_LEAST_SECONDS = 20.0
_SECONDS_PER_NODE = 0.005
_SECONDS_AROUND = 60.0


def boot(
    place: Place,
    staged: Staged,
    *,
    nodes: int,
    asked: Sequence[NodeTry] = (),
    state: Path | None = None,
    root: Path = Path("/"),
) -> Booted:
    """Boot a configuration apart from everything, and look at what came of it.

    Args:
        place: where; it can be used once.
        staged: what to boot.
        nodes: how many nodes it has; slurmctld's time to start grows with them.
        asked: the slurmds that are asked what they make of gres.conf.
        state: the live slurmctld's StateSaveLocation, which is only read; None boots without a past.
        root: where Slurm is installed, when that is not this system itself.

    Raises:
        UnreachableError: this machine has no slurmctld, or lets us make no namespaces.
        HpctoolsError: the throwaway daemons could not be arranged.
    """
    _check_installed(search_path(), root)
    limit = _LEAST_SECONDS + _SECONDS_PER_NODE * nodes
    order = _order(staged, state, root, limit)
    order["tries"] = [asdict(each) for each in asked]
    began = time.monotonic()
    try:
        seen = _booted(place.carry_out(order, limit + _SECONDS_AROUND))
    except CommandTimeout as error:
        raise HpctoolsError(
            f"the preflight was given up: {error.message}", "try again when the machine is less busy"
        ) from None
    except CommandError as error:
        raise _no_namespaces(error) from None
    return _with_whole(seen, time.monotonic() - began)


def has_slurmd(root: Path) -> bool:
    """Whether there is a slurmd that could be asked; a controller need not have one."""
    return _found("slurmd", search_path(), root)


def _found(program: str, path: str, root: Path) -> bool:
    inside = ":".join(str(root / part.lstrip("/")) for part in path.split(":") if part)
    return shutil.which(program, path=inside) is not None


def _check_installed(path: str, root: Path) -> None:
    for program in ("slurmctld", "scontrol"):
        if not _found(program, path, root):
            raise UnreachableError(
                f"there is no {program} on this machine to try the configuration with",
                "run the preflight on a controller, or install slurmctld here (it need not be started)",
            )


def _order(staged: Staged, state: Path | None, root: Path, limit: float) -> dict[str, Any]:
    now = time.strftime("%Y-%m-%dT%H:%M:%S")
    places = {"state": str(state) if state else "", "root": str(root)}
    return {**asdict(staged), **places, "limit": limit, "now": now}


def _no_namespaces(error: CommandError) -> HpctoolsError:
    last = error.stderr_tail.splitlines()[-1] if error.stderr_tail else error.message
    return UnreachableError(
        f"this machine does not let us make a place apart for the throwaway slurmctld: {last}",
        "run it as root, where namespaces are allowed (kernel.unprivileged_userns_clone=1 allows others)",
    )


def _booted(seen: Mapping[str, Any]) -> Booted:
    if "failed" in seen:
        raise HpctoolsError(
            f"the throwaway slurmctld could not be arranged: {seen['failed']}", "see docs/preflight.md"
        )
    nodes = {name: SeenNode(**row) for name, row in seen["nodes"].items()}
    lists = {key: tuple(seen[key]) for key in ("lines", "ended_jobs", "past_jobs")}
    slurmds = {names: tuple(lines) for names, lines in seen["slurmds"].items()}
    return Booted(**{**seen, **lists, "nodes": nodes, "slurmds": slurmds})


def _with_whole(seen: Booted, whole: float) -> Booted:
    rest = whole - sum(seen.seconds.values())
    return Booted(**{**seen.__dict__, "seconds": {"namespaces": round(rest, 3), **seen.seconds}})
