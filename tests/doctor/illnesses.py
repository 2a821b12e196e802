"""What can be wrong: check, the change that makes a healthy installation sick, subject and words of the finding."""

# ruff: noqa: E501 -- one line for each illness, to be read as a table

from dataclasses import replace
from typing import Any

from hpctools.doctor.installation import Accounting, Answer, ConfFile, LocalDaemon, Secret, Slurmdbd
from hpctools.slurm.types import Partition
from tests.doctor.healthy import HEALTHY, NODES, NOW, config, files, node

OLD = {
    "release": (22, 5, 8),
    "slurmdbd": Slurmdbd("22.05.8", NOW, NOW, NOW),
    "nodes": tuple(each for each in NODES if not each.version),
}
TREE = "- topology: t\n  tree:\n    switches:\n      - switch: s\n        nodes: reserved-[1-2]  # all\n"
ACCOUNTING: Any = HEALTHY.accounting
STATE: Any = HEALTHY.state
LATE = NOW - 59.5  # a second after slurmctld read its files


def accounting(**changes: Any) -> dict[str, Accounting]:
    return {"accounting": replace(ACCOUNTING, **changes)}


def partition(**changes: Any) -> dict[str, tuple[Partition, ...]]:
    return {"partitions": (Partition("cv", 1, **changes),)}


def said(line: str) -> dict[str, tuple[str, ...]]:
    return {"log": (f"[2026-11-21T15:00:05.000] {line}",)}


