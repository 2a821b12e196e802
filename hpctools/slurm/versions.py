"""What differs between Slurm releases; the only place that knows.

Supported: 22.05 to 26.05. A release is a tuple such as `(24, 11)`.
"""

from __future__ import annotations

Release = tuple[int, ...]

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
