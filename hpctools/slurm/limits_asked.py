"""What a user may have on a cluster: asked of slurmctld and slurmdbd together, and read into records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from hpctools.errors import CommandError
from hpctools.slurm import limits_text, parse, run
from hpctools.slurm.cli import told
from hpctools.slurm.environment import asking
from hpctools.slurm.limits import Account, Bounds, Limits, PartitionTimes, Precedence
from hpctools.slurm.parse_nodes import largest, nodes_from_text
from hpctools.slurm.versions import (
    gives_whole_nodes,
    keeps_people_to_minutes_left,
    parse_release,
    preempts_youngest_first,
)

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
# Thousands of lines on a large cluster: asked only where a QoS has MinTRES that depend on them.
_NODES = ("scontrol", "--all", "--oneliner", "show", "node")


def read_limits(user: str) -> Limits:
    """Ask slurmctld and slurmdbd.

    Raises:
        UnreachableError, CommandError: one of them does not answer within a few seconds, or refuses.
    """
    with ThreadPoolExecutor(len(_QUESTIONS)) as pool:
        asked = {what: pool.submit(_ask, words, user) for what, words in _QUESTIONS.items()}
        limits = parse_limits(user, {what: answer.result() for what, answer in asked.items()})
    if not any(set(each.least) - {"node"} for each in limits.qos.values()):
        return limits
    return replace(limits, largest=largest(nodes_from_text(_ask(_NODES, user))))


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
        least=limits_text.amounts(said["MinTRES"]),
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
    whole = gives_whole_nodes(fields) or config.get("SelectType") == "select/linear"
    return fields["PartitionName"], PartitionTimes(default, longest, by_name, tier, mode, grace, qos, whole)
