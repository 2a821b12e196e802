"""The site file, read again when it changed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread

from api.auth.people import People
from api.db.in_loop import takes_long
from api.services.login_rules import Rules
from hpctools.budget.from_site import budget_site
from hpctools.budget.tree import BudgetSite
from hpctools.errors import SiteError
from hpctools.site import Site

_log = logging.getLogger("hpctools.api")
REST_SECONDS = 10.0
"""So long a file that cannot be used is not read again, unless it changes: a large one takes seconds, and
questions come all the time."""
Stamp = tuple[int, int]


@dataclass(frozen=True)
class Version:
    """What the file said when it could be used.

    Attributes:
        stamp: the file's, then; None when it came only while it was read.
        site: as the budget sees it.
        declared: all of it.
        people: who leads and who works in which account.
        rules: what it says of login nodes.
    """

    stamp: Stamp | None
    site: BudgetSite
    declared: Site
    people: People
    rules: Rules


@dataclass(frozen=True)
class _Slip:
    """A file that cannot be used.

    Attributes:
        stamp: the file's; None where there is none.
        words: why, and what to do; the error itself would hold all that was read.
        until: when it is read again though it did not change.
    """

    stamp: Stamp | None
    words: tuple[str, str]
    until: float


def _words(error: Exception) -> tuple[str, str]:
    if isinstance(error, SiteError):
        return error.message, error.remedy
    return f"the site file cannot be read: {error!r}", "undo the last change, and report this"


def _in_thread(work: Callable[[], None]) -> None:
    Thread(target=work, name="site-file", daemon=True).start()


class SiteFile:
    """What the site file says: always as it is now, or for logins, which never wait, as it was before.

    Args:
        path: the site file.
        metric: the cost measure that the service reads.
        monotonic: seconds, never going back.
        beside: does some work while whoever asks goes on.
    """

    def __init__(
        self,
        path: Path,
        metric: str,
        monotonic: Callable[[], float] = time.monotonic,
        beside: Callable[[Callable[[], None]], None] = _in_thread,
    ) -> None:
        self._path, self._metric, self._monotonic, self._beside = path, metric, monotonic, beside
        self._lock, self._renewing = Lock(), Lock()
        self._good: Version | None = None
        self._slip: _Slip | None = None
        self._said: tuple[Stamp | None, str] | None = None

    def current(self) -> BudgetSite:
        """The site as the budget sees it.

        Raises:
            SiteError: the file cannot be read or has findings.
        """
        return self._read().site

    def declared(self) -> Site:
        """All that the file declares.

        Raises:
            SiteError: the file cannot be read or has findings.
        """
        return self._read().declared

    def people(self) -> People:
        """Who leads and who works in which account; while the file cannot be used, as it said before.

        Raises:
            SiteError: the file cannot be used, and never could since the service began.
        """
        try:
            return self._read().people
        except SiteError:
            if self._good is None:
                raise
            return self._good.people

    @property
    def is_known(self) -> bool:
        """Whether `in_force` answers at once, whatever happens to the file."""
        return self._good is not None

    def in_force(self) -> Version:
        """What counts for logins.

        Once the file could be used, nobody waits for it: a change is read beside, and what it said before
        counts until then; also while it cannot be used, so that a slip keeps nobody out.

        Raises:
            SiteError: the file cannot be used, and never could since the service began.
        """
        good = self._good
        if good is None:
            return self._read()
        stamp = self._stamp()
        if stamp != good.stamp and not self._rests(stamp):
            self._renew_beside()
        return good

    def _read(self) -> Version:
        if self._lock.locked():
            takes_long()
        with self._lock:
            stamp = self._stamp()
            if self._good is not None and stamp is not None and stamp == self._good.stamp:
                return self._good
            if (slip := self._slip) is not None and self._rests(stamp):
                raise SiteError(*slip.words)
            takes_long()
            try:
                self._good = self._load(stamp)
            except Exception as error:
                self._slip = _Slip(stamp, _words(error), self._monotonic() + REST_SECONDS)
                raise
            return self._good

    def _load(self, stamp: Stamp | None) -> Version:
        from hpctools.site import load

        try:
            self._path.stat()
        except OSError as error:
            raise SiteError(
                f"cannot read the site file {self._path}: {error.strerror}", "set HPCTOOLS_API_SITE"
            ) from None
        site = load(self._path)
        return Version(stamp, budget_site(site, self._metric), site, People.of(site), Rules.of(site))

    def _rests(self, stamp: Stamp | None) -> bool:
        slip = self._slip
        return slip is not None and slip.stamp == stamp and self._monotonic() < slip.until

    def _renew_beside(self) -> None:
        if not self._renewing.acquire(blocking=False):
            return
        try:
            self._beside(self._renew)
        except RuntimeError as error:  # the kernel gives no more threads; the next question tries again
            self._renewing.release()
            _log.error("the site file cannot be read now: %s", error)

    def _renew(self) -> None:
        try:
            self._read()
        except Exception as error:  # noqa: BLE001 - logins go on, whatever it is
            self._say(error)
        finally:
            self._renewing.release()

    def _say(self, error: Exception) -> None:
        """Once for each version of the file."""
        told = (self._slip.stamp if self._slip is not None else None, str(error))
        if told != self._said:
            self._said = told
            trace = None if isinstance(error, SiteError) else error
            _log.error(
                "the site file cannot be used, logins go by what it said before: %s", error, exc_info=trace
            )

    def _stamp(self) -> Stamp | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size
