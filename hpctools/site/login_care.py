"""How people on login nodes share them: limits, a penalty that eases, sessions that nobody uses."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from hpctools.site.base import Model
from hpctools.site.scalars import Duration, matching, refuse

Program = Annotated[str, Field(min_length=1, max_length=15)]
"""A program's name as the kernel has it: cut after 15 characters."""
Service = Annotated[
    str,
    BeforeValidator(
        matching(r"[A-Za-z0-9:_.@\\-]{1,247}\.service", "a systemd service, such as amazon-ssm-agent.service")
    ),
]
Part = Annotated[float, Field(gt=0, le=1)]
Gib = Annotated[float, Field(gt=0, le=100_000)]


class Care(Model):
    """What one person may use of a login node. Administrators and accounts of the system are left alone."""

    cpus: Annotated[float, Field(gt=0, le=10_000)] = 4.0
    """Processors that one may use at length."""
    memory_gib: Gib = 16.0
    """Memory that one may use at length."""
    most_cpus: Annotated[float, Field(gt=0, le=10_000)] | None = None
    """Processors that the kernel never exceeds for one person; no limit when left out."""
    most_memory_gib: Gib | None = None
    """Memory above which the kernel ends a program of theirs; no limit when left out."""
    patience: Annotated[Duration, Field(ge=10, le=86_400)] = 600
    """How long somebody may use more than that; twice as much for half as long."""
    penalty: Annotated[Duration, Field(ge=10, le=86_400)] = 1800
    """How long each level of the penalty lasts before it eases."""
    levels: Annotated[tuple[Part, ...], Field(min_length=1, max_length=10)] = (0.8, 0.5, 0.3)
    """Part of `cpus` and `memory_gib` that is left at each level; a relapse begins a level further."""
    forget_after: Annotated[Duration, Field(ge=60, le=2_592_000)] = 10_800
    """After this time without a penalty one relapse is forgotten."""
    ignored: tuple[Program, ...] = ("cc1", "cc1plus", "ld", "nvcc", "ptxas", "rsync", "sftp-server")
    """Programs that do not count, since login nodes are for them."""
    services: tuple[Service, ...] = (
        "amazon-ssm-agent.service",
        "snap.amazon-ssm-agent.amazon-ssm-agent.service",
    )
    """Services that start people's programs without PAM, as Session Manager's agent does: these programs are
    put into their owner's slice, where limits hold. With an empty list none are."""

    @model_validator(mode="after")
    def _coherent(self) -> Care:
        if list(self.levels) != sorted(set(self.levels), reverse=True):
            refuse("levels that become smaller, such as [0.8, 0.5, 0.3]")
        if self.most_cpus is not None and self.most_cpus < self.cpus:
            refuse("most_cpus of at least cpus")
        if self.most_memory_gib is not None and self.most_memory_gib < self.memory_gib:
            refuse("most_memory_gib of at least memory_gib")
        return self


class IdleSessions(Model):
    """Sessions with a terminal in which nobody types and nothing runs."""

    after: Annotated[Duration, Field(ge=60, le=31_536_000)] = 28_800
    """They are warned after this time."""
    warning: Annotated[Duration, Field(ge=30, le=86_400)] = 600
    """And closed so long after the warning."""
    spare_multiplexed: bool = True
    """Whether a session that looks at a tmux or screen stays open. tmux itself is never ended."""
    spared: tuple[Program, ...] = ()
    """Programs that wait for jobs, such as a workflow manager: a session in which one runs stays open."""
