"""The whole preflight: stage, boot, judge."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hpctools.conf.preflight.accounting import Accounting
from hpctools.conf.preflight.boot import boot, has_slurmd
from hpctools.conf.preflight.expected import expected
from hpctools.conf.preflight.folder import with_outside
from hpctools.conf.preflight.judge import judge, lost_jobs
from hpctools.conf.preflight.judge import unasked as unasked_slurmds
from hpctools.conf.preflight.model import Problem, Verdict
from hpctools.conf.preflight.names import unresolved
from hpctools.conf.preflight.node_gres import NodeTry, tries
from hpctools.conf.preflight.staging import Staged, stage
from hpctools.conf.preflight.statements import statements
from hpctools.errors import HpctoolsError
from hpctools.slurm.throwaway.place import Place
from hpctools.slurm.throwaway.seen import Booted


def preflight(
    files: Mapping[str, str],
    *,
    folder: Path = Path("/etc/slurm"),
    state: Path | None = None,
    coming: frozenset[str] = frozenset(),
    root: Path = Path("/"),
    place: Place | None = None,
) -> Verdict:
    """Boot a configuration with a throwaway slurmctld and say whether it may go live.

    Nothing of the machine is written, no daemon is contacted, and nothing remains.

    Args:
        files: texts by path relative to the configuration folder; of a bundle
            `{file.path: file.text for file in bundle.files}`, with what else lies in the folder.
        folder: where they are meant to lie.
        state: the live slurmctld's StateSaveLocation, if there is one that we may read: the configuration is
            then booted with a copy of its nodes, jobs and associations.
        coming: names of QoS and accounts that slurmdbd will be told of before this goes live.
        root: where Slurm is installed, when that is not this system itself.
        place: where to boot it, begun earlier to save time; one of our own when None.

    Raises:
        HpctoolsError: there is no slurm.conf, or the throwaway daemons could not be arranged.
        UnreachableError: this machine has no slurmctld, or lets us make no namespaces.
    """
    if "slurm.conf" not in files:
        raise HpctoolsError("there is no slurm.conf to try", "name a site file or a folder that has one")
    with place or Place() as there:
        return _tried(there, with_outside(files, folder, root), folder, state, coming, root)


def _tried(
    place: Place,
    files: Mapping[str, str],
    folder: Path,
    state: Path | None,
    coming: frozenset[str],
    root: Path,
) -> Verdict:
    began = time.monotonic()
    memory = _memory(state)
    accounting = Accounting(memory, coming) if memory else None
    account = str(os.geteuid()) if os.geteuid() else ""
    staged = stage(files, str(folder), account=account, accounting=accounting)
    wanted = expected(list(statements(staged.files, str(folder))))
    asked, silent = _slurmds(staged, folder, root)
    seen = boot(
        place, staged, nodes=len(wanted.nodes), asked=asked, state=state if memory else None, root=root
    )
    nameless, unasked = unresolved(_controllers(staged, folder), socket.gethostname())
    problems = (*nameless, *judge(wanted, seen, str(folder), past=memory is not None))
    verdict = _verdict(seen, problems, (*staged.not_checked, *unasked, *silent, *unasked_slurmds(seen)))
    return replace(verdict, seconds={**seen.seconds, "all": round(time.monotonic() - began, 3)})


def _controllers(staged: Staged, folder: Path) -> list[str]:
    found = statements(staged.files, str(folder))
    return [each.words["slurmctldhost"] for each in found if "slurmctldhost" in each.words]


def _slurmds(staged: Staged, folder: Path, root: Path) -> tuple[tuple[NodeTry, ...], tuple[str, ...]]:
    asked, silent = tries(staged.files, str(folder))
    if asked and not has_slurmd(root):
        return (), ("gres.conf as slurmds read it: there is no slurmd on this machine",)
    return asked, silent


def _memory(state: Path | None) -> bytes | None:
    """What the live slurmctld remembers of slurmdbd; None when it has not yet run, or we may not read it."""
    try:
        return (state / "assoc_mgr_state").read_bytes() if state else None
    except OSError:
        return None


def _verdict(seen: Booted, problems: tuple[Problem, ...], not_checked: tuple[str, ...]) -> Verdict:
    return Verdict(
        release=seen.release,
        problems=problems,
        not_checked=not_checked,
        nodes=len(seen.nodes),
        partitions=len(seen.partitions),
        lost_jobs=lost_jobs(seen),
    )
