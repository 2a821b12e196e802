"""Whole configurations in one folder, of which one is in force; changing it is a single rename.

    slurm.conf     -> .hpctools/current/slurm.conf
    slurmdbd.conf  -> .hpctools/current/slurmdbd.conf
    .hpctools/
        lock       held by whoever changes the folder, on whichever host that shares it
        current    -> 7
        6/  slurm.conf gres.conf slurmdbd.conf ...
        7/  slurm.conf gres.conf slurmdbd.conf ...

At every instant a daemon that opens the files by their usual names finds those of one generation. Files that
we do not manage stay beside the links.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from hpctools.conf import durable
from hpctools.conf.apply import fileset
from hpctools.conf.apply.fileset import FileSet
from hpctools.conf.apply.writing import writing

STORE = ".hpctools"
CURRENT = "current"
BACK = "back"
LOCK = "lock"
_NEW = "new-"


class Generations:
    """The generations of one configuration folder.

    Args:
        folder: Slurm's configuration folder; may itself be a symbolic link.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.store = self.folder / STORE

    def lock(self) -> Path:
        """The lock file of everybody who changes this folder; its own folder is made when missing.

        Raises:
            HpctoolsError: it cannot be made.
        """
        with writing(self.folder):
            self._open_store()
        return self.store / LOCK

    @property
    def current(self) -> int | None:
        """The generation in force; None when the folder has not been taken over yet."""
        return _leads_to(self.store / CURRENT)

    def managed(self) -> tuple[str, ...]:
        """Names of the files that the generation in force has."""
        number = self.current
        try:
            return tuple(sorted(path.name for path in (self.store / str(number)).iterdir()))
        except OSError:
            return ()

    def stage(self, files: FileSet) -> int:
        """Put down a whole generation, which is not in force yet; return its number.

        Raises:
            HpctoolsError: it cannot be written; nothing has changed.
        """
        with writing(self.folder):
            self._open_store()
            number = max(self._numbers(), default=-1) + 1
            fresh = self.store / f"{_NEW}{number}"
            try:
                self._fill(fresh, files)
                fresh.rename(self.store / str(number))
            except BaseException:
                shutil.rmtree(fresh, ignore_errors=True)
                raise
            durable.sync(self.store)
        return number

    def _open_store(self) -> None:
        if not self.store.is_dir():
            self.store.mkdir(mode=0o755, parents=True, exist_ok=True)
            self.store.chmod(0o755)  # commands of every account read slurm.conf, whatever our umask is

    def _fill(self, fresh: Path, files: FileSet) -> None:
        shutil.rmtree(fresh, ignore_errors=True)  # what a killed apply left
        fresh.mkdir(mode=0o755)
        fresh.chmod(0o755)
        for name, file in files.items():
            durable.create(fresh / name, file.content, file.mode, file.owner, file.modified)
        durable.sync(fresh)

    def adopt(self, names: Iterable[str]) -> None:
        """Make the folder's files links, without changing what anybody reads through their names.

        Files that are no links of ours become a generation as they are, first; then each is replaced.

        Args:
            names: files to take over beside those that are managed already.

        Raises:
            HpctoolsError: the folder cannot be written; every file reads as before.
        """
        every = sorted({*names, *self.managed()})
        foreign = [name for name in every if not self._is_ours(name)]
        if not foreign and self.current is not None:
            return
        present = fileset.read(self.folder, every)
        if self.current is None or set(foreign) & set(present):
            self.switch(self.stage(present))
        with writing(self.folder):
            for name in foreign:
                self._link(Path(STORE, CURRENT, name), self.folder / name)
            durable.sync(self.folder)

    def hold(self) -> None:
        """Make the way back to the generation in force while there is room for it: a disk may fill meanwhile.

        Raises:
            HpctoolsError: it cannot be made; nothing has changed.
        """
        with writing(self.folder):
            self._link(Path(str(self.current)), self.store / BACK)

    def switch(self, number: int) -> None:
        """Put a generation in force: one rename; to the one that is held it takes no room on the disk.

        Raises:
            HpctoolsError: it cannot be done; the generation in force is as before.
        """
        with writing(self.folder):
            if _leads_to(self.store / BACK) == number:
                (self.store / BACK).replace(self.store / CURRENT)
            else:
                self._link(Path(str(number)), self.store / CURRENT)
            durable.sync(self.store)

    def tidy(self, keep: Collection[int]) -> None:
        """Remove generations but those to keep and the one in force, remains of killed applies, dead links.

        Raises:
            HpctoolsError: the folder cannot be written.
        """
        kept = {str(number) for number in (*keep, self.current)}
        with writing(self.folder):
            for path in self._strangers(kept):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            for path in list(self.folder.iterdir()):
                if path.is_symlink() and self._is_ours(path.name) and not path.exists():
                    path.unlink()

    def _strangers(self, kept: Collection[str]) -> list[Path]:
        return [path for path in self.store.iterdir() if path.name not in (CURRENT, LOCK, *kept)]

    def _numbers(self) -> Iterator[int]:
        return (int(path.name) for path in self.store.iterdir() if path.name.isdecimal())

    def _is_ours(self, name: str) -> bool:
        path = self.folder / name
        return path.is_symlink() and path.readlink() == Path(STORE, CURRENT, name)

    def _link(self, target: Path, path: Path) -> None:
        fresh = self.store / f"{_NEW}link"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target)
        try:
            fresh.replace(path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise


def _leads_to(link: Path) -> int | None:
    try:
        return int(link.readlink().name)
    except (OSError, ValueError):
        return None
