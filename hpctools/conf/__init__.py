"""The compiler: from a site to Slurm's files and accounts, pure; and the writer of the files."""

from hpctools.conf.account_changes import AccountChange, AccountDifference, Call, Kept
from hpctools.conf.account_difference import difference, restoring
from hpctools.conf.accounts import Account, AccountTree, Association, Qos
from hpctools.conf.bulk import AccountFile, load_file
from hpctools.conf.bundle import Bundle, File
from hpctools.conf.compiler import compile
from hpctools.conf.facts import Endpoint, Facts
from hpctools.conf.live import parse_live, read_live
from hpctools.conf.sync import Command, additions, bootstrap, bootstrap_commands, removals, sync_commands
from hpctools.conf.write import write
from hpctools.slurm.account_questions import live_queries

__all__ = [
    "Account",
    "AccountChange",
    "AccountDifference",
    "AccountFile",
    "AccountTree",
    "Association",
    "Bundle",
    "Call",
    "Command",
    "Endpoint",
    "Facts",
    "File",
    "Kept",
    "Qos",
    "additions",
    "bootstrap",
    "bootstrap_commands",
    "compile",
    "difference",
    "live_queries",
    "load_file",
    "parse_live",
    "read_live",
    "removals",
    "restoring",
    "sync_commands",
    "write",
]
