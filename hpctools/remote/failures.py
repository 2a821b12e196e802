"""What a laptop is told when its request fails on the cluster."""

from __future__ import annotations

import os
from typing import Any

from hpctools.errors import HpctoolsError, RemoteError
from hpctools.remote import submissions
from hpctools.remote.once import Refused
from hpctools.remote.submissions import NoFolder
from hpctools.remote.wire import Message, WireError

SAME_RELEASE = "install the same release on both sides"


class Unmade(Exception):
    """A submission failed before anything of it was submitted.

    Attributes:
        error: what happened.
    """

    def __init__(self, error: HpctoolsError | WireError | OSError) -> None:
        super().__init__(str(error))
        self.error = error


def answer(error: Exception, request: Message) -> dict[str, Any]:
    """The answer to a request that failed.

    It says `unmade` where nothing can have been submitted: who repeats it need not say `again`. Where the
    request itself said so, an earlier attempt may have been taken by a node with another home.
    """
    sure = isinstance(error, Unmade | Refused | NoFolder) and not request.get("again")
    mark = {"unmade": True} if sure else {}
    if isinstance(error, Refused):
        return {"refused": {"code": error.answer.code, "stderr": error.answer.stderr}, **mark}
    told = _told(error.error if isinstance(error, Unmade) else error, request)
    said = {"message": told.message, "remedy": told.remedy, "code": told.exit_code}
    return {"error": {**said, "sick": True} if isinstance(told, NoFolder) else said, **mark}


def _told(error: Exception, request: Message) -> HpctoolsError:
    if isinstance(error, HpctoolsError):
        return error
    if isinstance(error, WireError):
        return RemoteError(f"the cluster cannot understand what came: {error}", SAME_RELEASE)
    return RemoteError(f"on the cluster: {error}", _after_failure(request))


def _after_failure(request: Message) -> str:
    """What to do once the system has failed us: in the middle of a submission there may be a job."""
    if request.get("op") != "submit" or request.get("trial"):
        return "see what is wrong there, and ask again"
    found = submissions.find(str(request.get("id")), os.environ)
    try:
        record = found.record() if found else None
    except RemoteError:
        record = None
    if record is None or record.state == "receiving":
        return "nothing was submitted: see what is wrong there, and submit again"
    again = f"give the same line with --submission {record.id}: it is submitted once"
    return f"it may have been submitted; {again}"
