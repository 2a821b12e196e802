"""From sacctmgr's settings to the words of a site file; what those cannot say stays in sacctmgr's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpctools.conf.accounts import Settings
from hpctools.conf.vocabulary import parse_tres
from hpctools.site.scalars import spell_duration

Words = dict[str, Any]
"""A part of a site file, as YAML has it."""

_TIMES = {"MaxWall", "GrpWall", "GraceTime", "PreemptExemptTime"}
_TOGETHER = {"gres/gpu": "gpus", "cpu": "cpus", "node": "nodes", "mem": "memory_mib"}
_PER_JOB = {"gres/gpu": "gpus_per_job", "cpu": "cpus_per_job", "node": "nodes_per_job"}
_NUMBERS = {
    "GrpJobs": "jobs",
    "GrpSubmitJobs": "submitted_jobs",
    "MaxJobs": "jobs_per_user",
    "MaxSubmitJobs": "submitted_jobs_per_user",
}
_HOURS = {"gres/gpu": "gpu_hours", "cpu": "cpu_hours"}
_TIER_NUMBERS = {"MaxJobsPerUser": "jobs_per_user", "MaxSubmitJobsPerUser": "submitted_jobs_per_user"}
_MOST_PRIORITY, _LONGEST_GRACE = 1_000_000, 3600  # hpctools.site.tiers


@dataclass
class _Told:
    """Words that are found, and settings that are not yet said."""

    words: Words = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def take(self, setting: str, word: str) -> None:
        """Say a whole setting by one word."""
        if self.left.get(setting):
            self.words[word] = int(self.left.pop(setting))

    def take_time(self, setting: str, word: str) -> None:
        """Say a time by one word."""
        if int(self.left.get(setting) or 0):
            self.words[word] = spell_duration(int(self.left.pop(setting)))

    def take_tres(self, setting: str, names: Mapping[str, str], minutes: int = 1) -> None:
        """Say those TRES of a setting that have a word; `minutes` is how many of its units a word counts."""
        counts = parse_tres(self.left.pop(setting, ""))
        for name, word in names.items():
            count = counts.get(name, "")
            if count.isdecimal() and int(count) % minutes == 0:
                self.words[word] = int(counts.pop(name)) // minutes
        if counts:
            self.left[setting] = ",".join(f"{name}={count}" for name, count in counts.items())


def limits(settings: Settings) -> tuple[Words, Settings]:
    """Return the `limits` of an account or a person, and the settings that those do not say."""
    told = _Told(left={key: value for key, value in settings.items() if value})
    told.take_tres("GrpTRES", _TOGETHER)
    for setting, word in _NUMBERS.items():
        told.take(setting, word)
    told.take_tres("GrpTRESMins", _HOURS, 60)
    told.take_tres("MaxTRES", _PER_JOB)
    told.take_time("MaxWall", "max_time")
    return told.words, told.left


def tier(settings: Settings) -> Words:
    """Return the whole entry of a tier, but for its being the default."""
    told = _Told(left={key: value for key, value in settings.items() if value})
    priority = int(settings.get("Priority") or 0)
    told.words["priority"] = priority if priority <= _MOST_PRIORITY else 0
    if priority <= _MOST_PRIORITY:
        told.left.pop("Priority", None)
    if settings.get("Preempt"):
        told.words["preempts"] = told.left.pop("Preempt").split(",")
    _preemption(told)
    for setting, word in _TIER_NUMBERS.items():
        told.take(setting, word)
    told.take_time("PreemptExemptTime", "protected_time")
    told.take_time("MaxWall", "max_time")
    told.take_tres("MaxTRESPerUser", {"gres/gpu": "gpus_per_user", "cpu": "cpus_per_user"})
    told.take_tres("MaxTRESPerJob", {"gres/gpu": "gpus_per_job"})
    told.take_tres("GrpTRES", {"gres/gpu": "gpus"})
    _usage(told)
    return {**told.words, **settings_words(told.left)}


def _preemption(told: _Told) -> None:
    mode = told.left.get("PreemptMode", "cluster")
    if mode in ("cancel", "requeue"):
        told.words["when_preempted"] = mode
    if mode in ("cluster", "cancel", "requeue"):
        told.left.pop("PreemptMode", None)
    grace = int(told.left.get("GraceTime") or 0)
    if grace <= _LONGEST_GRACE:
        told.take_time("GraceTime", "grace_time")
        told.left.pop("GraceTime", None)


def _usage(told: _Told) -> None:
    percent = float(told.left.get("UsageFactor") or 1) * 100
    if percent == round(percent) and percent <= 10_000:
        told.left.pop("UsageFactor", None)
        if percent != 100:
            told.words["usage_percent"] = round(percent)


def settings_words(left: Settings) -> Words:
    """Return the entry `settings`, if there is anything to say in it."""
    spelled = {key: spell_setting(key, value) for key, value in left.items()}
    return {"settings": spelled} if spelled else {}


def spell_setting(word: str, value: str) -> str:
    """Spell a canonical value as a site file does: times as people read them."""
    return spell_duration(int(value)) if word in _TIMES and value.isdecimal() else value
