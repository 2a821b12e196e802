"""Where each thing stood in the site file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

from hpctools.site.findings import Finding, Location, spell_path


@dataclass(frozen=True)
class Source:
    """The file that a site was read from. All sources are equal: two sites are told apart by what they say.

    Attributes:
        file: the file's path as it was given; empty for a site that was built in code.
        lines: the line (from 1) of each location that the file states.
    """

    file: str = field(default="", compare=False)
    lines: Mapping[Location, int] = field(default_factory=dict, compare=False, repr=False)

    def line(self, location: Location) -> int:
        """Return the line of a location, or of the nearest thing around it; 0 without a file."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 1) if self.file else 0

    def finding(
        self,
        location: Location,
        found: str,
        expected: str,
        severity: Literal["error", "warning"] = "error",
    ) -> Finding:
        """Make a finding about a location."""
        return Finding(self.file, self.line(location), spell_path(location), found, expected, severity)

    def warning(self, location: Location, found: str, expected: str) -> Finding:
        """Make a finding that people should see and that keeps nothing from being used."""
        return self.finding(location, found, expected, "warning")

    def comment(self, location: Location) -> str | None:
        """Say which line of the file made something: `site.yaml:42 departments[0].partition`.

        Returns:
            The file's name without its folder, the line and the path, harmless in a Slurm file; None when
            the file does not state the location.
        """
        if location not in self.lines:
            return None
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", PurePath(self.file).name)
        path = re.sub(r"[^A-Za-z0-9_.\[\]-]", "_", spell_path(location))
        return f"{name}:{self.lines[location]} {path}"
