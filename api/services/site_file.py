"""The site file, read again when it changed."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from api.auth.people import People
from api.db.in_loop import takes_long
from hpctools.budget.from_site import budget_site
from hpctools.budget.tree import BudgetSite
from hpctools.errors import SiteError
from hpctools.site import Site


class SiteFile:
    """The site as the budget sees it, always as the file is now.

    Args:
        path: the site file.
        metric: the cost measure that the service reads.
    """

    def __init__(self, path: Path, metric: str) -> None:
        self._path = path
        self._metric = metric
        self._lock = Lock()
        self._stamp: tuple[int, int] | None = None
        self._site: BudgetSite | None = None
        self._declared: Site | None = None
        self._people = People()

    def current(self) -> BudgetSite:
        """The site.

        Raises:
            SiteError: the file cannot be read or has findings.
        """
        return self._read()[0]

    def declared(self) -> Site:
        """All that the file declares.

        Raises:
            SiteError: the file cannot be read or has findings.
        """
        return self._read()[1]

    def people(self) -> People:
        """Who leads and who works in which account.

        Raises:
            SiteError: the file cannot be read or has findings.
        """
        return self._read()[2]

    def _read(self) -> tuple[BudgetSite, Site, People]:
        if self._lock.locked():
            takes_long()
        with self._lock:
            stamp = self._stat()
            if self._site is None or self._declared is None or stamp != self._stamp:
                takes_long()
                from hpctools.site import load

                site = load(self._path)
                self._site = budget_site(site, self._metric)
                self._declared = site
                self._people = People.of(site)
                self._stamp = stamp
            return self._site, self._declared, self._people

    def _stat(self) -> tuple[int, int]:
        try:
            status = self._path.stat()
        except OSError as error:
            raise SiteError(
                f"cannot read the site file {self._path}: {error.strerror}", "set HPCTOOLS_API_SITE"
            ) from None
        return status.st_mtime_ns, status.st_size
