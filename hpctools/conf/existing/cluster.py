"""From slurm.conf and the files beside it to the entry `cluster` of a site file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from hpctools.conf.existing.fitting import fitting
from hpctools.conf.existing.words import Words
from hpctools.conf.facts import Facts
from hpctools.conf.plan.meaning import Meaning, expand, whole
from hpctools.conf.plan.slurmfile import parse_lines
from hpctools.conf.plan.values import account, seconds
from hpctools.site.cluster import Priority
from hpctools.site.jobs import Containment, Scripts
from hpctools.site.power import PowerSaving
from hpctools.site.scalars import spell_duration
from hpctools.slurm.conf_text import Pair

_SCRIPTS = {
    "prolog": "prolog",
    "epilog": "epilog",
    "prologslurmctld": "prolog_slurmctld",
    "epilogslurmctld": "epilog_slurmctld",
    "taskprolog": "task_prolog",
    "taskepilog": "task_epilog",
}
_POWER_PROGRAMS = {
    "resumeprogram": "resume_program",
    "suspendprogram": "suspend_program",
    "resumefailprogram": "resume_fail_program",
}
_POWER_TIMES = {
    "suspendtime": "suspend_time",
    "resumetimeout": "resume_timeout",
    "suspendtimeout": "suspend_timeout",
}
_POWER_RATES = {"resumerate": "resume_rate", "suspendrate": "suspend_rate"}
_WEIGHTS = {
    "priorityweightqos": "tier",
    "priorityweightfairshare": "fair_share",
    "priorityweightage": "age",
    "priorityweightjobsize": "job_size",
}
_CONTAINMENT = {
    "constraincores": "cores",
    "constrainramspace": "memory",
    "constrainswapspace": "swap",
    "constraindevices": "devices",
}
_PERCENTAGES = (
    ("allowedramspace", "memory_percent", "constrainramspace"),
    ("allowedswapspace", "swap_percent", "constrainswapspace"),
)
_FOLDERS = ["/tmp", "/dev/shm"]  # noqa: S108  what job_container.conf(5) gives each job by default
_YES = {"yes", "true", "1"}


def cluster_words(meaning: Meaning, files: Mapping[str, str], release: str, facts: Facts) -> Words:
    """Return the entry `cluster`.

    Args:
        meaning: of slurm.conf.
        files: texts of the configuration folder by path.
        release: Slurm's, for example `22.05`; "" when it is not known.
        facts: where slurmdbd listens, when they tell.
    """
    settings = {key: setting.value for key, setting in meaning.settings.items()}
    words: Words = {
        "name": settings.get("clustername", ""),
        **({"slurm": release} if release else {}),
        "controllers": [host for host, _ in controllers(meaning)],
    }
    user = account(settings.get("slurmuser", "root"))
    words |= {"slurm_user": user} if user != "slurm" else {}
    words |= _entry("accounting", _accounting(settings, files, facts))
    words |= _entry("priority", fitting(_priority(settings), Priority))
    words |= _entry("configuration", _configuration(settings))
    words |= _entry("containment", fitting(_containment(_flat(files, "cgroup.conf")), Containment))
    words |= _entry("job_container", _job_container(settings, _flat(files, "job_container.conf")))
    words |= _entry("scripts", fitting(_scripts(settings), Scripts))
    words |= _entry("topology", _topology(settings, files))
    words |= _entry("power_saving", fitting(_power_saving(settings), PowerSaving))
    if _flat(files, "gres.conf").get("autodetect", "off").lower() == "nvml":
        words["gpu_detection"] = "nvml"
    return words


def controllers(meaning: Meaning) -> Iterator[tuple[str, str]]:
    """The controllers' host names, and their addresses where slurm.conf names them."""
    stated = meaning.settings.get("slurmctldhost")
    for item in stated.value.split(",") if stated else ():
        found = re.fullmatch(r"([^()]+)(?:\(([^()]*)\))?", item.strip())
        if found:
            yield found[1], found[2] or ""


def _entry(key: str, words: Words) -> Words:
    return {key: words} if words else {}


def spelled(files: Mapping[str, str], path: str) -> dict[str, Pair]:
    """Return the settings of a file, by key in lower case; none where there is no such file."""
    lines = parse_lines(files, path) if path in files else ()
    return {pair.key.lower(): pair for line in lines for pair in line}


def _flat(files: Mapping[str, str], path: str) -> dict[str, str]:
    return {key: pair.value for key, pair in spelled(files, path).items()}


def _accounting(settings: Mapping[str, str], files: Mapping[str, str], facts: Facts) -> Words:
    stored = _flat(files, "slurmdbd.conf")
    words = _slurmdbd(settings, stored, facts)
    database: Words = {}
    for key, word, usual in (
        ("storagehost", "host", "localhost"),
        ("storageloc", "name", "slurm_acct_db"),
        ("storageuser", "user", "slurm"),
    ):
        if stored.get(key, usual) != usual:
            database[word] = stored[key]
    if "host" in database and stored.get("storageport", "3306") != "3306":
        database["port"] = whole("StoragePort", stored)
    return {**words, **_entry("database", database)}


def _slurmdbd(settings: Mapping[str, str], stored: Mapping[str, str], facts: Facts) -> Words:
    """Where slurmdbd runs, by the name that it goes by when a fact says how it is reached."""
    first = settings.get("slurmctldhost", "").split(",")[0].split("(")[0]
    host = settings.get("accountingstoragehost", "")
    if facts.slurmdbd_endpoint is not None:
        host = stored.get("dbdhost", "")
    words: Words = {"host": host} if host and host != first else {}
    if facts.slurmdbd_endpoint is None and settings.get("accountingstorageport", "6819") != "6819":
        words["port"] = whole("AccountingStoragePort", settings)
    return words


