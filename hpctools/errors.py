"""The error tree: every failure that a user can meet.

    HpctoolsError            1   something is wrong; says what, where and what to do
      UsageError             2   the command line cannot be understood
      SiteError              1   the site file has findings (all of them at once)
      SubmitError            1   a submission cannot be carried out
      ElasticError           1   an elastic run cannot go on
      ApplyError             1   a change of a live cluster was refused, or failed and was rolled back
      SandboxError           1   the sandbox cannot do what was asked
      BudgetError            1   money cannot be read or attributed
      CommandError           1   a program that we started failed
        CommandTimeout       3   ... or did not end in time
        NotAllowedError      1   ... because we may not do that
      ReleaseError           1   a part belongs to another Slurm release than the rest
      UnreachableError       3   a daemon or service does not answer

The number is the exit code of a command that ends with the error.
"""

from __future__ import annotations

from collections.abc import Sequence


class HpctoolsError(Exception):
    """Something that a user can meet and can do something about.

    Args:
        message: what happened and where, one line.
        remedy: what to do next, one line; may be empty.
    """

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class UsageError(HpctoolsError):
    """The command line cannot be understood."""

    exit_code = 2


class SiteError(HpctoolsError):
    """The site file has findings; the message carries all of them, a line each."""


class SubmitError(HpctoolsError):
    """A submission cannot be carried out; nothing was submitted, or what was is cancelled."""


class ElasticError(HpctoolsError):
    """An elastic run cannot go on."""


class ApplyError(HpctoolsError):
    """A change of a live cluster was refused, or failed and was rolled back; the message says which."""


class SandboxError(HpctoolsError):
    """The sandbox cannot do what was asked."""


class BudgetError(HpctoolsError):
    """Money cannot be read or attributed."""


class ConflictError(BudgetError):
    """The service says no to what was asked, as things are now (409)."""


class RemoteError(HpctoolsError):
    """A cluster that is reached over SSH refused what was asked, or is not to be trusted."""


class CommandError(HpctoolsError):
    """A program that we started failed.

    Args:
        argv: the program and its arguments.
        exit_code: its exit status; None when it could not be started or was ended by us.
        stderr: what it printed to standard error; the last lines are kept.
    """

    def __init__(
        self, message: str, *, argv: Sequence[str], code: int | None, stderr: str = "", remedy: str = ""
    ) -> None:
        super().__init__(message, remedy)
        self.argv = tuple(argv)
        self.code = code
        self.stderr_tail = "\n".join(stderr.strip().splitlines()[-10:])


class CommandTimeout(CommandError):
    """A program that we started did not end in time and was killed."""

    exit_code = 3


class NotAllowedError(CommandError):
    """What was asked is for others to do: operators, administrators, root."""


class ReleaseError(HpctoolsError):
    """A part belongs to another Slurm release than the rest, and cannot be used with it."""


class UnreachableError(HpctoolsError):
    """A daemon or service does not answer."""

    exit_code = 3
