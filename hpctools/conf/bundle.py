"""What the compiler produces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpctools.conf.accounts import AccountTree
from hpctools.errors import UsageError


@dataclass(frozen=True)
class File:
    """One file of a configuration.

    Attributes:
        path: relative to Slurm's configuration folder (/etc/slurm on Debian).
        text: the whole content; may hold a password, so it is kept out of `repr`.
        mode: permission bits.
    """

    path: str
    text: str = field(repr=False)
    mode: int = 0o644


@dataclass(frozen=True)
class Bundle:
    """A whole configuration: the files, and the accounts that slurmdbd should have.

    Attributes:
        files: those of the controllers' configuration folder.
        accounts: what slurmdbd should know.
        elsewhere: files that belong on another host, by its name: slurmdbd.conf, where slurmdbd runs on a
            host of its own.
    """

    files: tuple[File, ...]
    accounts: AccountTree
    elsewhere: Mapping[str, tuple[File, ...]] = field(default_factory=dict)

    def file(self, path: str) -> File:
        """Return a file by its path.

        Raises:
            UsageError: there is none.
        """
        for file in self.files:
            if file.path == path:
                return file
        raise UsageError(
            f"the bundle has no file {path!r}", f"it has: {', '.join(f.path for f in self.files)}"
        )
