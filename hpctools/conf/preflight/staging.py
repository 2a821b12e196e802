"""From a configuration to the one that a throwaway slurmctld boots: pure.

Only where things lie is changed, value by value, so that the numbers of lines stay: slurmctld's words then
name the lines of the original. What it cannot have without slurmdbd is changed by `accounting.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hpctools.conf.preflight.accounting import Accounting, without_slurmdbd
from hpctools.conf.preflight.rewriting import Edit, edited, to
from hpctools.conf.preflight.statements import Folder, cluster_name, first, statements
from hpctools.slurm.throwaway.places import KEY_FILE, MUNGE_SOCKET, PRIVATE, STATE

# Never handed over: slurmctld does not read the first, and the other is a secret; it gets a stand-in.
_LEFT_OUT = ("slurmdbd.conf", KEY_FILE)
# Programs that slurmctld itself may start (slurm.conf(5)).
_PROGRAMS = (
    "epilogslurmctld",
    "mailprog",
    "prologslurmctld",
    "rebootprogram",
    "resumefailprogram",
    "resumeprogram",
    "slurmctldprimaryoffprog",
    "slurmctldprimaryonprog",
    "suspendprogram",
)
_PLACES = {
    "StateSaveLocation": STATE,
    "SlurmctldPidFile": f"{PRIVATE}/slurmctld.pid",
    "SlurmctldLogFile": f"{PRIVATE}/slurmctld.log",
    "SlurmSchedLogFile": f"{PRIVATE}/sched.log",
}
_NEEDED_PLACES = ("StateSaveLocation", "SlurmctldPidFile")
_INCLUDE = re.compile(r"^(\s*include\s+)(\S+)", re.IGNORECASE)


@dataclass(frozen=True)
class Staged:
    """What is booted.

    Attributes:
        files: texts by path relative to the configuration folder.
        host: the host name that slurmctld must find itself on.
        addresses: names and addresses that mean this controller.
        user: the Unix account that slurmctld becomes.
        tres: what slurmdbd would be asked to count.
        programs: programs of the site that slurmctld must not start.
        key: whether the daemons authenticate with a key file instead of munge.
        not_checked: what the changes keep from being checked, a sentence each.
    """

    files: Mapping[str, str]
    host: str
    addresses: tuple[str, ...]
    user: str
    tres: tuple[str, ...]
    programs: tuple[str, ...]
    key: bool
    not_checked: tuple[str, ...]


def stage(files: Mapping[str, str], folder: str, *, account: str, accounting: Accounting | None) -> Staged:
    """Make a configuration bootable apart from everything that lives.

    Args:
        files: texts by path relative to the configuration folder; slurm.conf among them.
        folder: where the files are meant to lie; Includes may name it.
        account: the Unix account that slurmctld must stay, when it cannot become SlurmUser; "" when it can.
        accounting: what the live slurmctld remembers of slurmdbd; None goes without slurmdbd.
    """
    kept = {path: text for path, text in files.items() if path not in _LEFT_OUT}
    found = list(statements(kept, folder))
    place = Folder(folder, cluster_name(kept))
    edits, not_checked = _edits(kept, folder, account=account, accounting=accounting)
    staged = {path: edited(_included(text, place), edits) for path, text in kept.items()}
    stated = {key for each in found for key in each.words}
    added = [f"\n{key}={_PLACES[key]}" for key in _NEEDED_PLACES if key.lower() not in stated]
    staged["slurm.conf"] += "".join([*added, "\n"])
    host, *addresses = [part for part in re.split(r"[()]", first(found, "slurmctldhost")) if part] or [""]
    return Staged(
        files=staged,
        host=host or "localhost",
        addresses=(host, *addresses) if host else (),
        user=account or first(found, "slurmuser", "root"),
        tres=_tres(first(found, "accountingstoragetres")),
        programs=tuple(dict.fromkeys(filter(None, (first(found, key) for key in _PROGRAMS)))),
        key=first(found, "authtype") == "auth/slurm",
        not_checked=("slurmdbd.conf: slurmctld does not read it",) * ("slurmdbd.conf" in files) + not_checked,
    )


def _edits(
    files: Mapping[str, str], folder: str, *, account: str, accounting: Accounting | None
) -> tuple[dict[str, Edit], tuple[str, ...]]:
    found = list(statements(files, folder))
    edits: dict[str, Edit] = {key: to(place) for key, place in _PLACES.items()}
    edits["AuthInfo"] = lambda value: re.sub(r"socket=[^,]*", f"socket={MUNGE_SOCKET}", value)
    not_checked: list[str] = []
    if account:
        edits["SlurmUser"] = to(account)
        not_checked.append("SlurmUser: only root can become it, and this ran as another account")
    if first(found, "jobcomptype").lower() not in ("", "jobcomp/none"):
        edits["JobCompType"] = to("jobcomp/none")
        not_checked.append("JobCompType: records of ended jobs are the site's, so none are written here")
    if first(found, "accountingstoragetype").lower().endswith("slurmdbd"):
        more, said = accounting.edits(found) if accounting else without_slurmdbd()
        return {**edits, **more}, (*not_checked, *said)
    return edits, tuple(not_checked)


def _included(text: str, folder: Folder) -> str:
    return "\n".join(_included_lines(text, folder))


def _included_lines(text: str, folder: Folder) -> Iterator[str]:
    for line in text.split("\n"):
        found = _INCLUDE.match(line)
        yield found[1] + folder.staged(found[2]) + line[found.end() :] if found else line


def _tres(stated: str) -> tuple[str, ...]:
    """What slurmdbd would be asked to count; with GPUs, releases from 23.02 ask for their use, too."""
    words = [word for word in stated.lower().split(",") if word]
    return (*words, *(("gres/gpumem", "gres/gpuutil") if "gres/gpu" in words else ()))
