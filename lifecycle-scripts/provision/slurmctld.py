"""The controller: slurmctld with the configuration that is there now, and never slurmd.

A slurmd that is restarted on the head node deletes slurm.conf. slurmctld is restarted only for what it does
not take over while it runs; for all else it is told to read its files again, which reaches workers too.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from pathlib import Path
from typing import NoReturn

from provision.failures import Failure
from provision.files import STATE, is_so, on_node, write_whole
from provision.members import node_line
from provision.processes import call, must
from provision.services import drop_in, drop_in_path, is_active
from provision.slurm_conf import (
    INCLUDE,
    conf_path,
    folder,
    keep_backup,
    read_conf,
    values,
    without_include,
)
from provision.step import Context

UP_SECONDS = 60.0
SETTLE_SECONDS = 3.0  # a start that fails is seen to have failed after this
LOG_LINES = 50
NEVER = """\
# Made by hpctools' lifecycle scripts: a slurmd that is restarted on a controller deletes slurm.conf.
[Unit]
ConditionPathIsDirectory=!/
"""
_FILES = ("slurm.conf", INCLUDE, "gres.conf", "cgroup.conf", "job_container.conf", "topology.conf")
# What slurmctld takes over at a start only (slurm.conf(5)).
_AT_START = (
    "AccountingStorageType",
    "AccountingStorageHost",
    "AccountingStoragePort",
    "AuthType",
    "GresTypes",
    "JobAcctGatherType",
    "PreemptType",
    "PriorityType",
    "ProctrackType",
    "SchedulerType",
    "SelectType",
)


def is_done(context: Context) -> bool:
    """Whether slurmctld runs with these files, and slurmd cannot start."""
    if not is_so(on_node(drop_in_path("slurmd")), NEVER) or is_active("slurmd"):
        return False
    running = _running()
    return running is not None and is_so(_note_path(), _note(context, running))


def do(context: Context) -> None:
    """Start slurmctld, or have it read what is new.

    Raises:
        Failure: it does not run with our Include; it goes on with the one before, or without.
    """
    _never_slurmd(context)
    before = _running()
    if before is None or _needs_start(context, before):
        print("starting slurmctld")
        call(["systemctl", "enable", "slurmctld"], limit=30)
        call(["systemctl", "restart", "slurmctld"], limit=UP_SECONDS)
    running = _wait() or _start_without_other_id(context) or _go_back(context)
    if before is not None or _taken_path().exists():
        # Nodes keep what they fetched until they are told to fetch it again, also when slurmctld had ended.
        print("slurmctld and the nodes read their configuration again")
        taken = call(["scontrol", "reconfigure"], limit=UP_SECONDS).code == 0
        # One that cannot read it ends (22.05), or says so and goes on with what it had (23.11 and later).
        running = (_wait() if taken else None) or _go_back(context)
    write_whole(_taken_path(), _read(folder(context) / INCLUDE), 0o600)
    write_whole(_note_path(), _note(context, running), 0o600)


def forget() -> None:
    """Void the note of what slurmctld has read: its files are about to change, or had changed meanwhile.

    The agent may have had it read a slurm.conf without our Include; putting that back does not tell it.
    """
    _note_path().unlink(missing_ok=True)


def _running() -> dict[str, str] | None:
    """The configuration that slurmctld runs with; None when it does not answer."""
    if not is_active("slurmctld"):
        return None
    done = call(["scontrol", "show", "config"], limit=20)
    if done.code != 0:
        return None
    pairs = (line.partition("=") for line in done.out.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _wait() -> dict[str, str] | None:
    """Wait until slurmctld answers; None when it does not."""
    until = time.monotonic() + UP_SECONDS
    while (running := _running()) is None and time.monotonic() < until:
        if not is_active("slurmctld") and time.monotonic() > until - UP_SECONDS + SETTLE_SECONDS:
            return None
        time.sleep(0.2)
    return running


def _needs_start(context: Context, running: dict[str, str]) -> bool:
    """Whether the files say something else about what is taken over at a start only."""
    text = "\n".join(_read(folder(context) / name) for name in ("slurm.conf", INCLUDE))
    for key in _AT_START:
        stated = list(values(text, key))
        if stated and stated[-1].lower() != running.get(key.lower(), "").lower():
            print(f"{key} is {running.get(key.lower(), 'unset')} and shall be {stated[-1]}")
            return True
    return _has_other_nodes(text)


def _has_other_nodes(text: str) -> bool:
    """Whether nodes have come or gone: releases to 23.02 take that over at a start only, or end."""
    told = call(["scontrol", "show", "node", "--oneliner"], limit=60)
    known = set(re.findall(r"(?m)^NodeName=(\S+)", told.out))
    lines = (node_line(line) for line in text.splitlines())
    stated = {name for line in lines if line for name in line.names}
    if told.code == 0 and stated != known:
        print(f"nodes have come ({len(stated - known)}) or gone ({len(known - stated)})")
        return True
    return False


def _never_slurmd(context: Context) -> None:
    drop_in("slurmd", NEVER)
    if is_active("slurmd"):
        text = read_conf(context)
        keep_backup(without_include(text))
        must(["systemctl", "stop", "slurmd"], limit=60)
        if not conf_path(context).exists():
            print("stopping slurmd has deleted slurm.conf: it is back")
            write_whole(conf_path(context), text)


def _start_without_other_id(context: Context) -> dict[str, str] | None:
    """Start again without the id that slurmctld made up before slurmdbd knew the cluster.

    The file that holds it is kept under another name. It also guards against two clusters that share a
    folder: one of another name stays.

    Returns:
        What runs now; None when the id was not the reason, or nothing runs still.
    """
    if "CLUSTER ID MISMATCH" not in _last_log_lines(context):
        return None
    place = next(values(read_conf(context), "StateSaveLocation"), "/var/spool/slurmctld")
    path = on_node(place) / "clustername"
    name = next(values(read_conf(context), "ClusterName"), "")
    if not path.exists() or re.split(r"[|\s]", _read(path))[0].lower() != name.lower():
        return None
    print(f"{path} has an id that slurmctld made up before slurmdbd knew the cluster: starting without it")
    path.replace(path.with_name("clustername.before-accounting"))
    call(["systemctl", "restart", "slurmctld"], limit=UP_SECONDS)
    return _wait()


def _last_log_lines(context: Context) -> str:
    """What slurmctld said last, in its log or to systemd."""
    found = ""
    for stated in values(read_conf(context), "SlurmctldLogFile"):
        found += "\n".join(_read(on_node(stated)).splitlines()[-LOG_LINES:])
    if shutil.which("journalctl"):
        found += call(["journalctl", "-u", "slurmctld", "-n", str(LOG_LINES), "--no-pager"], limit=10).out
    return found


def _go_back(context: Context) -> NoReturn:
    """Go on with the Include that slurmctld took last, or without one, and say so.

    Without it the departments' partitions are gone, and slurmctld ends the jobs in them: the last resort.

    Raises:
        Failure: always.
    """
    lines = [line for line in _last_log_lines(context).splitlines() if "specified more than once" not in line]
    said = [line for word in ("error:", "fatal:") for line in lines if word in line]
    why = said[-1] if said else "see its log"
    before, path = _read(_taken_path()), folder(context) / INCLUDE
    if before and before != _read(path):
        write_whole(path, before)
        if _restarted():
            raise Failure(f"slurmctld does not run with this {INCLUDE}, and runs with that of before: {why}")
    write_whole(conf_path(context), without_include(read_conf(context)))
    state = "runs without it" if _restarted() else "does not run without it either"
    raise Failure(
        f"slurmctld does not run with {INCLUDE}, which is out of slurm.conf again; it {state}: {why}"
    )


def _restarted() -> bool:
    call(["systemctl", "restart", "slurmctld"], limit=UP_SECONDS)
    return _wait() is not None


def _taken_path() -> Path:
    return on_node(STATE) / f"{INCLUDE}.taken"


def _note_path() -> Path:
    return on_node(STATE) / "slurmctld.json"


def _note(context: Context, running: dict[str, str]) -> str:
    """Which files this very slurmctld has read: another start of it, or other files, and the note is void."""
    texts = "\0".join(_read(folder(context) / name) for name in _FILES)
    digest = hashlib.sha256(texts.encode()).hexdigest()
    return json.dumps({"started": running.get("boot_time", ""), "files": digest}) + "\n"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
