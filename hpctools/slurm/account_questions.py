"""The questions to slurmdbd from whose answers `hpctools.conf.parse_live` makes the account tree.

They stand here and not beside the parser so that a command can ask them first of all: `hpctools.conf` takes a
third of a second to load, in which slurmdbd works.
"""

from __future__ import annotations

# sacctmgr(1) takes each word for `set`, too; how their values are spelled is in hpctools.conf.vocabulary.
QOS_WORDS = (
    "Priority", "Preempt", "PreemptMode", "GraceTime", "PreemptExemptTime", "MaxWall", "MaxTRESPerUser",
    "MaxJobsPerUser", "UsageFactor", "Flags", "GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "GrpJobs",
    "GrpSubmitJobs", "GrpJobsAccrue", "GrpWall", "MaxTRESPerJob", "MaxTRESPerNode", "MaxTRESMinsPerJob",
    "MaxTRESPerAccount", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA", "MinTRESPerJob", "MaxJobsPerAccount",
    "MaxSubmitJobsPerUser", "MaxSubmitJobsPerAccount", "MaxJobsAccruePerUser",
    "MaxJobsAccruePerAccount", "MinPrioThresh", "UsageThreshold", "LimitFactor",
)  # fmt: skip
ASSOCIATION_WORDS = (
    "Fairshare", "GrpTRES", "GrpJobs", "MaxTRES", "MaxJobs", "MaxSubmitJobs", "MaxWall", "QOS",
    "DefaultQOS", "GrpTRESMins", "GrpTRESRunMins", "GrpSubmitJobs", "GrpJobsAccrue", "GrpWall",
    "MaxTRESPerNode", "MaxTRESMins", "MaxTRESRunMins", "MaxJobsAccrue", "MinPrioThresh", "Priority",
)  # fmt: skip

QOS_FIELDS = ("Name", *QOS_WORDS)
ASSOCIATION_FIELDS = ("Cluster", "Account", "User", "ParentName", "Partition", *ASSOCIATION_WORDS)
USER_FIELDS = ("User", "DefaultAccount", "Coordinators")


def live_queries(cluster: str | None = None) -> tuple[tuple[str, ...], ...]:
    """Return the arguments to `sacctmgr -nP` whose outputs `parse_live` takes, in the same order.

    Args:
        cluster: whose default accounts count; those of slurm.conf's cluster when None.
    """
    where = ("where", f"cluster={cluster}") if cluster else ()
    return (
        ("show", "qos", f"format={','.join(QOS_FIELDS)}"),
        # Without WOPLimits each row would also show what it inherits.
        ("show", "association", f"format={','.join(ASSOCIATION_FIELDS)}", "WOPLimits"),
        # Who coordinates an account is asked of the people: asked of 500 accounts it took 4 to 6 s (22.05.8).
        ("show", "user", *where, "withcoordinator", f"format={','.join(USER_FIELDS)}"),
        ("show", "cluster", "format=Cluster"),
        ("show", "tres", "format=Type,Name"),
        ("show", "accounts", "format=Account,Descr"),
    )


NAMES = ("show", "user", "format=User")
"""The arguments whose output is the names of all people, a line each: 0.16 s for 2,100 (22.05.8)."""
