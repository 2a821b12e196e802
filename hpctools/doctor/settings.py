"""Settings that surprise: valid for Slurm, and not what their site meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from hpctools.doctor.check import checks, fold
from hpctools.doctor.conf_lines import settings
from hpctools.doctor.installation import Accounting, ConfFile, LocalDaemon
from hpctools.doctor.model import Finding, Severity
from hpctools.elastic_qos import ELASTIC_QOS
from hpctools.slurm.types import Node
from hpctools.slurm.versions import hides_powered_down_nodes, parse_release, preempts_youngest_first

SHORTEST_TIMEOUT, LONGEST_TIMEOUT = (
    10,
    100,
)  # seconds; slurm.conf(5): default 10, more than 100 is advised against


def limits_are_enforced(config: Mapping[str, str]) -> Iterator[Finding]:
    """Without these words Slurm only counts."""
    if "slurmdbd" not in config.get("AccountingStorageType", ""):
        yield Finding(
            "AccountingStorageType",
            f"it is {config.get('AccountingStorageType', 'not set')}",
            "without slurmdbd there are no accounts, no limits, no fair share and no past",
            "set up slurmdbd, AccountingStorageType=accounting_storage/slurmdbd, then restart slurmctld",
        )
        return
    enforced = set(config.get("AccountingStorageEnforce", "none").lower().split(","))
    implied = {"limits": {"associations"}, "qos": {"associations"}, "safe": {"associations", "limits"}}
    enforced |= {word for each in enforced for word in implied.get(each, set())}
    missing = [] if "all" in enforced else [w for w in ("associations", "limits", "qos") if w not in enforced]
    if missing:
        yield Finding(
            "AccountingStorageEnforce",
            f"it lacks {', '.join(missing)}",
            "people without an account run jobs, or limits and QoS of accounts do not hold",
            "AccountingStorageEnforce=associations,limits,qos,safe, then restart slurmctld",
        )


def sleeping_nodes_are_shown(config: Mapping[str, str], nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """Cloud nodes that sleep are hidden from everybody, in releases that do that."""
    if not hides_powered_down_nodes(parse_release(config["SLURM_VERSION"])):
        return
    cloud = [node.name for node in nodes if "CLOUD" in node.flags]
    if cloud and "cloud" not in config.get("PrivateData", "").lower().split(","):
        yield Finding(
            "PrivateData",
            f"it lacks cloud, and {fold(cloud)} may be powered down",
            "powered-down cloud nodes are missing from sinfo, so that people think that they are gone",
            "PrivateData=cloud, then scontrol reconfigure",
            Severity.WARNING,
        )


def nodes_come_back_by_themselves(config: Mapping[str, str], nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """ReturnToService 0 keeps every node down that once was."""
    value = config.get("ReturnToService", "0")
    cloud = any("CLOUD" in node.flags for node in nodes)
    if value == "0" or (value == "1" and cloud):
        yield Finding(
            "ReturnToService",
            f"it is {value}" + (", and there are cloud nodes" if cloud else ""),
            "a node that was down for a reboot or a network fault stays down until somebody resumes it",
            "ReturnToService=2, then scontrol reconfigure",
            Severity.WARNING,
        )


def sessions_can_be_adopted(config: Mapping[str, str], adopts: tuple[str, ...]) -> Iterator[Finding]:
    """pam_slurm_adopt needs the step that PrologFlags=contain makes."""
    flags = config.get("PrologFlags", "").lower()
    if adopts and "contain" not in flags and "x11" not in flags:
        yield Finding(
            ", ".join(adopts),
            f"pam_slurm_adopt is called, and PrologFlags is {config.get('PrologFlags', 'not set')}",
            "there is no step to adopt an ssh session into: people are refused, or escape their job's limits",
            "PrologFlags=contain, then restart slurmctld and all slurmds (when no job runs there)",
        )


def job_containers_have_their_folder(
    config: Mapping[str, str], files: tuple[ConfFile, ...], paths: Mapping[str, bool]
) -> Iterator[Finding]:
    """job_container/tmpfs ends every job's start without its BasePath."""
    kind = config.get("JobContainerType") or config.get("NamespaceType") or ""
    if not kind.endswith("tmpfs"):
        return
    base = settings(files, "job_container.conf").get("basepath", "")
    if not base:
        yield Finding(
            "job_container.conf",
            f"{kind} is on, and there is no BasePath",
            "slurmd does not start, or no job does",
            "BasePath=/a/local/folder in job_container.conf on all nodes",
        )
    elif paths.get(base) is False and settings(files, "job_container.conf").get("autobasepath") != "true":
        yield Finding(
            base,
            "it is BasePath of job_container.conf, and is not there",
            "no job starts on a node without it",
            f"mkdir -p {base} on every node, or AutoBasePath=true",
            Severity.WARNING,
        )


