"""How long a command waits for a cluster that was there (docs/decisions/0231-what-is-waited-for.md)."""

from __future__ import annotations

from dataclasses import dataclass

from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.remote.session import Session, SickNode
from hpctools.remote.ssh_config import SshFailed
from hpctools.remote.transport import NoKeyTaken, NotSigned, TurnedAway

LONGEST_SECONDS = 900.0
"""In all pauses, while nothing comes: a quarter of an hour awake without a network."""
_KEYS = (NoKeyTaken, NotSigned)
_KEYS_PAUSE = 60.0
_LINE = (UnreachableError, TurnedAway)
_LINE_PAUSE = 15.0
_LONGEST_PAUSE = 60.0


@dataclass
class Patience:
    """A wait for a cluster that was there.

    Attributes:
        session: what is asked again.
        waited: seconds of pauses since something came.
        tries: as many pauses.
        told: what was said meanwhile.
    """

    session: Session
    waited: float = 0.0
    tries: int = 0
    told: frozenset[str] = frozenset()

    def renew(self) -> None:
        """Something has come."""
        self.waited, self.tries, self.told = 0.0, 0, frozenset()

    def wait(self, error: HpctoolsError) -> bool:
        """Wait before the next attempt; False where it has been long enough.

        Keys and nodes that failed are asked again after it. Each thing that is waited for is said once.
        """
        pause = _pause(error, self.tries)
        if self.waited + pause > LONGEST_SECONDS:
            return False
        if error.message not in self.told:
            self.told |= {error.message}
            remedy = "" if isinstance(error, _LINE) or not error.remedy else f" ({error.remedy})"
            self.session.tell(f"{error.message}; trying again{remedy}")
        self.session.sleep(pause)
        self.waited, self.tries = self.waited + pause, self.tries + 1
        self.session.forgive()
        return True


def passes(error: HpctoolsError) -> bool:
    """Whether something on the way to a cluster may pass by itself, or by what a person does elsewhere.

    Who a host is does not pass, nor does a password that was wrong: asked for again it locks an account.
    """
    return isinstance(error, (*_LINE, *_KEYS, SickNode, SshFailed))


def _pause(error: HpctoolsError, tries: int) -> float:
    if isinstance(error, _KEYS):
        return _KEYS_PAUSE  # sites count such attempts
    return min(_LINE_PAUSE if isinstance(error, _LINE) else _LONGEST_PAUSE, 2.0**tries)
