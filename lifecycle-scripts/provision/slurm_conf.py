"""slurm.conf, which HyperPod's agent writes and owns: where it is, what is in it, our one Include line.

The folder may be a link to one of a release; a new release brings a new folder, which lacks our file and
line, so every look resolves the link anew.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

from provision.failures import Failure
from provision.files import STATE, on_node, read_text, write_whole
from provision.step import Context

INCLUDE = "hpctools.conf"
INCLUDE_LINE = f"Include {INCLUDE}"
WAIT_SECONDS = 840.0
QUIET_SECONDS = 10.0
PATIENCE_SECONDS = 60.0  # the agent may be about to write it again
_BACKUP = "slurm.conf.agent"
_KEY = re.compile(r"\s*([A-Za-z]+)\s*=\s*(\S*)")


def folder(context: Context) -> Path:
    """Slurm's configuration folder, with its links resolved."""
    return on_node(context.settings.section("slurm").get("folder", "/opt/slurm/etc")).resolve()


def conf_path(context: Context) -> Path:
    """Where slurm.conf is."""
    return folder(context) / "slurm.conf"


def read_conf(context: Context) -> str:
    """Return slurm.conf.

    Raises:
        Failure: it is not there.
    """
    return read_text(conf_path(context), "slurm.conf of HyperPod's agent")


def values(text: str, key: str) -> Iterator[str]:
    """Yield what each line that begins with a key says of it."""
    for line in text.splitlines():
        match = _KEY.match(line)
        if match and match[1].lower() == key.lower():
            yield match[2]


def is_complete(text: str, *, nodes: bool = True) -> bool:
    """Whether the agent has finished writing: a cluster, a controller, nodes, and a last line that ends."""
    needed = ("ClusterName", "SlurmctldHost", *(("NodeName",) if nodes else ()))
    return text.endswith("\n") and all(next(values(text, key), None) for key in needed)


def is_written(context: Context) -> bool:
    """Whether slurm.conf is there and complete.

    Without nodes, which may all come later, the file itself cannot tell: then nobody writes it any more.
    """
    try:
        text = read_conf(context)
        quiet = abs(time.time() - conf_path(context).stat().st_mtime) > QUIET_SECONDS
    except (Failure, OSError):
        return False
    return is_complete(text) or (quiet and is_complete(text, nodes=False))


def wait_until_written(
    context: Context, seconds: float = WAIT_SECONDS, patience: float = PATIENCE_SECONDS
) -> None:
    """Wait for the agent; bring back what it wrote when this ran last, if that was deleted.

    A slurmd that is restarted on the head node deletes slurm.conf, and nobody writes it again.

    Args:
        seconds: it may take so long the first time.
        patience: it may take so long where it was there before.

    Raises:
        Failure: there is none, and there never was one.
    """
    begin = time.monotonic()
    while not is_written(context):
        waited = time.monotonic() - begin
        if waited > patience and _bring_back(context):
            return
        if waited > seconds:
            raise Failure(
                f"{conf_path(context)} was not written within {seconds:.0f} s: HyperPod's agent has not set "
                "up Slurm; see /var/log/aws/clusters/sagemaker-cluster-agent.log"
            )
        time.sleep(0.5)


def _bring_back(context: Context) -> bool:
    """Bring back the file that was there before, if there was one and nothing is there now."""
    backup = on_node(STATE) / _BACKUP
    if conf_path(context).exists() or not backup.exists():
        return False
    print(f"{conf_path(context)} has been deleted: bringing back what HyperPod's agent had written")
    write_whole(conf_path(context), read_text(backup, "copy of slurm.conf"))
    return True


def agent_accounts(text: str) -> bool:
    """Whether the agent itself keeps the accounts: HyperPod was given a database (AccountingDatabase)."""
    return "accounting_storage/slurmdbd" in values(without_include(text), "AccountingStorageType")


def keep_backup(text: str) -> None:
    """Keep a copy of a complete slurm.conf."""
    if is_complete(text):
        write_whole(on_node(STATE) / _BACKUP, text, 0o600)


def with_include(text: str) -> str:
    """Return slurm.conf with our Include as its last line, once: what is said later wins."""
    if not text.endswith("\n"):
        text += "\n"
    return without_include(text) + f"{INCLUDE_LINE}\n"


def without_include(text: str) -> str:
    """Return slurm.conf without it."""
    ours = re.compile(rf"\s*include\s+(\S*/)?{re.escape(INCLUDE)}\s*", re.IGNORECASE)
    return "".join(line for line in text.splitlines(keepends=True) if not ours.fullmatch(line))
