"""What a user may have on a cluster: the records of associations, QoS and partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Bounds:
    """Limits of one association or one QoS; what is not limited is None, or not there.

    Attributes:
        of: whose, for messages.
        group: TRES that all jobs may have together, by Slurm's name (`node`, `cpu`, `gres/gpu`).
        job: TRES of one job.
        user, in_account: TRES of the jobs together of one user, or of one account.
        on_node: TRES that a job may have of each of its nodes (MaxTRESPerNode), on the average.
        least: TRES that one job has to have (MinTRES); memory in MiB.
        jobs, submitted: jobs of the user that may run, and that may be there at all.
        group_jobs, group_submitted: the same for all users together.
        account_jobs, account_submitted: the same for one account, where they are a QoS's.
        minutes: longest time limit of a job.
        job_minutes: TRES minutes that one job may use (MaxTRESMins): its TRES times its time limit.
        used: TRES minutes that all jobs may use together (GrpTRESMins, GrpWall), with what they have used.
        running: TRES minutes that all jobs that run may have left together (GrpTRESRunMins).
        user_running, account_running: the same of one user or account (MaxTRESRunMinsPU, MaxTRESRunMinsPA).
        factor: of a QoS: how many times an association's group and job its jobs may have (LimitFactor).
    """

    of: str
    group: Mapping[str, int] = field(default_factory=dict)
    job: Mapping[str, int] = field(default_factory=dict)
    user: Mapping[str, int] = field(default_factory=dict)
    jobs: int | None = None
    submitted: int | None = None
    group_jobs: int | None = None
    group_submitted: int | None = None
    minutes: int | None = None
    job_minutes: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    running: Mapping[str, int] = field(default_factory=dict)
    in_account: Mapping[str, int] = field(default_factory=dict)
    on_node: Mapping[str, int] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)
    account_jobs: int | None = None
    account_submitted: int | None = None
    user_running: Mapping[str, int] = field(default_factory=dict)
    account_running: Mapping[str, int] = field(default_factory=dict)
    factor: float | None = None


@dataclass(frozen=True)
class Account:
    """An account that the user may charge.

    Attributes:
        is_default: whether it is taken when none is named.
        qos: which QoS its jobs may have; the default one first, where there is one.
        bounds: those of the user in it, of the account, and of the accounts above it.
        above: the accounts that it belongs to, the nearest first.
        has_default_qos: whether it is known which QoS a job gets that asks for none.
        partition: the only one that this is for; "": all for which there is nothing of their own.
    """

    name: str
    is_default: bool
    qos: tuple[str, ...]
    bounds: tuple[Bounds, ...] = ()
    above: tuple[str, ...] = ()
    has_default_qos: bool = True
    partition: str = ""


@dataclass(frozen=True)
class Precedence:
    """Who takes nodes from whom, by QoS.

    Attributes:
        preempts: those whose jobs each QoS's jobs may take.
        modes: what is done with a taken job, where the QoS says so (`cancel`, `requeue`, `off`, ...).
    """

    preempts: Mapping[str, frozenset[str]] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PartitionTimes:
    """Time limits of a partition's jobs, in minutes; None: unlimited, or no default.

    Attributes:
        tier: whose jobs go first, and take those of lower tiers under PreemptType=preempt/partition_prio.
        mode: what is then done with a taken job of it (PreemptMode), in lower case.
        grace: seconds between SIGTERM and SIGKILL of a job that is then taken (GraceTime).
        weights: what a unit of a TRES counts in `billing` (TRESBillingWeights), by Slurm's name.
        qos: whose limits hold for all jobs in it (QOS); "": nobody's.
        whole: whether each job gets whole nodes, with all that they have.
    """

    default: int | None
    longest: int | None
    weights: Mapping[str, float] = field(default_factory=dict)
    tier: int = 1
    mode: str = "off"
    grace: int = 0
    qos: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Limits:
    """What a user may have.

    Attributes:
        enforced: what slurmctld enforces of it (AccountingStorageEnforce).
        grace: seconds between SIGTERM and SIGKILL of a preempted job, by QoS; see `grace_of`.
        qos: their limits, by name.
        preempt_type: `qos` or `partition_prio` (PreemptType without `preempt/`); empty or `none`: nobody is
            preempted.
        precedence: who takes nodes from whom, where that is by QoS.
        youngest_first: whether the youngest of the jobs that may be taken goes first.
        beyond_partitions: QoS whose jobs may have more nodes than their partition's MaxNodes.
        below_partitions: QoS whose jobs may have fewer nodes than their partition's MinNodes.
        beyond_times: QoS whose jobs may be longer than their partition's MaxTime.
        kill_wait: seconds between SIGTERM and SIGKILL of a job that is ended (KillWait).
        over_partitions: QoS whose limits go before those of their partition's QoS.
        usage_factors: as how many minutes one of a job's counts, by its QoS (UsageFactor).
        asked_with_factor: QoS whose jobs are also compared so before they start (UsageFactorSafe).
        largest: the most that one node of each partition has of a TRES (memory in MiB); only where a QoS has
            MinTRES of something else than nodes.
        denying: QoS whose jobs are compared with all limits when they are submitted (DenyOnLimit).
    """

    user: str
    enforced: frozenset[str]
    accounts: tuple[Account, ...]
    qos: Mapping[str, Bounds]
    grace: Mapping[str, int]
    partitions: Mapping[str, PartitionTimes]
    preempt_type: str = ""
    precedence: Precedence = field(default_factory=Precedence)
    youngest_first: bool = True
    beyond_partitions: frozenset[str] = frozenset()
    below_partitions: frozenset[str] = frozenset()
    beyond_times: frozenset[str] = frozenset()
    kill_wait: int = 30
    over_partitions: frozenset[str] = frozenset()
    usage_factors: Mapping[str, float] = field(default_factory=dict)
    asked_with_factor: frozenset[str] = frozenset()
    denying: frozenset[str] = frozenset()
    largest: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def account(self, name: str | None, partitions: Sequence[str] = ()) -> Account | None:
        """An account of the user by its name (whose case Slurm ignores), or the default one; None: none.

        Args:
            partitions: those in which the job may run. Slurm goes by the first: what the user may have there
                (an association with a partition), else what she may have anywhere.
        """
        known = (name or "").lower()
        named = [
            each for each in self.accounts if each.name.lower() == known or (not known and each.is_default)
        ]
        order = (*partitions[:1], "") if partitions else ("", *(each.partition for each in named))
        return next((each for place in order for each in named if each.partition == place), None)

    def qos_of(self, account: str | None, qos: str | None, partitions: Sequence[str] = ()) -> str:
        """The QoS that a job gets: the one it asks for, or its account's default; "": not known.

        Slurm ignores the case of its name.
        """
        charged = self.account(account, partitions)
        if not qos:
            return charged.qos[0] if charged and charged.qos and charged.has_default_qos else ""
        known = (*self.qos, *self.precedence.preempts)
        return next((each for each in known if each.lower() == qos.lower()), qos)

    def grace_of(self, qos: str, partitions: Sequence[str]) -> tuple[int, str]:
        """Seconds that a preempted job has at least, and whose GraceTime that is.

        Args:
            qos: the job's.
            partitions: those in which it may run.
        """
        if self.preempt_type != "partition_prio":
            return self.grace.get(qos, 0), f"the QoS {qos}"
        known = [(self.partitions[name].grace, name) for name in partitions if name in self.partitions]
        seconds, name = min(known, default=(0, ",".join(partitions)))
        return seconds, f"partition {name}"
