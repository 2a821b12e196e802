"""The configuration folder: whether it is what runs, whole, and closed to whom it must be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from hpctools.doctor.check import checks, fold
from hpctools.doctor.conf_lines import includes, lines, settings, with_includes
from hpctools.doctor.installation import ConfFile, Secret
from hpctools.doctor.model import Finding, Severity
from hpctools.slurm.parse import unfold
from hpctools.slurm.types import Node
from hpctools.slurm.versions import Release, outdated_settings, spell_release

READ_BY_SLURMCTLD = ("slurm.conf", "gres.conf", "cgroup.conf", "topology.conf", "topology.yaml")
OTHERS = 0o077
_IN_YAML = re.compile(r"^\s*(?:-\s+)?nodes:\s*[\"']?([^\"'\n#]+)", re.MULTILINE)
_DIFFERS = re.compile(r"[Nn]ode (\S+) appears to have a different slurm\.conf")


def files_are_what_slurmctld_read(read_at: float, files: tuple[ConfFile, ...]) -> Iterator[Finding]:
    """A file that changed after slurmctld read it."""
    ours = {file.path: file for name in READ_BY_SLURMCTLD for file in with_includes(files, name)}
    # Slurm's times may be in whole seconds: a file of the same second may have been read.
    late = [file.path for file in ours.values() if file.there and file.changed >= read_at + 1]
    if late:
        yield Finding(
            ", ".join(late),
            f"changed after slurmctld read its configuration ({datetime.fromtimestamp(read_at):%F %T})",
            "what runs is not what the files say; the next restart or reconfigure brings it in unasked",
            "look at the difference (hpctools plan), then scontrol reconfigure or restart slurmctld",
            Severity.WARNING,
        )


def commands_read_what_slurmctld_runs(config: Mapping[str, str]) -> Iterator[Finding]:
    """`HASH_VAL`: slurm.conf here against slurmctld's."""
    value = config.get("HASH_VAL", "Match")
    if value not in ("Match", "Different Ours=0x0"):
        yield Finding(
            "slurm.conf here",
            f"it is not the one that slurmctld runs with ({value})",
            "commands and daemons of this host act by another configuration",
            "bring the files here up to date, or scontrol reconfigure if the controller's are behind",
            Severity.WARNING,
        )


def nodes_have_the_same_slurm_conf(log: tuple[str, ...]) -> Iterator[Finding]:
    """slurmctld says at each registration whether a node's slurm.conf differs."""
    names = {found[1] for line in log if (found := _DIFFERS.search(line))}
    if names:
        yield Finding(
            fold(names),
            "slurmctld says that it has a different slurm.conf",
            "slurmd there acts by old settings: ports, GPUs, prologs; jobs fail in odd ways",
            "with configless nodes: scontrol reconfigure; else copy the files there and restart slurmd",
        )


def includes_are_there_and_say_something(files: tuple[ConfFile, ...]) -> Iterator[Finding]:
    """A missing Include ends slurmctld; an empty one is a parse error in its log."""
    by_path = {file.path: file for file in files}
    for file in files:
        for name in includes(file):
            included = by_path.get(name)
            if included is None or not included.there:
                yield _include(file, name, "is not there", "slurmctld does not start, and no command works")
            elif included.text is not None and not list(lines(included.text)) and not includes(included):
                yield _include(
                    file, name, "says nothing", "Slurm takes an empty file for an error of parsing"
                )


def _include(file: ConfFile, name: str, seen: str, why: str) -> Finding:
    remedy = f"write it (a comment and one setting), or take the Include out of {file.path}"
    return Finding(file.path, f"it includes {name}, which {seen}", why, remedy)


def slurmdbd_conf_is_closed(config: Mapping[str, str], files: tuple[ConfFile, ...]) -> Iterator[Finding]:
    """slurmdbd refuses a file that others may read, or that is not its own."""
    owners = {config.get("SlurmUser", "slurm").partition("(")[0], "root"}
    for file in files:
        if file.path != "slurmdbd.conf" or not file.there:
            continue
        if file.mode & OTHERS or file.owner not in owners:
            yield Finding(
                file.path,
                f"it is {file.owner}'s and has mode {file.mode:04o}",
                "it holds the database's password, and slurmdbd does not start with it",
                f"chown {min(owners - {'root'}, default='root')} and chmod 600 it",
            )


