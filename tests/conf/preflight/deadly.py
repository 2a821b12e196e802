"""Configurations that no cluster should meet: each is a small good one with one thing wrong."""

GOOD = {
    "slurm.conf": """\
SlurmctldHost=ctl-1
ClusterName=small
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmctldPidFile=/run/slurm/slurmctld.pid
ProctrackType=proctrack/linuxproc
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu,shard
Include nodes.conf
PartitionName=all Nodes=a-[1-4],b-1 Default=YES State=UP
""",
    "nodes.conf": """\
NodeName=a-[1-4] CPUs=8 RealMemory=1000 Gres=gpu:a100:2 State=UNKNOWN
NodeName=b-1 CPUs=8 RealMemory=1000 Gres=gpu:a10g:1,shard:4 State=UNKNOWN
""",
    "gres.conf": """\
AutoDetect=off
NodeName=a-[1-4] Name=gpu Type=a100 File=/dev/nvidia[0-1]
NodeName=b-1 Name=gpu Type=a10g File=/dev/nvidia0
NodeName=b-1 Name=shard Count=4
""",
}


def changed(path: str, before: str, after: str) -> dict[str, str]:
    """The good one with another text in one place."""
    assert before in GOOD[path]
    return {**GOOD, path: GOOD[path].replace(before, after)}


def added(line: str, path: str = "slurm.conf") -> dict[str, str]:
    """The good one with one more line."""
    return {**GOOD, path: f"{GOOD[path]}{line}\n"}


DEADLY = {
    "unknown node in a partition": changed("slurm.conf", "b-1 Default", "b-[1-2] Default"),
    "partition twice": added("PartitionName=all Nodes=a-1"),
    "node twice": added("NodeName=a-2 CPUs=8 RealMemory=1000", "nodes.conf"),
    "include of a file that is missing": added("Include missing.conf"),
    "include of an empty file": {**added("Include empty.conf"), "empty.conf": ""},
    "include of a file that is none of ours": {**added("Include odd.conf"), "odd.conf": "<html>\n"},
    "unknown key": added("PreemptParametres=youngest_first"),
    "value that is no number": added("SlurmctldTimeout=soon"),
    "unknown gres": changed("slurm.conf", "GresTypes=gpu,shard", "GresTypes=gpu"),
    "topology with an unknown node": {
        **added("TopologyPlugin=topology/tree"),
        "topology.conf": "SwitchName=s1 Nodes=a-[1-9],b-1\n",
    },
    "topology plugin without a topology": added("TopologyPlugin=topology/tree"),
    "no controller": changed("slurm.conf", "SlurmctldHost=ctl-1\n", ""),
    "unknown plugin": changed("slurm.conf", "select/cons_tres", "select/guesswork"),
    "unknown account of the daemons": changed("slurm.conf", "SlurmUser=slurm", "SlurmUser=nobody-here"),
    "bad host list": changed("nodes.conf", "a-[1-4]", "a-[1-4"),
    "no nodes at all": changed("slurm.conf", "Include nodes.conf\n", ""),
    "more memory words": changed(
        "nodes.conf", "RealMemory=1000 Gres=gpu:a100:2", "RealMemory=lots Gres=gpu:a100:2"
    ),
    "shards without gpus": changed("nodes.conf", "Gres=gpu:a10g:1,shard:4", "Gres=shard:4"),
    "shards without a record of their gpus": changed(
        "gres.conf", "NodeName=b-1 Name=gpu Type=a10g File=/dev/nvidia0\n", ""
    ),
    "more shards than their record has": changed("gres.conf", "Name=shard Count=4", "Name=shard Count=3"),
    "topology without a switch": {**added("TopologyPlugin=topology/tree"), "topology.conf": ""},
}
