"""The compiler: from a site to Slurm's files and accounts, pure; and the writer of the files."""

from hpctools.conf.accounts import Account, AccountTree, Association, Qos
from hpctools.conf.bundle import Bundle, File
from hpctools.conf.compiler import compile
from hpctools.conf.facts import Endpoint, Facts
from hpctools.conf.write import write

__all__ = [
    "Account",
    "AccountTree",
    "Association",
    "Bundle",
    "Endpoint",
    "Facts",
    "File",
    "Qos",
    "compile",
    "write",
]
