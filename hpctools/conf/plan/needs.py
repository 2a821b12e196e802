"""What each setting takes to come into effect.

slurm.conf(5) says "a restart of slurmctld is required" for some; others were tried on 22.05.8, which shows a
setting as loaded after a reconfigure that its plugin has not heard of. Where reconfigure starts every daemon
anew (23.11), all but a few are content with it.
"""

from __future__ import annotations

from hpctools.conf.plan.model import Need
from hpctools.slurm.versions import Release, reconfigure_starts_anew

# Listening ports, authentication and who the daemons are: never by a reconfigure (scontrol(1), 24.11).
_ALWAYS_DAEMONS = {
    "authalttypes",
    "authaltparameters",
    "authinfo",
    "authtype",
    "backupcontroller",
    "clustername",
    "credtype",
    "plugindir",
    "slurmctldaddr",
    "slurmctldhost",
    "slurmctldport",
    "slurmdport",
    "slurmduser",
    "slurmuser",
}
_ALWAYS_SLURMCTLD = {"slurmctldpidfile", "statesavelocation"}
# Jobs that run would be lost ("all job information will be lost", slurm.conf(5)).
_ALWAYS_DRAIN = {"selecttype", "switchtype"}
# The rest is about releases before 23.11.
_DAEMONS = {
    "acctgatherenergytype",
    "acctgatherfilesystemtype",
    "acctgatherinterconnecttype",
    "acctgatherprofiletype",
    "corespecplugin",
    "grestypes",
    "jobacctgathertype",
    "jobcontainertype",
    "nodefeaturesplugins",
    "prepplugins",
    "proctracktype",
    "taskplugin",
    "topologyplugin",
}
_SLURMCTLD = {
    "accountingstorageenforce",
    "accountingstoragehost",
    "accountingstorageport",
    "accountingstoragetres",
    "accountingstoragetype",
    "burstbuffertype",
    "jobcomptype",
    "maxjobcount",
    "maxnodecount",
    "mcsplugin",
    "powerplugin",
    "prioritytype",
    "schedulertype",
    "selecttypeparameters",
    "slurmctldparameters",
}
_SLURMDS = {"slurmdspooldir", "slurmdpidfile"}

# Keys of a node line, in lower case.
_NODE_RECONFIGURE = {"features", "weight", "realmemory", "tmpdisk", "state", "reason", "tresweights"}


def setting_needs(key: str, release: Release) -> Need:
    """What a setting of slurm.conf takes; `key` in lower case."""
    if key in _ALWAYS_DRAIN:
        return Need.DRAIN
    if key in _ALWAYS_DAEMONS:
        return Need.RESTART_DAEMONS
    if key in _ALWAYS_SLURMCTLD:
        return Need.RESTART_SLURMCTLD
    return Need.RECONFIGURE if reconfigure_starts_anew(release) else _early_setting(key)


def _early_setting(key: str) -> Need:
    if key in _DAEMONS:
        return Need.RESTART_DAEMONS
    if key in _SLURMCTLD:
        return Need.RESTART_SLURMCTLD
    return Need.RESTART_SLURMDS if key in _SLURMDS else Need.RECONFIGURE


def node_needs(key: str, release: Release) -> Need:
    """What a key of a node line takes, on a node without jobs; "" for a node that comes or goes."""
    if key == "port":
        return Need.RESTART_DAEMONS
    if key in _NODE_RECONFIGURE or reconfigure_starts_anew(release):
        return Need.RECONFIGURE
    return Need.RESTART_DAEMONS


def loses_jobs(key: str) -> bool:
    """Whether jobs on a node cannot be kept when this key of its line changes; "" when the node goes."""
    return key not in _NODE_RECONFIGURE | {"nodeaddr", "nodehostname", "port"}


# Files beside slurm.conf.
_FILES_LATER = {"slurmdbd.conf": Need.RESTART_SLURMDBD}
_FILES_EARLY = {
    "gres.conf": Need.RESTART_DAEMONS,
    "cgroup.conf": Need.RESTART_SLURMDS,
    "job_container.conf": Need.RESTART_SLURMDS,
    "acct_gather.conf": Need.RESTART_SLURMDS,
}


def file_needs(path: str, release: Release) -> Need:
    """What a change of another file of the configuration takes."""
    known = _FILES_LATER if reconfigure_starts_anew(release) else {**_FILES_LATER, **_FILES_EARLY}
    return known.get(path, Need.RECONFIGURE)


def read_by_slurmd(path: str) -> bool:
    """Whether slurmds read this file when they start, so that older ones do not know its present text."""
    return path in _FILES_EARLY
