"""What a user may have on a cluster: associations, QoS and partitions, asked together, read into records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from hpctools.errors import CommandError
from hpctools.slurm import limits_text, parse, run
from hpctools.slurm.cli import told
from hpctools.slurm.environment import asking
from hpctools.slurm.versions import keeps_people_to_minutes_left, parse_release, preempts_youngest_first

ASK_SECONDS = 5.0
_QOS = (
    "Name,GraceTime,GrpTRES,MaxTRES,MaxTRESPU,GrpJobs,GrpSubmit,MaxJobsPU,MaxSubmitPU,MaxWall,"
    "Preempt,PreemptMode,Flags,MaxTRESMins,UsageFactor,MaxTRESPA,MaxJobsPA,MaxSubmitPA,MaxTRESPerNode,"
    "MinTRES,MaxTRESRunMinsPU,MaxTRESRunMinsPA,LimitFactor"
)
_QUESTIONS = {
    "qos": ("sacctmgr", "-nP", "show", "qos", f"format={_QOS}"),
    "associations": (
        "sacctmgr",
        "-nP",
        "show",
        "assoc",
        "where",
        "user={user}",
        "format=Account,QOS,DefaultQOS,Cluster,Partition",
    ),
    "limits": ("scontrol", "--oneliner", "show", "assoc_mgr", "users={user}", "flags=assoc,qos"),
    "partitions": ("scontrol", "--all", "--oneliner", "show", "partition"),
    "config": ("scontrol", "show", "config"),
}


@dataclass(frozen=True)
class Bounds:
    """Limits of one association or one QoS; what is not limited is None, or not there.

    Attributes:
        of: whose, for messages.
        group: TRES that all jobs may have together, by Slurm's name (`node`, `cpu`, `gres/gpu`).
        job: TRES of one job.
        user, in_account: TRES of the jobs together of one user, or of one account.
        on_node: TRES that a job may have of each of its nodes (MaxTRESPerNode), on the average.
        least: TRES that one job has to have (MinTRES).
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


def read_limits(user: str) -> Limits:
    """Ask slurmctld and slurmdbd.

    Raises:
        UnreachableError, CommandError: one of them does not answer within a few seconds, or refuses.
    """
    with ThreadPoolExecutor(len(_QUESTIONS)) as pool:
        asked = {what: pool.submit(_ask, words, user) for what, words in _QUESTIONS.items()}
        return parse_limits(user, {what: answer.result() for what, answer in asked.items()})


def _ask(words: tuple[str, ...], user: str) -> str:
    try:
        return run.run([word.format(user=user) for word in words], timeout=ASK_SECONDS, env=asking()).stdout
    except CommandError as error:
        raise told(error) from None


def parse_limits(user: str, answers: Mapping[str, str]) -> Limits:
    """Read what the commands of `read_limits` printed, by what was asked."""
    rows = [line.split("|") for line in answers["qos"].splitlines() if line.count("|") >= 9]
    config, together = parse.config(answers["config"]), _qos_together(answers["limits"])
    rows = [_as_counted(row, config.get("SLURM_VERSION", "")) for row in rows]
    return Limits(
        user=user,
        enforced=frozenset(config.get("AccountingStorageEnforce", "").lower().split(",")),
        accounts=tuple(_accounts(user, _rows_here(answers["associations"], config), answers["limits"])),
        qos={row[0]: _qos(row, together.get(row[0], {})) for row in rows},
        grace={row[0]: limits_text.seconds(row[1]) for row in rows},
        partitions=dict(
            _times(line, config) for line in answers["partitions"].splitlines() if "PartitionName=" in line
        ),
        preempt_type=config.get("PreemptType", "").rpartition("/")[2].lower(),
        precedence=_precedence(rows),
        youngest_first=preempts_youngest_first(config),
        beyond_partitions=_flagged(rows, "PartitionMaxNodes"),
        below_partitions=_flagged(rows, "PartitionMinNodes"),
        beyond_times=_flagged(rows, "PartitionTimeLimit"),
        kill_wait=limits_text.first_number(config.get("KillWait", ""), Limits.kill_wait),
        over_partitions=_flagged(rows, "OverPartQOS"),
        usage_factors={
            row[0]: float(row[14]) for row in rows if re.fullmatch(r"\d+\.\d+", "".join(row[14:15]))
        },
        asked_with_factor=_flagged(rows, "UsageFactorSafe"),
        denying=_flagged(rows, "DenyOnLimit"),
    )


def _as_counted(row: list[str], version: str) -> list[str]:
    """What sacctmgr tells of a QoS, without limits that this release of Slurm does not heed."""
    if version and keeps_people_to_minutes_left(parse_release(version)):
        return row
    left = ("MaxTRESRunMinsPU", "MaxTRESRunMinsPA")
    return ["" if name in left else said for name, said in zip(_QOS.split(","), row, strict=False)]


def _flagged(rows: list[list[str]], flag: str) -> frozenset[str]:
    return frozenset(row[0] for row in rows if flag in ",".join(row[12:13]).split(","))


def _precedence(rows: list[list[str]]) -> Precedence:
    """Of an answer without these columns nothing is known."""
    known = [row for row in rows if len(row) >= 12]
    return Precedence(
        preempts={row[0]: frozenset(filter(None, row[10].split(","))) for row in known},
        modes={row[0]: row[11].lower() for row in known},
    )


def _qos_together(text: str) -> dict[str, dict[str, str]]:
    """What all jobs of each QoS may use together, with what they have used, in Slurm's words."""
    records = [
        dict(re.findall(r"(\w+)=(\S*)", line)) for line in text.splitlines() if line.startswith("QOS=")
    ]
    return {each["QOS"].rpartition("(")[0]: each for each in records}


