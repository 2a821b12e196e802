"""Changes of slurm.conf's settings: pure."""

from __future__ import annotations

from collections.abc import Iterator

from hpctools.conf.plan import effects, keys
from hpctools.conf.plan.meaning import Setting
from hpctools.conf.plan.model import Change, Need
from hpctools.conf.plan.needs import setting_needs
from hpctools.conf.plan.sides import Difference, Sides, differ, lighter

# Shown under one of these names only.
_ONE_OF = {"defmempercpu", "defmempernode", "maxmempercpu", "maxmempernode"}
# Not by themselves: they follow from node lines and others.
_DERIVED = {"maxnodecount"}
_SECRET = {"jobcomppass", "accountingstoragepass"}


def setting_changes(sides: Sides) -> Iterator[Change]:
    """Yield a change for each setting that differs; none when there is no configuration at all yet."""
    if sides.now is None:
        return
    wanted = sides.wanted.settings
    disk = sides.disk.settings if sides.disk else {}
    stated = dict.fromkeys(
        (*wanted, *disk, *(key for key in _running(sides) if sides.default(key) is not None))
    )
    for key in stated:
        found = _difference(sides, key)
        if found:
            spelled = (wanted.get(key) or disk.get(key) or sides.running.settings[key]).key  # type: ignore[union-attr]
            yield _change(sides, key, spelled, found)


def _running(sides: Sides) -> dict[str, Setting]:
    return dict(sides.running.settings) if sides.running else {}


def _difference(sides: Sides, key: str) -> Difference | None:
    running = _shown(sides, key)
    disk = None if sides.disk is None else (_value(sides.disk.settings.get(key)),)
    if key in _DERIVED and key not in sides.wanted.settings:
        running = None

    def canonical(value: str | None) -> str:
        return keys.setting(key, (sides.default(key) or "") if value is None else value)

    return differ(_value(sides.wanted.settings.get(key)), disk, running, canonical)


def _shown(sides: Sides, key: str) -> tuple[str | None] | None:
    """What runs; None when it is not shown, or when nobody states it and its default is not known."""
    if sides.running is None:
        return None
    found = sides.running.settings.get(key)
    if found is None:
        return (None,) if key in _ONE_OF else None
    stated = key in sides.wanted.settings or sides.default(key) is not None
    return (found.value,) if stated or keys.setting(key, found.value) == "" else None


def _value(setting: Setting | None) -> str | None:
    return setting.value if setting else None


def _change(sides: Sides, key: str, spelled: str, found: Difference) -> Change:
    need = lighter(found, setting_needs(key, sides.release))
    by_node = need in (Need.RESTART_DAEMONS, Need.RESTART_SLURMDS, Need.DRAIN)
    jobs = tuple(job for job in sides.jobs if job.nodes) if need is Need.DRAIN else ()
    drains = tuple(dict.fromkeys(name for job in jobs for name in job.nodes))
    before, after = (
        "(secret)" if value and key in _SECRET else value for value in (found.before, found.after)
    )
    return Change(
        "cluster",
        sides.cluster,
        spelled,
        before,
        after,
        need,
        effects.of_setting(found, jobs),
        sides.slurmds() if by_node else (),
        tuple(job.id for job in jobs),
        drains,
    )
