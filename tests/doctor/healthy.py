"""An installation that nothing is wrong with."""

from hpctools.doctor.installation import (
    Accounting,
    Answer,
    ConfFile,
    Installation,
    LocalDaemon,
    Secret,
    Slurmdbd,
    StateFolder,
)
from hpctools.slurm.types import Node, Partition

NOW = 1_795_274_000
CONFIG = {
    "ClusterName": "uni-gpu",
    "SlurmUser": "slurm(64030)",
    "SLURM_VERSION": "24.11.5",
    "HASH_VAL": "Match",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageEnforce": "associations,limits,qos,safe",
    "AccountingStoreFlags": "job_comment",
    "AccountingStorageTRES": "cpu,mem,energy,node,billing,gres/gpu,gres/shard",
    "TaskPlugin": "task/affinity,task/cgroup",
    "ProctrackType": "proctrack/cgroup",
    "TopologyPlugin": "topology/tree",
    "PrologFlags": "Alloc,Contain",
    "PrivateData": "cloud",
    "ReturnToService": "2",
    "MessageTimeout": "30 sec",
    "JobContainerType": "job_container/tmpfs",
}
FILES = (
    ConfFile("slurm.conf", "ClusterName=uni-gpu\nInclude accounting.conf\n"),
    ConfFile("accounting.conf", "AccountingStorageEnforce=associations,limits,qos,safe\n"),
    ConfFile("gres.conf", "AutoDetect=off\nNodeName=shared-[1-2] Name=gpu File=/dev/nvidia[0-3]\n"),
    ConfFile("cgroup.conf", "ConstrainDevices=yes\nConstrainCores=yes  # both\n"),
    ConfFile("topology.conf", "SwitchName=s1 Nodes=reserved-[1-2],shared-[1-2]\n"),
    ConfFile("job_container.conf", "BasePath=/var/lib/containers\n"),
    ConfFile("slurmdbd.conf", None, owner="slurm", mode=0o600),
    ConfFile("jwt.key", None, owner="slurm", mode=0o400),
)
NODES = (
    Node("reserved-1", "IDLE", gres={"gpu:a100": 8}, version="24.11.5", address="reserved-1"),
    Node("reserved-2", "MIXED", ("DRAIN",), "new fans, back on Monday", gres={"gpu:a100": 8}),
    Node("shared-1", "ALLOCATED", gres={"gpu:a10g": 4, "shard": 16}, version="24.05.1"),
    Node("shared-2", "IDLE", ("CLOUD", "POWERED_DOWN"), gres={"gpu:a10g": 4, "shard": 16}),
)
HEALTHY = Installation(
    now=NOW,
    folder="/etc/slurm",
    release=(24, 11, 5),
    controllers=(Answer("slurmctld", "ctl-1", True), Answer("slurmctld", "ctl-2", True)),
    config=CONFIG,
    nodes=NODES,
    partitions=(
        Partition("nlp", 4, nodes=("reserved-1", "shared-1"), allow_accounts=("nlp",), allow_qos=("high",)),
        Partition("whole", 1, nodes=("reserved-1",), exclusive=True),
    ),
    jobs=frozenset({7, 8}),
    unended=frozenset({7}),
    slurmdbd=Slurmdbd("24.11.5", NOW, NOW - 3000, NOW - 90_000),
    accounting=Accounting(
        cluster_hosts={"uni-gpu": "10.0.0.1"},
        qos=frozenset({"normal", "high"}),
        accounts={"root": (), "nlp": ("nlp-head",)},
        members=frozenset({("nlp-head", "nlp"), ("nlp1", "nlp")}),
        default_accounts={"nlp-head": "nlp", "nlp1": "nlp"},
    ),
    credential="",
    files=FILES,
    secrets=(Secret("/etc/munge/munge.key", "munge", 0o400),),
    state=StateFolder("/var/spool/slurmctld", "slurm", 0o700, 10 * 1024**3, 1_000_000, "ext4"),
    state_of="uni-gpu",
    unresolved=(),
    read_at=NOW - 60.5,
    log=("[2026-11-21T15:00:00.000] Running as primary controller",),
    daemons=(LocalDaemon("slurmctld", 12, 65536, None), LocalDaemon("slurmd", 13, None, None)),
    adopts=("/etc/pam.d/sshd",),
    strangers=(),
    paths={"/var/lib/containers": True},
    rdma=True,
)


def config(**changes: str) -> dict[str, dict[str, str]]:
    """The change that gives slurmctld other settings."""
    return {"config": {**CONFIG, **changes}}


def files(*changes: ConfFile, without: str = "") -> dict[str, tuple[ConfFile, ...]]:
    """The change that puts other files into the folder."""
    named = {file.path: file for file in (*FILES, *changes) if file.path != without}
    return {"files": tuple(named.values())}


def node(*args: object, **more: object) -> dict[str, tuple[Node, ...]]:
    """The change that adds a node, which the topology has."""
    return {"nodes": (*NODES[:1], *NODES[2:], Node("reserved-2", *args, **more))}  # type: ignore[arg-type]
