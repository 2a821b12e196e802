"""A stage for plans: what there would be if a bundle ran, told in the words of Slurm's commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpctools.conf import Bundle, Facts, compile
from hpctools.conf.plan import Live, OnDisk, Plan, make_plan
from hpctools.conf.plan.defaults import defaults
from hpctools.conf.plan.meaning import Meaning, read_meaning
from hpctools.conf.plan.shown import Shown, read_shown
from hpctools.site import loads
from hpctools.slurm.types import Job
from hpctools.slurm.versions import Release, spell_release

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "slurm-conf/examples/university/site.yaml"
EARLY: Release = (22, 5, 8)
LATE: Release = (24, 11, 5)
FOLDER = Path("/etc/slurm")


def bundle(*edits: tuple[str, str], release: Release = EARLY, **facts: Any) -> Bundle:
    """The reference site with edits, each of which must find its text."""
    text = REFERENCE.read_text()
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    return compile(loads(text), Facts(slurm_version=release, cgroup="v1", **facts))


def running(there: Bundle, release: Release = EARLY) -> Shown:
    """What slurmctld would show if it ran a bundle."""
    meaning = read_meaning({file.path: file.text for file in there.files})
    return read_shown(
        "\n".join(_config(meaning, release)) + "\n",
        "\n".join(_nodes(meaning, release)) + "\n",
        "\n".join(_partitions(meaning, release)) + "\n",
    )


def live(there: Bundle, *jobs: Job, release: Release = EARLY) -> Live:
    """All that there would be if a bundle were applied."""
    disk = OnDisk({file.path: file.text for file in there.files})
    return Live(disk, running(there, release), there.accounts, jobs, release)


def planned(there: Bundle, wanted: Bundle, *jobs: Job, release: Release = EARLY, prune: bool = False) -> Plan:
    """What separates one bundle from another."""
    return make_plan(wanted, live(there, *jobs, release=release), folder=FOLDER, prune=prune)


def job(number: int, user: str, partition: str, **rest: Any) -> Job:
    """A job; one that holds nodes runs."""
    state = "RUNNING" if rest.get("nodes") else "PENDING"
    values: dict[str, Any] = {
        "account": partition,
        "qos": "medium",
        "state": state,
        "time_limit": 600,
        **rest,
    }
    return Job(id=number, name="", user=user, partition=partition, **values)


def _config(meaning: Meaning, release: Release) -> Iterator[str]:
    yield "Configuration data as of 2026-11-21T14:52:38"
    usual = defaults(release)
    for key in {**usual, **meaning.settings}:
        setting = meaning.settings.get(key)
        unit = usual.get(key, "").partition(" ")[2]
        stated = f"{_spelled(setting.value)} {unit}".strip() if setting else usual[key]
        yield f"{setting.key if setting else key:<23} = {stated}"
    yield f"SLURM_VERSION           = {spell_release(release)}"
    yield "\nCgroup Support Configuration:\nKillWait = 1"


def _spelled(value: str) -> str:
    """scontrol has an order of its own."""
    ordered = set("=/[]") & set(value)
    return value or "(null)" if ordered else ",".join(reversed(value.split(","))) or "(null)"


def _nodes(meaning: Meaning, release: Release) -> Iterator[str]:
    for name, node in meaning.nodes.items():
        words = {"RealMemory": "1", "TmpDisk": "0", "Weight": "1", "AvailableFeatures": "(null)"}
        words |= {word: node.shape[key] for key, word in _NODE_WORDS.items() if node.shape.get(key)}
        words["Gres"] = f"{words['Gres']}(S:0-1)" if "Gres" in words else "(null)"
        words |= {
            "NodeAddr": node.address or node.hostname or name,
            "NodeHostName": node.hostname or name,
            "Port": node.port or meaning.settings["slurmdport"].value,
            "Version": spell_release(release),
            "OS": "Linux 6.1 #1 SMP",
            "State": f"IDLE+{node.shape['state']}" if node.shape["state"] else "IDLE",
            "SlurmdStartTime": "2026-11-21T14:52:31",
            # People's words come last.
            "Comment": "somebody Gres=gpu:evil:9",
            "Reason": "words Weight=77 [root@2026-11-21T14:00:00]",
        }
        yield f"NodeName={name} Arch=x86_64 " + " ".join(f"{word}={value}" for word, value in words.items())


_NODE_WORDS = {
    "corespersocket": "CoresPerSocket",
    "cpus": "CPUTot",
    "features": "AvailableFeatures",
    "gres": "Gres",
    "realmemory": "RealMemory",
    "sockets": "Sockets",
    "boards": "Boards",
    "threadspercore": "ThreadsPerCore",
    "tmpdisk": "TmpDisk",
    "weight": "Weight",
    "corespeccount": "CoreSpecCount",
    "memspeclimit": "MemSpecLimit",
}
_OF_JOBS = ("defcpupergpu", "defmempergpu")


def _partitions(meaning: Meaning, release: Release) -> Iterator[str]:
    for name, raw in meaning.partitions.items():
        words = {
            "allowaccounts": "ALL",
            "maxnodes": "UNLIMITED",
            "qos": "N/A",
            "selecttypeparameters": "NONE",
            "state": "UP",
            "totalnodes": "4",
        }
        words |= {key: value for key, value in raw.items() if key not in _OF_JOBS}
        if words.get("nodes", "").upper() == "ALL":
            words["nodes"] = ",".join(meaning.nodes)
        words["jobdefaults"] = ",".join(f"{key}={raw[key]}" for key in _OF_JOBS if key in raw) or "(null)"
        words = _in_one_word(words) if release >= (26, 5) else words
        yield f"PartitionName={name} " + " ".join(f"{key}={value}" for key, value in words.items())


def _in_one_word(words: dict[str, str]) -> dict[str, str]:
    """As 26.05 reads and shows it: OverSubscribe comes after ExclusiveTopo, Exclusive after both."""
    rest = {key: value for key, value in words.items() if not key.startswith("exclusive")}
    said = words.get("exclusive", "").upper()
    old = [word for word in ("TOPO", "USER") if words.get(f"exclusive{word.lower()}", "").upper() == "YES"]
    whole = said in ("NODE", "TOPO") or (
        not said and words.get("oversubscribe", "EXCLUSIVE" if "TOPO" in old else "NO") == "EXCLUSIVE"
    )
    true = [said] if said else old[:1]
    shown = "TOPO" if "TOPO" in true else "NODE" if whole else "USER" if "USER" in true else "NO"
    return {**rest, "Exclusive": shown, **({"oversubscribe": "NO"} if whole else {})}
