"""Nodes that come when there is work, and go again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hpctools.site.base import Model
from hpctools.site.scalars import Duration, FilePath

Rate = Annotated[int, Field(ge=0, le=65_535)]
Wait = Annotated[Duration, Field(ge=1, le=65_535)]


class PowerSaving(Model):
    """How nodes between a group's `min` and `max` come and go; the first `min` always stay."""

    resume_program: FilePath
    """Run on the controller as the Slurm account with a host list: makes these nodes come."""
    suspend_program: FilePath
    """Run likewise: lets these nodes go."""
    resume_fail_program: FilePath | None = None
    """Run likewise for nodes that did not come in time."""
    suspend_time: Annotated[Duration, Field(ge=1)] = 600
    """A node goes after it was idle this long."""
    resume_timeout: Wait = 900
    """A node that did not come within this time is given up, and its job waits again."""
    suspend_timeout: Wait = 120
    """A node is gone after this time and may come again."""
    resume_rate: Rate = 300
    """Nodes that may come in one minute; 0 for any number."""
    suspend_rate: Rate = 60
    """Nodes that may go in one minute; 0 for any number."""
