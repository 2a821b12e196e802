"""site/settings.json: what the site says of the nodes, made by `hpctools hyperpod bundle`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provision.failures import Failure
from provision.files import read_json

VERSION = 1


@dataclass(frozen=True)
class Settings:
    """The settings of all steps.

    Attributes:
        sections: one for each concern, by its name.
        folder: the folder of the file, beside which rendered files lie.
    """

    sections: dict[str, Any]
    folder: Path

    def section(self, name: str) -> Any:
        """Return a section; an empty object when the site says nothing of it."""
        return self.sections.get(name) or {}

    def groups(self) -> dict[str, str]:
        """Return the role of each node group, by the group's exact name.

        Raises:
            Failure: the settings do not tell.
        """
        groups = self.section("cluster").get("groups")
        if not isinstance(groups, dict):
            raise Failure(f"{self.folder}/settings.json has no roles: bundle and upload again", exit_code=3)
        return groups


def read_settings(path: Path) -> Settings:
    """Read the settings.

    Raises:
        Failure: they are missing, damaged, or of another version.
    """
    found = read_json(path, "the site's settings")
    if not isinstance(found, dict) or found.get("version") != VERSION:
        version = found.get("version") if isinstance(found, dict) else None
        raise Failure(
            f"{path} is of version {version}, and these scripts read {VERSION}: "
            "bundle and upload both together with `hpctools hyperpod upload`",
            hopeless=True,
            exit_code=3,
        )
    return Settings(found, path.parent)
