"""What differs between Slurm releases; the only place that knows.

Supported: 22.05 to 26.05. A release is a tuple such as `(24, 11)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Release = tuple[int, ...]
CoordinatorWay = Literal["together", "loaded", "afterwards"]
"""Calls at the same time, a part of the file that `sacctmgr load` reads, or one call after the other."""

OLDEST: Release = (22, 5)


def parse_release(text: str) -> Release:
    """Parse a release as Slurm writes it: `"24.11"`, `"22.05.8"`, or the whole of `slurm-wlm 22.05.8`.

    Raises:
        ValueError: it is none.
    """
    words = text.split()
    numbers = words[-1].split(".") if words else []
    if len(numbers) < 2 or not all(number.isdecimal() for number in numbers):
        raise ValueError(f"{text!r} is not a Slurm release")
    return tuple(int(number) for number in numbers)


def spell_release(release: Release) -> str:
    """Spell a release as Slurm does: `(22, 5, 8)` becomes `22.05.8`."""
    return ".".join([f"{number:02}" for number in release[:2]] + [str(number) for number in release[2:]])


def knows_preempt_parameters(release: Release) -> bool:
    """Whether slurm.conf has PreemptParameters (23.02 shows it; 22.05.8 stops at it, measured).

    Before, the same words stand in SchedulerParameters with `preempt_` in front.
    """
    return release >= (23, 2)


def preempts_youngest_first(config: Mapping[str, str]) -> bool:
    """Whether slurmctld takes the youngest of jobs that are as good as each other: it is told so.

    Before PreemptParameters was there the word stood in SchedulerParameters, with a prefix; that is still
    taken (docs/slurm-releases.md).

    Args:
        config: as `scontrol show config` tells.
    """
    words = f"{config.get('PreemptParameters', '')},{config.get('SchedulerParameters', '')}".lower()
    return bool({"youngest_first", "preempt_youngest_first"} & set(words.replace(" ", "").split(",")))


def knows_cgroup_disabled(release: Release) -> bool:
    """Whether cgroup.conf accepts `CgroupPlugin=disabled` (cgroup.conf(5) of 24.05; not in that of 23.02).

    Earlier releases do without cgroups when no plugin asks for them.
    """
    return release >= (24, 5)


def prints_nodes_as_json(release: Release) -> bool:
    """Whether `scontrol show node --json` exists (from 23.02; 22.05.8 refuses the option, measured).

    Jobs are read as text from every release: `squeue --json` of 22.05.8 ignores --jobs and --user, and later
    ones print 8 kB a job where 0.2 are wanted (measured). So are partitions and the configuration, whose
    values hold no free text.
    """
    return release >= (23, 2)


def reconfigure_starts_anew(release: Release) -> bool:
    """Whether `scontrol reconfigure` starts every daemon anew and keeps the old one when that fails.

    scontrol(1) of 24.11: "starting in 23.11"; all but listening ports and authentication changes by it.
    Before, some settings need a restart, and an added or removed node ends slurmctld there (22.05.8: "fatal:
    MaxNodeCount has changed during reconfig, slurmctld must be restarted", measured).

    A slurmctld in the foreground (`-D`) has no old one to keep: what it refuses ends it on every release,
    while scontrol exits with 0 (measured).
    """
    return release >= (23, 11)


def changed_defaults(release: Release) -> dict[str, str]:
    """Settings of slurm.conf whose default is not today's, by key in lower case.

    `show config` of a slurmctld that was told nothing: 22.05.8 against 24.11.5 and 26.05.5, measured; when it
    changed in between is from the release notes of 23.11.
    """
    if release >= (23, 11):
        return {}
    return {"prioritytype": "priority/basic", "selecttype": "select/linear", "treewidth": "50"}


def tells_nodes_each_others_addresses(release: Release) -> bool:
    """Whether messages to cloud nodes may be passed on by other nodes, with any TreeWidth (from 23.11).

    Until then TreeWidth has to be as large as the cluster (Slurm's elastic_computing.html of 22.05 and 23.02;
    the advice is gone in 23.11).
    """
    return release >= (23, 11)


def hides_powered_down_nodes(release: Release) -> bool:
    """Whether powered-down cloud nodes are hidden, unless PrivateData says `cloud` (until 23.02).

    RELEASE_NOTES of 23.02: "Change cloud nodes to show by default. PrivateData=cloud is no longer needed."
    """
    return release < (23, 2)


def calls_job_containers_namespaces(release: Release) -> bool:
    """Whether slurm.conf says `NamespaceType=namespace/tmpfs` (slurm.conf(5) of 25.11).

    Before, `JobContainerType=job_container/tmpfs`; 26.05 warns of the old words.
    """
    return release >= (25, 11)


def knows_job_container_folders(release: Release) -> bool:
    """Whether job_container.conf has Dirs and Shared (its manual page of 23.02; not in that of 22.05)."""
    return release >= (23, 2)


def knows_block_sizes(release: Release) -> bool:
    """Whether topology/block takes BlockSizes (topology.conf(5) of 24.05; 23.11 had BlockLevels)."""
    return release >= (24, 5)


def reads_topology_yaml(release: Release) -> bool:
    """Whether a topology.yaml counts, instead of topology.conf and TopologyPlugin (topology.yaml(5), 25.05).

    26.05.5 does, without a word and with topology/flat in `show config`; 24.11.5 does not (measured).
    """
    return release >= (25, 5)


_RELEASES: tuple[Release, ...] = (
    *((22, 5), (23, 2), (23, 11)),
    *((24, 5), (24, 11), (25, 5), (25, 11), (26, 5)),
)


def releases_between(older: Release, newer: Release) -> int:
    """How many releases one is behind the other; what is older than 22.05 counts as one release more."""
    return sum(older[:2] < release <= newer[:2] for release in _RELEASES) + (older[:2] < OLDEST)


def talks_to_older(daemon: Release, older: Release) -> bool:
    """Whether a daemon understands messages of an older release, or of its own.

    Two releases back, and three from 24.11 on (Slurm's upgrade guide, "Compatibility Window").
    """
    return releases_between(older, daemon) <= (3 if daemon >= (24, 11) else 2)


_GONE_BY_24_11 = (
    *("CoreSpecPlugin", "ExtSensorsFreq", "ExtSensorsType", "LaunchType", "PowerParameters", "PowerPlugin"),
    *("RoutePlugin", "SlurmctldPlugstack", "CgroupAutomount", "ConstrainKmemSpace", "AllowedKmemSpace"),
    *("MaxKmemPercent", "MinKmemSpace"),
)
_GONE_BY_26_05 = (
    *("AccountingStorageUser", "BackupAddr", "BackupController", "ControlAddr", "ControlMachine"),
    *("FrontendAddr", "FrontendName", "GetEnvTimeout", "JobContainerType"),
)


def outdated_settings(release: Release) -> frozenset[str]:
    """Settings of slurm.conf and cgroup.conf that the manual pages of a release no longer have, lower case.

    Found by comparing the pages of 22.05.8, 24.11.5 and 26.05.5: a setting counts from the later page on.
    """
    gone = (_GONE_BY_24_11 if release >= (24, 11) else ()) + (_GONE_BY_26_05 if release >= (26, 5) else ())
    return frozenset(name.lower() for name in gone)


def nvml_names_slices_by_profile(release: Release) -> bool:
    """Whether AutoDetect=nvml takes a MIG slice's profile from NVML's name of it (gpu_nvml.c, from 23.02.6).

    Before, it is made of the compute slices and the measured memory, rounded: `3g.39gb` for a `3g.40gb`.
    """
    return release >= (23, 2, 6)


def knows_slices_beside_shares(release: Release) -> bool:
    """Whether one cluster may have MIG slices and shards or MPS (gres_c_s.c, from 23.02.7; not in 23.02.5).

    Before, the plugins of shards and MPS take every device file of a slice for a GPU, on every node: jobs
    that ask for slices stay pending or run without one (22.05.8, measured).
    """
    return release >= (23, 2, 7)


def gives_whole_nodes(partition: Mapping[str, str]) -> bool:
    """Whether a partition, as `scontrol show partition` has it, gives jobs whole nodes.

    24.11.5 shows `OverSubscribe=EXCLUSIVE`; 26.05.5 takes these words and shows `OverSubscribe=NO
    Exclusive=NODE` instead (measured). `Exclusive=TOPO` implies whole nodes, and is shown instead of NODE
    (read_config.c and partition_info.c of 26.05).
    """
    return partition.get("OverSubscribe") == "EXCLUSIVE" or partition.get("Exclusive") in ("NODE", "TOPO")


def column_of_whole_nodes(release: Release) -> tuple[str, str]:
    """Name the column of `squeue --Format` that shows a job that asked for whole nodes, and its word there.

    22.05.8 and 24.11.5 print `NO` as OverSubscribe; 26.05.5 prints that for every job and has `NODE` as
    Exclusive, which the others do not know (measured). 25.05 and 25.11 do as 24.11: what makes and prints
    the word is the same source from 24.11.5 to 25.11.7 and the new column came with 26.05.0 (read there,
    docs/decisions/0079).
    """
    return ("Exclusive", "NODE") if release >= (26, 5) else ("OverSubscribe", "NO")


def shows_nodes_of_partition(release: Release) -> bool:
    """Whether squeue shows a job as asking for whole nodes when only its partition gives them, for the time.

    A job that was submitted to a partition with OverSubscribe=EXCLUSIVE gets whole nodes for ever on 22.05.8,
    whatever becomes of the partition; on 24.11.5 it gets them no more once the partition shares its nodes,
    and shows the same until then; 26.05.5 tells (measured). Releases in between are taken for the later one.
    """
    return (23, 2) <= release[:2] < (26, 5)


def holds_memory_of_cpus_against_nodes(release: Release) -> bool:
    """Whether a waiting job stays that asks for memory by CPU, once its nodes have less than its CPUs bring.

    24.11.5 and 26.05.5 leave it with BadConstraints. After a reconfigure 22.05.8 still gives out what nodes
    had (AllocMem 15402 of RealMemory 5000), but for jobs that state more than there is (measured). Releases
    in between are taken for the earlier one.
    """
    return release >= (24, 11)


def keeps_whole_gpus_from_shards(release: Release) -> bool:
    """Whether a GPU of which a job has shards or MPS is never given whole to another (from 23.11.5).

    CHANGELOG/slurm-23.11.md: "Fix issue where you could have a gpu allocated as well as a shard on that gpu
    allocated at the same time". 22.05.8 frees the whole GPU when the first of several jobs on it ends
    (measured); 24.11.5 does not (measured).
    """
    return release >= (23, 11, 5)


def keeps_jobs_of_other_partitions(release: Release) -> bool:
    """Whether a job that named several partitions outlives one of them, when slurm.conf has it no more.

    22.05.8 and 24.11.5 end it, pending or running, even where it runs in another of them ("Invalid
    partition"); 26.05.5 takes the partition from its list (measured). So does 25.11.0, whose read_config.c
    is the same there, and 25.05 does not (CHANGELOG/slurm-25.11.md: "Prevent jobs submitted to multiple
    partitions from being killed when removing a partition"). One that runs there ends on all.
    """
    return release >= (25, 11)


def hands_limits_down(release: Release) -> bool:
    """Whether a limit for each person that is set on an account counts at once two accounts below it.

    24.11.5: slurmctld hands a department's MaxTRES, MaxJobs and MaxWall down to labs and not to their people
    until it starts anew, so that jobs run above them; 22.05.8 and 26.05.5 do (measured). Releases in between
    are taken for 24.11.
    """
    return release < (23, 2) or release >= (26, 5)


def keeps_people_to_minutes_left(release: Release) -> bool:
    """Whether a QoS's MaxTRESRunMinsPU and MaxTRESRunMinsPA keep jobs from starting.

    22.05.8 starts them all the same, 24.11.5 and 26.05.5 do not (measured); slurmctld's acct_policy.c reads
    both from 24.05 on. MaxTRESRunMins of an association is read by none.
    """
    return release >= (24, 5)


def way_of_coordinators(release: Release) -> CoordinatorWay:
    """How many coordinators are best told to slurmdbd (measured on 22.05.8, 24.11.5 and 26.05.5).

    Until 24.11 a call waits 0.5 s for TCP's delayed acknowledgements, and each coordinator in a file that is
    loaded 0.18 s: calls at the same time. On 24.11 loading 500 takes 3 s. From 25.05 on slurmdbd works out
    all coordinators of all accounts anew for each one (as_mysql_user_create_user_coords_list), a file that
    has people and coordinators makes it do so twice, and it ends in calls at the same time
    (`_get_user_coords` reads that list while another replaces it): a file of their own, afterwards.
    """
    if release < (24, 11):
        return "together"
    return "loaded" if release < (25, 5) else "afterwards"


def takes_limits_of_new_parent(release: Release) -> bool:
    """Whether an account that moves below another comes under its limits for each person at once.

    22.05.8 does; 24.11.5 and 26.05.5 when slurmctld starts anew (measured).
    """
    return release < (23, 2)