SICK: list[tuple[str, dict[str, Any], str, str]] = [
    # check, what is sick, subject, words of what was seen
    ("controllers-answer", {"controllers": (Answer("slurmctld", "ctl-2", False),)}, "slurmctld on ctl-2", "ping"),
    ("munge-accepts-its-own-credentials", {"credential": "munge: Expired"}, "munge", "munge: Expired"),
    ("clocks-and-keys-agree", said("error: Munge decode failed: Rewound credential"), "clocks", "Rewound"),
    ("clocks-and-keys-agree", said("error: Munge decode failed: Invalid credential"), "munge.key", "Invalid"),
    ("slurmctld-does-not-give-up", said("fatal: CLUSTER ID MISMATCH."), "slurmctld", "CLUSTER ID MISMATCH"),
    ("slurmctld-does-not-give-up", said("fatal: Invalid node n9"), "slurmctld", "Invalid node n9"),
    ("cluster-is-registered", accounting(cluster_hosts={"other": "x"}), "cluster uni-gpu", "does not know it"),
    ("cluster-is-registered", accounting(cluster_hosts={"uni-gpu": ""}), "cluster uni-gpu", "never registered"),
    ("cluster-name-is-that-of-the-state", {"state_of": "old"}, "StateSaveLocation", "'old'.*'uni-gpu'"),
    ("releases-go-together", {"slurmdbd": Slurmdbd("24.05.2", NOW, NOW, NOW)}, "slurmdbd", "24.05.2.*24.11.5"),
    ("releases-go-together", {"release": (25, 5, 0)}, "commands here", "25.05.0.*24.11.5"),
    ("releases-go-together", node("IDLE", version="25.05.1"), "reserved-2", "slurmd is 25.05.1"),
    ("releases-go-together", node("IDLE", version="22.05.8"), "reserved-2", "slurmd is 22.05.8"),
    ("daemons-may-open-enough-files", {"daemons": (LocalDaemon("slurmdbd", 5, 1024, None),)}, "slurmdbd (pid 5)", "1024 files"),
    ("nodes-are-valid", node("IDLE", ("DRAIN", "INVALID_REG"), "gres/gpu count reported lower than configured (4 < 8)"), "reserved-2", r"4 < 8"),
    ("nodes-are-valid", node("DOWN", ("INVALID_REG",), "gpu:a100_1g.5gb count too low (3 < 4)"), "reserved-2", r"3 < 4"),
    ("nodes-are-valid", node("DOWN", ("INVALID_REG",), "Low RealMemory"), "reserved-2", "Low RealMemory"),
    ("nodes-are-up", node("DOWN", ("CLOUD",), "InsufficientInstanceCapacity"), "reserved-2", "is down: Insuff"),
    ("nodes-are-up", node("DOWN", (), "ResumeTimeout reached"), "reserved-2", "ResumeTimeout"),
    ("nodes-are-up", node("DOWN"), "reserved-2", "nobody said why"),
    ("nodes-wake-up", node("DOWN", ("CLOUD", "POWERED_DOWN"), "stuck"), "reserved-2", "down~.*stuck"),
    ("nodes-respond", node("IDLE", ("NOT_RESPONDING",)), "reserved-2", "does not answer"),
    ("nodes-registered", node("UNKNOWN"), "reserved-2", "has not heard of it"),
    ("nodes-are-drained-by-people", node("IDLE", ("DRAIN",), "Kill task failed"), "reserved-2", "Kill task"),
    ("files-are-what-slurmctld-read", files(ConfFile("accounting.conf", "A=b", changed=LATE)), "accounting.conf", "changed after"),
    ("commands-read-what-slurmctld-runs", config(HASH_VAL="Different Ours=0xa Slurmctld=0xb"), "slurm.conf here", "0xa"),
    ("nodes-have-the-same-slurm-conf", said("error: Node shared-1 appears to have a different slurm.conf than the slurmctld.  This"), "shared-1", "different"),
    ("includes-are-there-and-say-something", files(without="accounting.conf"), "slurm.conf", "accounting.conf, which is not there"),
    ("includes-are-there-and-say-something", files(ConfFile("accounting.conf", None, there=False)), "slurm.conf", "is not there"),
    ("includes-are-there-and-say-something", files(ConfFile("accounting.conf", "# later\n")), "slurm.conf", "says nothing"),
    ("slurmdbd-conf-is-closed", files(ConfFile("slurmdbd.conf", None, owner="slurm", mode=0o640)), "slurmdbd.conf", "0640"),
    ("slurmdbd-conf-is-closed", files(ConfFile("slurmdbd.conf", None, owner="nlp1", mode=0o600)), "slurmdbd.conf", "nlp1's"),
    ("secrets-are-closed", {"secrets": (Secret("/etc/munge/munge.key", "munge", 0o444),)}, "/etc/munge/munge.key", "0444"),
    ("secrets-are-closed", files(ConfFile("jwt.key", None, mode=0o640)), "jwt.key", "0640"),
    ("secrets-are-closed", files(ConfFile("db.conf", "StoragePass=x", mode=0o644)), "db.conf", "StoragePass"),
    ("topology-has-every-node", files(ConfFile("topology.conf", "SwitchName=s Nodes=shared-[1-2]")), "topology.conf", r"reserved-\[1-2\]"),
    ("topology-has-every-node", files(without="topology.conf"), "topology.conf", "is on without it"),
    ("topology-has-every-node", files(ConfFile("topology.yaml", TREE)), "topology.yaml", r"has shared-\[1-2\]"),
    ("topology-has-every-node", files(ConfFile("topology.yaml", "\n")), "topology.yaml", "it is empty"),
    ("settings-are-of-this-release", files(ConfFile("cgroup.conf", "CgroupAutomount=yes\nConstrainDevices=yes")), "cgroup.conf", "cgroupautomount"),
    ("shared-gpus-have-records", files(ConfFile("gres.conf", "NodeName=shared-1 Name=gpu\nName=shard Count=16")), "shared-2", "no gpu record"),
    ("shared-gpus-are-not-exclusive", partition(nodes=("shared-1",), exclusive=True), "partition cv", "shared-1 has GPUs"),
    ("gpus-are-accounted", config(AccountingStorageTRES="cpu,gres/gpu:a100"), "AccountingStorageTRES", "gres/shard"),
    ("jobs-see-their-gpus-only", config(TaskPlugin="task/none"), "TaskPlugin", "task/none.*constraincores, constraindevices"),
    ("jobs-see-their-gpus-only", files(ConfFile("cgroup.conf", "ConstrainDevices=no")), r"reserved-[1-2],shared-[1-2]", "ConstrainDevices is off"),
    ("limits-are-enforced", config(AccountingStorageEnforce="limits"), "AccountingStorageEnforce", "it lacks qos"),
    ("limits-are-enforced", config(AccountingStorageEnforce="none"), "AccountingStorageEnforce", "associations, limits, qos"),
    ("limits-are-enforced", config(AccountingStorageType="(null)"), "AccountingStorageType", "it is"),
    ("sleeping-nodes-are-shown", {**OLD, **config(SLURM_VERSION="22.05.8", PrivateData="jobs,usage")}, "PrivateData", "shared-2 may be powered down"),
    ("nodes-come-back-by-themselves", config(ReturnToService="1"), "ReturnToService", "it is 1, and there are cloud"),
    ("sessions-can-be-adopted", config(PrologFlags="Alloc"), "/etc/pam.d/sshd", "PrologFlags is Alloc"),
    ("job-containers-have-their-folder", {"paths": {"/var/lib/containers": False}}, "/var/lib/containers", "is not there"),
    ("job-containers-have-their-folder", files(without="job_container.conf"), "job_container.conf", "no BasePath"),
    ("messages-have-time", config(MessageTimeout="5 sec"), "MessageTimeout", "5 s"),
    ("messages-have-time", config(MessageTimeout="300 sec"), "MessageTimeout", "300 s"),
    ("host-names-resolve", {"unresolved": ("n1", "n2")}, "n[1-2]", "does not resolve"),
    ("locked-memory-is-not-limited", {"daemons": (LocalDaemon("slurmd", 5, None, 65536),)}, "slurmd (pid 5)", "64 KiB"),
    ("people-have-a-default-account", accounting(default_accounts={"nlp1": "nlp"}), "user nlp-head", "no default"),
    ("people-have-a-default-account", accounting(default_accounts={"nlp-head": "nlp", "nlp1": "cv"}), "user nlp1", "cv"),
    ("partitions-name-known-qos", partition(allow_qos=("normal", "hihg")), "partition cv", "AllowQos names hihg"),
    ("partitions-name-known-accounts", partition(allow_accounts=("nlp", "cv")), "partition cv", "names cv"),
    ("coordinators-are-people-of-the-cluster", accounting(accounts={"nlp": ("gone", "nlp1")}), "account nlp", "gone is in no"),
    ("people-have-a-unix-account", {"strangers": ("eve",)}, "users", "knows eve"),
    ("state-has-room", {"state": replace(STATE, free_bytes=1024**2)}, "/var/spool/slurmctld", "1 MiB"),
    ("state-has-room", {"state": replace(STATE, free_inodes=10)}, "/var/spool/slurmctld", "10 files"),
    ("state-is-slurms-alone", {"state": replace(STATE, owner="root")}, "/var/spool/slurmctld", "root's.*slurm"),
    ("state-is-slurms-alone", {"state": replace(STATE, mode=0o777)}, "/var/spool/slurmctld", "0777"),
    ("state-is-slurms-alone", {"state": replace(STATE, mode=0o755)}, "/var/spool/slurmctld", "0755"),
    ("state-outlives-a-reboot", {"state": replace(STATE, kind="tmpfs")}, "/var/spool/slurmctld", "tmpfs"),
    ("usage-is-summed-up", {"slurmdbd": Slurmdbd("24.11.5", NOW, NOW - 7200, NOW - 90_000)}, "slurmdbd", "120 minutes"),
    ("usage-is-summed-up", {"slurmdbd": Slurmdbd("24.11.5", NOW, None, NOW - 7200)}, "slurmdbd", "120 minutes"),
    ("no-job-runs-away", {"unended": frozenset({7, 99})}, "slurmdbd", "1 jobs.*: 99"),
    ("release-is-supported", {"release": (21, 8, 2), **config(SLURM_VERSION="21.08.2"), "nodes": NODES[1:2] + NODES[3:]}, "Slurm", "21.08.2"),
    ("the-youngest-replica-is-preempted-first", {**config(PreemptType="preempt/qos", PreemptParameters="reorder_count=2"), **accounting(qos=frozenset({"normal", "high", "elastic"}))}, "PreemptParameters", "lacks youngest_first.*QoS elastic"),
    ("comments-are-accounted", {**config(AccountingStoreFlags="job_script"), **accounting(qos=frozenset({"normal", "high", "elastic"}))}, "AccountingStoreFlags", "lacks job_comment.*QoS elastic"),
    ("comments-are-accounted", {**config(AccountingStoreFlags="(null)"), **accounting(qos=frozenset({"normal", "high", "elastic"}))}, "AccountingStoreFlags", "lacks job_comment"),
]  # fmt: skip
