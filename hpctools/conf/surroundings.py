"""What surrounds a job on its node: programs around it, its private folders, what it is kept to."""

from __future__ import annotations

from hpctools.conf.facts import Facts
from hpctools.conf.text import HEADER, Said, changed, section
from hpctools.errors import SiteError
from hpctools.site.jobs import JobContainer
from hpctools.site.model import Site
from hpctools.slurm.versions import (
    Release,
    calls_job_containers_namespaces,
    knows_cgroup_disabled,
    knows_job_container_folders,
    spell_release,
)

_USUAL_FOLDERS = {"/tmp", "/dev/shm"}  # noqa: S108


def script_settings(site: Site) -> dict[str, object]:
    """Return the settings of slurm.conf for programs around jobs."""
    scripts = site.cluster.scripts
    stated = {
        "Prolog": ("prolog", scripts.prolog),
        "Epilog": ("epilog", scripts.epilog),
        "PrologSlurmctld": ("prolog_slurmctld", scripts.prolog_slurmctld),
        "EpilogSlurmctld": ("epilog_slurmctld", scripts.epilog_slurmctld),
        "TaskProlog": ("task_prolog", scripts.task_prolog),
        "TaskEpilog": ("task_epilog", scripts.task_epilog),
    }
    settings: dict[str, object] = {
        key: Said(path, ("cluster", "scripts", word)) for key, (word, path) in stated.items()
    }
    check = scripts.health_check
    if check is not None:
        place = ("cluster", "scripts", "health_check")
        settings["HealthCheckProgram"] = Said(check.program, (*place, "program"))
        settings["HealthCheckInterval"] = Said(check.interval, (*place, "interval"))
        settings["HealthCheckNodeState"] = Said(check.state.upper(), (*place, "state"))
    return settings


def container_settings(site: Site, release: Release) -> dict[str, object]:
    """Return the setting of slurm.conf that gives jobs private folders; none where the site wants none."""
    if site.cluster.job_container is None:
        return {}
    renamed = calls_job_containers_namespaces(release)
    key, plugin = (
        ("NamespaceType", "namespace/tmpfs") if renamed else ("JobContainerType", "job_container/tmpfs")
    )
    return {key: Said(plugin, ("cluster", "job_container"))}


def job_container_conf(site: Site, container: JobContainer, release: Release) -> str:
    """Render job_container.conf.

    Raises:
        SiteError: the site wants folders or shared mounts that the release does not know.
    """
    place = ("cluster", "job_container")
    unusual = set(container.folders) != _USUAL_FOLDERS
    if (unusual or container.shared) and not knows_job_container_folders(release):
        raise SiteError(
            f"Slurm {spell_release(release)} knows neither `folders` nor `shared` of cluster.job_container",
            "leave both out, or use Slurm 23.02 or later",
        )
    settings = {
        "BasePath": Said(container.base_path, (*place, "base_path")),
        "AutoBasePath": Said("true" if container.create_base_path else "false", (*place, "create_base_path")),
        "Dirs": Said(",".join(container.folders) if unusual else None, (*place, "folders")),
        "Shared": Said("true" if container.shared else None, (*place, "shared")),
        "InitScript": Said(container.init_script, (*place, "init_script")),
    }
    return HEADER + section("Private folders of each job", settings, site.source)


def cgroup_conf(site: Site, facts: Facts, release: Release) -> str:
    """Render cgroup.conf: what the site wants jobs to be kept to, as far as the nodes can do it."""
    if facts.cgroup == "none":
        plugin = "disabled" if knows_cgroup_disabled(release) else None
        return HEADER + section("No cgroups here", {"CgroupPlugin": plugin})
    stated, place = site.cluster.containment, ("cluster", "containment")
    memory = stated.memory and facts.constrain_ram
    settings = {
        "CgroupPlugin": f"cgroup/{facts.cgroup}",
        "ConstrainCores": Said(stated.cores and facts.constrain_cores, (*place, "cores")),
        "ConstrainRAMSpace": Said(memory, (*place, "memory")),
        "ConstrainSwapSpace": Said(True if stated.swap and memory else None, (*place, "swap")),
        "AllowedRAMSpace": Said(stated.memory_percent, (*place, "memory_percent")),
        "AllowedSwapSpace": Said(stated.swap_percent, (*place, "swap_percent")),
        "ConstrainDevices": Said(stated.devices and facts.constrain_devices, (*place, "devices")),
    }
    more = {key: Said(value, (*place, "parameters", key)) for key, value in stated.parameters.items()}
    return HEADER + section("What jobs are kept to", changed(settings, more), site.source)