def _qos(row: list[str], together: Mapping[str, str]) -> Bounds:
    said = dict(zip(_QOS.split(","), [*row, *[""] * 25], strict=False))
    if "Relative" in said["Flags"].split(","):
        said = limits_text.in_numbers(said, together)
    tres, count = limits_text.tres, limits_text.count
    return Bounds(
        of=f"QoS {said['Name']}",
        group=tres(said["GrpTRES"]),
        job=tres(said["MaxTRES"]),
        user=tres(said["MaxTRESPU"]),
        jobs=count(said["MaxJobsPU"]),
        submitted=count(said["MaxSubmitPU"]),
        group_jobs=count(said["GrpJobs"]),
        group_submitted=count(said["GrpSubmit"]),
        minutes=parse.minutes(said["MaxWall"]),
        job_minutes=tres(said["MaxTRESMins"]),
        used=limits_text.used_together(together),
        running=tres(together.get("GrpTRESRunMins", "")),
        in_account=tres(said["MaxTRESPA"]),
        on_node=tres(said["MaxTRESPerNode"]),
        least=tres(said["MinTRES"]),
        account_jobs=count(said["MaxJobsPA"]),
        account_submitted=count(said["MaxSubmitPA"]),
        user_running=tres(said["MaxTRESRunMinsPU"]),
        account_running=tres(said["MaxTRESRunMinsPA"]),
        factor=limits_text.factor(said["LimitFactor"]),
    )


def _rows_here(associations: str, config: Mapping[str, str]) -> list[list[str]]:
    """What the user may have on this cluster: slurmdbd tells it of each cluster that it knows."""
    here = config.get("ClusterName", "").lower()
    rows = [[*line.split("|"), *[""] * 4][:5] for line in dict.fromkeys(associations.splitlines())]
    return [row for row in rows if not row[3] or not here or row[3].lower() == here]


def _accounts(user: str, rows: list[list[str]], limits: str) -> list[Account]:
    # Behind Comment= stands what somebody wrote, as `since May GrpTRES=cpu=64`.
    lines = [line.partition(" Comment=")[0] for line in limits.splitlines() if "ClusterName=" in line]
    records = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines]
    mine = [each for each in records if each.get("UserName", "").startswith(f"{user}(")]
    own = {(each["Account"], each.get("Partition", "")): each for each in mine}
    defaults = {each["Account"] for each in mine if each.get("DefAssoc") == "Yes"}
    above = {each["Account"]: each for each in records if not each.get("UserName")}
    found = []
    for name, allowed, default, _, partition in rows:
        record = own.get((name, partition), {})
        where = f" for partition {partition}" if partition else ""
        chain = [_bounds(f"user {user} in account {name}{where}", record)] if record else []
        default = default or limits_text.usual_qos(allowed)
        qos = tuple(dict.fromkeys(each for each in (default, *allowed.split(",")) if each))
        line_up = limits_text.line_up(name, above)
        bounds = (*chain, *(_group_bounds(each, above[each]) for each in line_up))
        above_it = tuple(line_up[1:])
        found.append(Account(name, name in defaults, qos, bounds, above_it, bool(default), partition))
    return found


def _group_bounds(name: str, record: Mapping[str, str]) -> Bounds:
    """Group limits of an account; what is told of it for one user is in hers."""
    limits = _bounds(f"account {name}", record)
    return Bounds(
        limits.of,
        group=limits.group,
        group_jobs=limits.group_jobs,
        group_submitted=limits.group_submitted,
        used=limits.used,
        running=limits.running,
    )


def _bounds(of: str, record: Mapping[str, str]) -> Bounds:
    return Bounds(
        of=of,
        group=limits_text.tres(record.get("GrpTRES", "")),
        job=limits_text.tres(record.get("MaxTRESPJ", "")),
        on_node=limits_text.tres(record.get("MaxTRESPN", "")),
        jobs=limits_text.count(record.get("MaxJobs", "")),
        submitted=limits_text.count(record.get("MaxSubmitJobs", "")),
        group_jobs=limits_text.count(record.get("GrpJobs", "")),
        group_submitted=limits_text.count(record.get("GrpSubmitJobs", "")),
        minutes=limits_text.count(record.get("MaxWallPJ", "")),
        job_minutes=limits_text.tres(record.get("MaxTRESMinsPJ", "")),
        used=limits_text.used_together(record),
        running=limits_text.tres(record.get("GrpTRESRunMins", "")),
    )


def _times(line: str, config: Mapping[str, str]) -> tuple[str, PartitionTimes]:
    fields = dict(part.partition("=")[::2] for part in line.split() if "=" in part)
    default, longest = (parse.minutes(fields.get(name, "")) for name in ("DefaultTime", "MaxTime"))
    weights = re.findall(r"([^,=]+)=([\d.]+)(?=,|$)", fields.get("TRESBillingWeights", ""))
    by_name = {name.lower(): float(weight) for name, weight in weights}
    tier, mode = (
        limits_text.count(fields.get("PriorityTier", "")) or 0,
        fields.get("PreemptMode", "off").lower(),
    )
    grace = limits_text.count(fields.get("GraceTime", "")) or 0
    qos = fields.get("QoS", "").replace("N/A", "")
    # Since Slurm 26.05 Exclusive= says it.
    alone = fields.get("OverSubscribe", "") == "EXCLUSIVE" or fields.get("Exclusive", "") in ("NODE", "TOPO")
    whole = alone or config.get("SelectType") == "select/linear"
    return fields["PartitionName"], PartitionTimes(default, longest, by_name, tier, mode, grace, qos, whole)
