"""The daemons: whether they answer, know each other, and are of releases that go together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpctools.doctor.check import checks, fold
from hpctools.doctor.installation import Accounting, Answer, LocalDaemon, Slurmdbd
from hpctools.doctor.model import Finding, Severity
from hpctools.slurm.types import Node
from hpctools.slurm.versions import (
    OLDEST,
    Release,
    parse_release,
    releases_between,
    spell_release,
    talks_to_older,
)

FEWEST_FILES = 4096
"""Each connection takes one. SchedMD's guide to high throughput asks for 8192."""


def controllers_answer(controllers: tuple[Answer, ...]) -> Iterator[Finding]:
    """A backup that is down is found out when the primary fails."""
    for answer in controllers:
        if not answer.up:
            yield Finding(
                f"slurmctld on {answer.host}",
                "it does not answer scontrol ping",
                "no other controller takes over while it is down, or it is the one that should have",
                f"on {answer.host}: systemctl status slurmctld, and the last lines of SlurmctldLogFile",
            )


def munge_accepts_its_own_credentials(credential: str) -> Iterator[Finding]:
    """Every message of Slurm carries one."""
    if credential:
        yield Finding(
            "munge",
            f"a credential made here is not accepted here: {credential}",
            "Slurm's daemons and commands trust each other by munge; nothing works from this host",
            "check that munged runs (systemctl status munge) and that /etc/munge/munge.key is the cluster's",
        )


def clocks_and_keys_agree(log: tuple[str, ...]) -> Iterator[Finding]:
    """munge refuses what is older than 5 minutes, or comes from the future."""
    skewed = _last(log, "Expired credential", "Rewound credential", "credential expired")
    if skewed:
        yield Finding(
            "clocks",
            f"slurmctld refused a message for its time: {skewed}",
            "munge credentials live 5 minutes; hosts whose clocks differ more are shut out",
            "synchronize all hosts' clocks (chronyc tracking), then restart slurmd on those that were off",
        )
    other_key = _last(log, "Invalid credential")
    if other_key:
        yield Finding(
            "munge.key",
            f"slurmctld refused a message for its key: {other_key}",
            "a host with another munge.key is shut out",
            "copy the controller's /etc/munge/munge.key to that host (owner munge, mode 0400); restart munge",
        )


def cluster_is_registered(config: Mapping[str, str], accounting: Accounting) -> Iterator[Finding]:
    """slurmctld that started before accounting was set up is not registered."""
    name = config.get("ClusterName", "")
    if accounting.cluster_hosts.get(name):
        return
    known = name in accounting.cluster_hosts
    yield Finding(
        f"cluster {name}",
        "slurmdbd knows it, and its slurmctld never registered" if known else "slurmdbd does not know it",
        "jobs are not accounted and limits on accounts do not hold",
        "restart slurmctld" if known else f"sacctmgr add cluster {name}, then restart slurmctld",
    )


def cluster_name_is_that_of_the_state(config: Mapping[str, str], state_of: str) -> Iterator[Finding]:
    """slurmctld stops at its next start when the state belongs to another cluster."""
    name = config.get("ClusterName", "")
    if state_of and state_of != name:
        yield Finding(
            "StateSaveLocation",
            f"its file clustername says {state_of!r}, and slurm.conf {name!r}",
            "slurmctld ends with CLUSTER NAME MISMATCH at its next start",
            "take the old ClusterName back; only for a cluster without jobs, remove the file",
        )


def slurmctld_does_not_give_up(log: tuple[str, ...]) -> Iterator[Finding]:
    """Its last words, if they are that it cannot go on."""
    fatal = _last(log, "fatal:", "MISMATCH")
    if "MISMATCH" in fatal:
        yield Finding(
            "slurmctld",
            f"its log says: {fatal}",
            "its state belongs to another cluster, or it ran before slurmdbd knew the cluster (ids differ)",
            "if the state has jobs, restore the ClusterName or database of it; else remove clustername there",
        )
    elif fatal:
        yield Finding(
            "slurmctld",
            f"its log says: {fatal}",
            "slurmctld ends on such words; nothing is scheduled until it runs again",
            "correct what it names, then start slurmctld",
        )


def releases_go_together(
    release: Release, config: Mapping[str, str], slurmdbd: Slurmdbd, nodes: tuple[Node, ...]
) -> Iterator[Finding]:
    """slurmdbd first, then slurmctld, then slurmd: the newer one may not be further down."""
    controller = parse_release(config["SLURM_VERSION"])
    if parse_release(slurmdbd.version)[:2] < controller[:2]:
        yield _mismatch(
            "slurmdbd", f"it is {slurmdbd.version}, and slurmctld {spell_release(controller)}",
            "a slurmdbd does not understand a newer slurmctld", "upgrade slurmdbd first",
        )  # fmt: skip
    if release[:2] > controller[:2] or not talks_to_older(controller, release):
        yield _mismatch(
            "commands here", f"they are {spell_release(release)}, and slurmctld {spell_release(controller)}",
            "commands must be of the controller's release or a little older",
            f"install {spell_release(controller)} on this host",
        )  # fmt: skip
    yield from _slurmds(controller, nodes)


def _slurmds(controller: Release, nodes: tuple[Node, ...]) -> Iterator[Finding]:
    by_version: dict[str, list[str]] = {}
    for node in nodes:
        if node.version:
            by_version.setdefault(node.version, []).append(node.name)
    for version, names in sorted(by_version.items()):
        theirs = parse_release(version)
        if theirs[:2] > controller[:2]:
            said = "a slurmd must not be newer than slurmctld"
        elif not talks_to_older(controller, theirs):
            said = (
                f"it is {releases_between(theirs, controller)} releases behind; slurmctld understands fewer"
            )
        else:
            continue
        seen = f"slurmd is {version}, and slurmctld {spell_release(controller)}"
        yield _mismatch(fold(names), seen, said, f"install {spell_release(controller)} on these nodes")


def _mismatch(subject: str, seen: str, why: str, remedy: str) -> Finding:
    return Finding(subject, seen, f"{why}; messages are refused", remedy)


def release_is_supported(release: Release) -> Iterator[Finding]:
    """What is older was never tested."""
    if release < OLDEST:
        yield Finding(
            "Slurm",
            f"it is {spell_release(release)}",
            f"hpctools knows {spell_release(OLDEST)} and later",
            "upgrade Slurm",
            Severity.WARNING,
        )


def daemons_may_open_enough_files(daemons: tuple[LocalDaemon, ...]) -> Iterator[Finding]:
    """Out of descriptors, they answer nobody."""
    for daemon in daemons:
        if daemon.open_files is not None and daemon.open_files < FEWEST_FILES:
            yield Finding(
                f"{daemon.name} (pid {daemon.pid})",
                f"it may open {daemon.open_files} files",
                "each connection takes one; when many nodes or users ask at once it stops answering",
                f"LimitNOFILE=65536 in the unit of {daemon.name}, then restart it",
                Severity.WARNING,
            )


def _last(log: tuple[str, ...], *words: str) -> str:
    return next((line for line in reversed(log) if any(word in line for word in words)), "")


CHECKS = checks(
    (controllers_answer, "controllers"),
    (munge_accepts_its_own_credentials, "credential"),
    (clocks_and_keys_agree, "log"),
    (cluster_is_registered, "config accounting"),
    (cluster_name_is_that_of_the_state, "config state_of"),
    (slurmctld_does_not_give_up, "log"),
    (releases_go_together, "release config slurmdbd nodes"),
    (release_is_supported, "release"),
    (daemons_may_open_enough_files, "daemons"),
)