def secrets_are_closed(secrets: tuple[Secret, ...], files: tuple[ConfFile, ...]) -> Iterator[Finding]:
    """Who has a key is everybody on the cluster."""
    keys = [(secret.path, secret.mode, secret.owner) for secret in secrets]
    keys += [
        (file.path, file.mode, file.owner) for file in files if file.path.endswith(".key") and file.there
    ]
    for path, mode, owner in keys:
        if mode & OTHERS:
            yield Finding(
                path,
                f"it is {owner}'s and has mode {mode:04o}",
                "whoever reads this key can be anybody on the cluster, root too",
                f"chmod 400 {path}; make a new key on all hosts if somebody may have read it",
            )
    for file in files:
        if file.path != "slurmdbd.conf" and file.mode & 0o004 and "storagepass" in _keys(file):
            yield Finding(
                file.path,
                f"it holds StoragePass and has mode {file.mode:04o}",
                "everybody can read the database's password",
                "move the password to slurmdbd.conf (mode 0600), and change it in the database",
            )


def _keys(file: ConfFile) -> set[str]:
    return {key for pairs in lines(file.text or "") for key in pairs}


def topology_has_every_node(
    config: Mapping[str, str], files: tuple[ConfFile, ...], nodes: tuple[Node, ...]
) -> Iterator[Finding]:
    """Nodes that no switch has get no job with others."""
    by_path = {file.path: file for file in files if file.there}
    described = by_path.get("topology.yaml")
    if described is not None and described.text is not None and not described.text.strip():
        yield Finding(
            "topology.yaml",
            "it is empty",
            "slurmctld 25.11 crashes when it reads it",
            "remove it, or describe the topology",
        )
        return
    plugin = config.get("TopologyPlugin", "")
    if described is not None:
        yield from _uncovered(described, plugin, _IN_YAML.findall(described.text or ""), nodes)
    elif plugin.endswith(("/tree", "/block")):
        file = by_path.get("topology.conf", ConfFile("topology.conf", "", there=False))
        named = [pairs["nodes"] for pairs in lines(file.text or "") if "nodes" in pairs]
        yield from _uncovered(file, plugin, named, nodes)


def _uncovered(file: ConfFile, plugin: str, named: list[str], nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """The nodes that a topology file forgets; a topology.yaml that names none at all may be flat."""
    covered = {name for names in named for name in unfold(names.strip())}
    missing = [node.name for node in nodes if node.name not in covered]
    if file.text is None or not missing or (file.path == "topology.yaml" and not covered):
        return
    said = f"no switch or block of it has {fold(missing)}" if covered else f"{plugin} is on without it"
    yield Finding(
        file.path,
        said,
        "jobs that need these nodes together with others are rejected or wait for ever",
        f"add the nodes to {file.path}, then scontrol reconfigure",
    )


def settings_are_of_this_release(release: Release, files: tuple[ConfFile, ...]) -> Iterator[Finding]:
    """Words that the release's manual no longer has."""
    for path in ("slurm.conf", "cgroup.conf"):
        old = sorted(set(settings(files, path)) & outdated_settings(release))
        if old:
            yield Finding(
                path,
                f"it sets {', '.join(old)}, which the manual of {spell_release(release)} no longer has",
                "an outdated setting is ignored, warned about, or ends the daemons after an upgrade",
                f"see {path}(5) of this release for what took its place, and take it out",
                Severity.WARNING,
            )


CHECKS = checks(
    (files_are_what_slurmctld_read, "read_at files"),
    (commands_read_what_slurmctld_runs, "config"),
    (nodes_have_the_same_slurm_conf, "log"),
    (includes_are_there_and_say_something, "files"),
    (slurmdbd_conf_is_closed, "config files"),
    (secrets_are_closed, "secrets files"),
    (topology_has_every_node, "config files nodes"),
    (settings_are_of_this_release, "release files"),
)