def messages_have_time(config: Mapping[str, str]) -> Iterator[Finding]:
    """MessageTimeout: too short drops messages under load, too long hides faults."""
    found = re.match(r"\d+", config.get("MessageTimeout", ""))
    seconds = int(found[0]) if found else SHORTEST_TIMEOUT
    if not SHORTEST_TIMEOUT <= seconds <= LONGEST_TIMEOUT:
        yield Finding(
            "MessageTimeout",
            f"it is {seconds} s",
            "shorter than 10 s loses messages of a busy controller; longer than 100 s leaves faults unseen",
            "MessageTimeout=30, then scontrol reconfigure",
            Severity.WARNING,
        )


def host_names_resolve(unresolved: tuple[str, ...]) -> Iterator[Finding]:
    """slurmctld asks for every node's address at its start."""
    if unresolved:
        yield Finding(
            fold(unresolved),
            "the name does not resolve on this host",
            "nothing reaches it, and slurmctld 22.05 stands still for 10 s for each such name at every start",
            "add the names to DNS or /etc/hosts, or NodeAddr= to their lines",
        )


def locked_memory_is_not_limited(daemons: tuple[LocalDaemon, ...], rdma: bool) -> Iterator[Finding]:
    """Jobs inherit slurmd's hard limit."""
    for daemon in daemons:
        if rdma and daemon.name == "slurmd" and daemon.locked_memory is not None:
            yield Finding(
                f"slurmd (pid {daemon.pid})",
                f"it may lock {daemon.locked_memory // 1024} KiB of memory",
                "jobs inherit it, and RDMA (InfiniBand, EFA) fails in them with odd words",
                "LimitMEMLOCK=infinity in slurmd's unit, then restart it",
                Severity.WARNING,
            )


def the_youngest_replica_is_preempted_first(
    config: Mapping[str, str], accounting: Accounting
) -> Iterator[Finding]:
    """Elastic runs count on it, where there is a QoS for their replicas."""
    kind = config.get("PreemptType", "").rpartition("/")[2].lower()
    preempts = kind in ("qos", "partition_prio") and ELASTIC_QOS in accounting.qos
    if preempts and not preempts_youngest_first(config):
        yield Finding(
            "PreemptParameters",
            f"it lacks youngest_first, and there is a QoS {ELASTIC_QOS}",
            "an urgent job takes replicas by priority, so one without which the younger ones are of no use",
            "PreemptParameters=youngest_first (before 23.02 SchedulerParameters=preempt_youngest_first), "
            "then scontrol reconfigure",
            Severity.WARNING,
        )


def comments_are_accounted(config: Mapping[str, str], accounting: Accounting) -> Iterator[Finding]:
    """All jobs of an elastic run have one comment, by which a report can add them up."""
    kept = config.get("AccountingStoreFlags", "").lower().replace(" ", "").split(",")
    if ELASTIC_QOS in accounting.qos and "job_comment" not in kept:
        yield Finding(
            "AccountingStoreFlags",
            f"it lacks job_comment, and there is a QoS {ELASTIC_QOS}",
            "slurmdbd does not learn which jobs are of one elastic run (their comment, hp-run:...), so that "
            "the site's own reports show each by itself; hp-status --accounting knows them all the same",
            "AccountingStoreFlags=job_comment, with the words that are there, then scontrol reconfigure",
            Severity.WARNING,
        )


CHECKS = checks(
    (limits_are_enforced, "config"),
    (sleeping_nodes_are_shown, "config nodes"),
    (nodes_come_back_by_themselves, "config nodes"),
    (sessions_can_be_adopted, "config adopts"),
    (job_containers_have_their_folder, "config files paths"),
    (messages_have_time, "config"),
    (host_names_resolve, "unresolved"),
    (locked_memory_is_not_limited, "daemons rdma"),
    (the_youngest_replica_is_preempted_first, "config accounting"),
    (comments_are_accounted, "config accounting"),
)