def _time(settings: Mapping[str, str], key: str, bare: int = 60) -> str | None:
    value = seconds(bare)(settings.get(key, ""))
    return spell_duration(int(value)) if value.isdecimal() and value != "0" else None


def _priority(settings: Mapping[str, str]) -> Words:
    words: Words = {}
    for key, word, usual in (
        ("prioritydecayhalflife", "half_life", "7-00:00:00"),
        ("prioritymaxage", "max_age", "7-00:00:00"),
    ):
        stated = _time(settings, key)
        if stated is not None and stated != usual:
            words[word] = stated
    stated_weights = {word: settings.get(key, "") for key, word in _WEIGHTS.items()}
    # One such as INFINITE is left to Slurm's own words.
    weights = {word: int(value) if value.isdecimal() else 0 for word, value in stated_weights.items()}
    return {**words, "weights": weights}


def _configuration(settings: Mapping[str, str]) -> Words:
    words: Words = {}
    if "enable_configless" not in settings.get("slurmctldparameters", "").lower().split(","):
        words["distribution"] = "shared"
    folder = settings.get("statesavelocation", "/var/spool")
    if folder != "/var/spool/slurmctld":
        words["state_folder"] = str(PurePosixPath(folder))
    return words


def _containment(stated: Mapping[str, str]) -> Words:
    words: Words = {}
    if stated.get("constrainramspace", "no").lower() not in _YES:
        stated = {**stated, "constrainswapspace": "no"}  # a site has it beside memory only: in Slurm's words
    for key, word in _CONTAINMENT.items():
        wanted = stated.get(key, "no").lower() in _YES
        if wanted != (word != "swap"):
            words[word] = wanted
    for key, word, needed in _PERCENTAGES:
        if stated.get(key, "").isdecimal() and stated.get(needed, "no").lower() in _YES:
            words[word] = int(stated[key])
    return words


def _job_container(settings: Mapping[str, str], stated: Mapping[str, str]) -> Words:
    plugin = settings.get("jobcontainertype") or settings.get("namespacetype", "")
    if plugin.rpartition("/")[2] != "tmpfs" or "basepath" not in stated:
        return {}
    words: Words = {"base_path": stated["basepath"]}
    if stated.get("autobasepath", "false").lower() not in _YES:
        words["create_base_path"] = False
    folders = stated.get("dirs", ",".join(_FOLDERS)).split(",")
    if sorted(folders) != sorted(_FOLDERS):
        words["folders"] = folders
    if stated.get("shared", "false").lower() in _YES:
        words["shared"] = True
    return {**words, **({"init_script": stated["initscript"]} if "initscript" in stated else {})}


def _scripts(settings: Mapping[str, str]) -> Words:
    words: Words = {word: settings[key] for key, word in _SCRIPTS.items() if settings.get(key)}
    if settings.get("healthcheckprogram"):
        check: Words = {"program": settings["healthcheckprogram"]}
        interval = _time(settings, "healthcheckinterval", 1)
        check |= {"interval": interval} if interval else {}
        check["state"] = settings.get("healthchecknodestate", "any").lower()
        words["health_check"] = check
    return words


def empty_blocks(files: Mapping[str, str]) -> list[str]:
    """The blocks of topology.conf that have no nodes, which no site file can have."""
    blocks = [line for line in _topology_lines(files) if "blockname" in line]
    return [block["blockname"] for block in blocks if not block.get("nodes")]


def _topology_lines(files: Mapping[str, str]) -> list[dict[str, str]]:
    lines = parse_lines(files, "topology.conf") if "topology.conf" in files else ()
    return [{pair.key.lower(): pair.value for pair in line} for line in lines]


def _topology(settings: Mapping[str, str], files: Mapping[str, str]) -> Words:
    kind = settings.get("topologyplugin", "").removeprefix("topology/")
    if kind not in ("tree", "block") or "topology.conf" not in files:
        return {}
    lines = _topology_lines(files)
    if kind == "block":
        stated = (each for line in lines for each in line.get("blocksizes", "").split(",") if each)
        sizes = [whole("BlockSizes", {"blocksizes": each}) for each in stated]
        blocks = [
            {"name": each["blockname"], "nodes": each["nodes"]}
            for each in lines
            if "blockname" in each and each.get("nodes")
        ]
        return {"kind": kind, **({"block_sizes": sizes} if sizes else {}), "blocks": blocks}
    return {"kind": kind, "switches": [_switch(each) for each in lines if "switchname" in each]}


def _switch(line: Mapping[str, str]) -> Words:
    below = line.get("switches", "")
    return {
        "name": line["switchname"],
        **({"nodes": line["nodes"]} if "nodes" in line else {}),
        **({"switches": list(expand(below))} if below else {}),
    }


def _power_saving(settings: Mapping[str, str]) -> Words:
    if "resumeprogram" not in settings or "suspendprogram" not in settings:
        return {}
    words: Words = {word: settings[key] for key, word in _POWER_PROGRAMS.items() if settings.get(key)}
    for key, word in _POWER_TIMES.items():
        stated = _time(settings, key, 1)
        words |= {word: stated} if stated else {}
    rates = {
        word: int(settings[key]) for key, word in _POWER_RATES.items() if settings.get(key, "").isdecimal()
    }
    return {**words, **rates}
