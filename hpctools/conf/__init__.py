"""The compiler: from a site to Slurm's files and accounts, pure; and the writer of the files."""

from hpctools.conf.accounts import Account, AccountTree, Association, Qos
from hpctools.conf.bulk import AccountFile, load_file
from hpctools.conf.bundle import Bundle, File
from hpctools.conf.compiler import compile
from hpctools.conf.facts import Endpoint, Facts
from hpctools.conf.live import live_queries, parse_live, read_live
from hpctools.conf.sync import Command, bootstrap_commands, sync_commands
from hpctools.conf.write import write

__all__ = [
    "Account",
    "AccountFile",
    "AccountTree",
    "Association",
    "Bundle",
    "Command",
    "Endpoint",
    "Facts",
    "File",
    "Qos",
    "bootstrap_commands",
    "compile",
    "live_queries",
    "load_file",
    "parse_live",
    "read_live",
    "sync_commands",
    "write",
]
