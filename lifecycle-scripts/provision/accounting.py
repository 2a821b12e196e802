"""Accounting: the database, slurmdbd.conf, slurmdbd, the cluster registered before slurmctld's first start.

A slurmctld that starts before slurmdbd knows its cluster makes up an id of its own, and refuses to start with
CLUSTER ID MISMATCH later.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provision import database
from provision.failures import Failure
from provision.files import STATE, on_node, read_json, read_text, write_whole
from provision.processes import Done
from provision.secret import read_secret
from provision.services import start
from provision.slurm_conf import agent_accounts, conf_path, folder, read_conf, values
from provision.step import Context
from provision.telling import sacctmgr, tell_all
from provision.unix import ids_of

START_SECONDS = 60.0
_LINE = re.compile(r"\s*([A-Za-z]+)\s*=.*")
# What sacctmgr needs to know of the agent's slurm.conf to find slurmdbd; the rest is slurmctld's.
_CLIENT_KEYS = ("ClusterName", "SlurmctldHost", "SlurmUser", "AuthType", "AuthInfo", "PluginDir")


def is_wanted(context: Context) -> bool:
    """Whether this node is the one that accounts: the primary controller of a site that wants it."""
    return bool(context.settings.section("accounting")) and context.is_primary


def is_done(context: Context) -> bool:
    """Whether slurmdbd runs, its file is private and the site's, and it knows the cluster."""
    if not is_wanted(context):
        return True
    path = folder(context) / "slurmdbd.conf"
    try:
        if agent_accounts(read_conf(context)):
            return _cluster(context) in _clusters(context).out.split()
        found, text = path.stat(), path.read_text(encoding="utf-8")
        private = found.st_mode & 0o7777 == 0o600 and (found.st_uid, found.st_gid) == _owner(context)
        cluster = _cluster(context)
    except (OSError, Failure):
        return False
    return private and _is_the_sites(context, text) and cluster in _clusters(context).out.split()


def do(context: Context) -> None:
    """Set all of it up.

    Raises:
        Failure: a part of it cannot be had; what was done before stays, and the next run goes on from there.
    """
    if not agent_accounts(read_conf(context)):
        _set_up(context)
    _wait_for_slurmdbd(context)
    tell_all(prepared(context)["bootstrap"], _client_conf(context))


def _set_up(context: Context) -> None:
    login = dict(context.settings.section("accounting"))
    password = _prepare_database(login)
    template = read_text(context.settings.folder / "slurm/slurmdbd.conf", "the site's slurmdbd.conf")
    text = slurmdbd_conf(template, context.node, login, password)
    if write_whole(folder(context) / "slurmdbd.conf", text, 0o600, _owner(context)):
        print("wrote slurmdbd.conf (0600)")
    _make_folders(context, text)
    start("slurmdbd")


def prepared(context: Context) -> Mapping[str, Any]:
    """Return what slurmdbd is to be told.

    Raises:
        Failure: the bundle lacks it.
    """
    found = read_json(context.settings.folder / "slurm/associations.json", "the site's accounts")
    if not isinstance(found, dict):
        raise Failure("the site's accounts are damaged: bundle and upload again", hopeless=True)
    return found


def slurmdbd_conf(template: str, node: str, login: Mapping[str, Any], password: str) -> str:
    """Return slurmdbd.conf: the site's, with this host, this database and its password.

    Args:
        template: as the site was compiled.
        node: this host's short name.
        login: endpoint (empty for a database here), port, name and user.
        password: of the database user; empty for the Unix socket, which tells who asks.
    """
    remote = bool(login.get("endpoint"))
    ours = {
        "DbdHost": node,
        "DbdAddr": "",
        "StorageHost": login["endpoint"] if remote else "localhost",
        "StoragePort": str(login.get("port") or 3306) if remote else "",
        "StorageLoc": login["name"],
        "StorageUser": login["user"],
        "StoragePass": _quoted(password) if password else "",
    }
    lower = {key.lower() for key in ours}
    kept = [line for line in template.splitlines() if not _is_key(line, lower)]
    return "\n".join([*kept, *(f"{key}={value}" for key, value in ours.items() if value)]) + "\n"


def _is_key(line: str, keys: set[str]) -> bool:
    match = _LINE.fullmatch(line)
    return match is not None and match[1].lower() in keys


def _quoted(password: str) -> str:
    """Slurm's files know no escape: a value with blanks or `#` stands in quotes, a quote cannot be said."""
    if not password.isprintable() or '"' in password or "\\" in password:
        raise Failure(
            "the database password has a quote, backslash or line break: give it another", hopeless=True
        )
    return f'"{password}"' if re.search(r"[\s#'=,]", password) else password


def _prepare_database(login: dict[str, Any]) -> str:
    """Have a database that can be used; return its password, and put the secret's user into `login`."""
    if not login.get("endpoint"):
        database.serve_locally(login["name"], login["user"])
        return ""
    database.wait_for(login["endpoint"], int(login.get("port") or 3306))
    secret = read_secret(login["secret"])
    if not secret.get("password"):
        raise Failure(f"the secret {login['secret']} has no password")
    login["user"] = secret.get("username") or login["user"]
    return secret["password"]


def _owner(context: Context) -> tuple[int, int]:
    return ids_of(context.settings.section("slurm").get("user", "slurm"))


def _make_folders(context: Context, text: str) -> None:
    """Where slurmdbd writes its log and process id."""
    for stated in (*values(text, "LogFile"), *values(text, "PidFile")):
        place = on_node(stated).parent
        if not place.exists():
            place.mkdir(parents=True)
            os.chown(place, *_owner(context))


def _is_the_sites(context: Context, text: str) -> bool:
    """Whether it is what would be written now; a secret is not fetched again to compare."""
    template = read_text(context.settings.folder / "slurm/slurmdbd.conf", "the site's slurmdbd.conf")
    login = context.settings.section("accounting")
    wanted = slurmdbd_conf(template, context.node, login, "")
    secret = {"storagepass", "storageuser"} if login.get("endpoint") else set[str]()
    lines = ([line for line in each.splitlines() if not _is_key(line, secret)] for each in (text, wanted))
    return next(lines) == next(lines)


def _cluster(context: Context) -> str:
    """The agent's name of the cluster, which is what slurmctld will call itself."""
    return next(values(read_conf(context), "ClusterName"), "").lower()


def _client_conf(context: Context) -> Path:
    """A slurm.conf for sacctmgr alone, since the node's own does not tell of slurmdbd before our Include.

    Where the agent keeps the accounts, its own slurm.conf tells.
    """
    current = read_conf(context)
    if agent_accounts(current):
        return conf_path(context)
    lines = [f"{key}={value}" for key in _CLIENT_KEYS for value in values(current, key)]
    port = context.settings.section("accounting").get("slurmdbd_port") or 6819
    lines += ["AccountingStorageType=accounting_storage/slurmdbd", f"AccountingStorageHost={context.node}"]
    path = on_node(STATE) / "slurmdbd-client.conf"
    write_whole(path, "\n".join([*lines, f"AccountingStoragePort={port}"]) + "\n", 0o600)
    return path


def _clusters(context: Context) -> Done:
    words = ("--noheader", "--parsable2", "show", "cluster", "format=cluster")
    return sacctmgr(*words, slurm_conf=_client_conf(context), limit=10)


def _wait_for_slurmdbd(context: Context) -> None:
    until = time.monotonic() + START_SECONDS
    while (done := _clusters(context)).code != 0:
        if time.monotonic() > until:
            raise Failure(f"slurmdbd does not answer: {done.last_words}; see its log")
        time.sleep(0.3)
