"""Nodes that come later: a service on the controllers that runs the steps of Slurm's files when these change.

HyperPod runs the lifecycle scripts on a new node only. On the controller nobody else would put that node into
the site's partitions, nor our Include back into a slurm.conf that the agent has written anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from provision.failures import Failure
from provision.files import is_so, on_node, write_whole
from provision.services import is_active, reload_units, start
from provision.step import Context

PLACE = "/opt/hpctools/lifecycle"
UNIT = "hpctools-follow"
UNIT_TEXT = f"""\
# Made by hpctools' lifecycle scripts.
[Unit]
Description=Keeps the site's part of Slurm's configuration as HyperPod's nodes come and go
After=network.target munge.service
[Service]
ExecStart=/usr/bin/python3 {PLACE}/follow_nodes.py
Restart=always
RestartSec=10
[Install]
WantedBy=multi-user.target
"""


def is_done(context: Context) -> bool:
    """Whether the service runs, with these very scripts."""
    kept = is_so(on_node(_unit_path()), UNIT_TEXT) and _digest(on_node(PLACE)) == _digest(_bundle())
    return kept and is_active(UNIT)


def do(context: Context) -> None:
    """Copy the scripts to where a reboot leaves them, and start the service anew.

    Raises:
        Failure: they cannot be copied, or it does not start.
    """
    if _digest(on_node(PLACE)) != _digest(_bundle()):
        _copy(_bundle(), on_node(PLACE))
    if write_whole(on_node(_unit_path()), UNIT_TEXT, 0o644):
        reload_units()
    start(UNIT)


def _unit_path() -> str:
    return f"/etc/systemd/system/{UNIT}.service"


def _bundle() -> Path:
    return Path(os.environ["HPCTOOLS_BUNDLE"])


def _digest(folder: Path) -> str:
    """Stands for all files of a folder; empty where there is none."""
    if not folder.is_dir():
        return ""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _copy(source: Path, target: Path) -> None:
    """Copy a folder; a copy that was interrupted is no copy, since its digest differs."""
    new = target.with_name(f"{target.name}.new")
    try:
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(source, new, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.rmtree(target, ignore_errors=True)
        new.rename(target)
    except OSError as error:
        raise Failure(f"{target} cannot be written: {error.strerror or error}") from None
