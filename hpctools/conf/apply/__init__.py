"""Apply: one change of a live cluster, as a transaction with a history."""

from hpctools.conf.apply.cluster import Accounts, Boot, Cluster, Daemons, Planner
from hpctools.conf.apply.generations import Generations
from hpctools.conf.apply.history import History
from hpctools.conf.apply.lock import LockedError
from hpctools.conf.apply.record import Phase, Record
from hpctools.conf.apply.recovery import unfinished, unfinished_warnings
from hpctools.conf.apply.request import Outcome, Prospect, Request
from hpctools.conf.apply.transaction import change
from hpctools.conf.apply.who import Who

__all__ = [
    "Accounts",
    "Boot",
    "Cluster",
    "Daemons",
    "Generations",
    "History",
    "LockedError",
    "Outcome",
    "Phase",
    "Planner",
    "Prospect",
    "Record",
    "Request",
    "Who",
    "change",
    "unfinished",
    "unfinished_warnings",
]
