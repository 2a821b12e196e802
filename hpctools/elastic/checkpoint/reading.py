"""What cannot be read just now is neither torn nor gone: it is tried again for some seconds, then said."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import TypeVar

from hpctools.errors import ElasticError

# Before each further try: a server that fails over, or a handle that is stale, takes seconds, not minutes.
PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0)
BRIEF = 3  # of them, where waiting for all costs more than it may save
# What is wrong with a path stays wrong.
LASTING = (errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)
REMEDY = "see what became of the storage, on this node and on its server"
NO_OLDER = (
    "an older checkpoint is not used in its place: begin again when the storage can be read, or move away "
    "what is lost for good to go on from the one before"
)
# What torch, pickle and json raise for bytes that are not what we wrote, though their checksum is right.
NOT_UNDERSTOOD = (
    RuntimeError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    UnpicklingError,
)
_NO_MEMORY = "allocate memory"

Found = TypeVar("Found")


class Unreadable(ElasticError):
    """A checkpoint, or the place of them, cannot be read at present: whether it is whole is not known."""


def unreadable(what: str, error: OSError, remedy: str = REMEDY) -> ElasticError:
    """The error for what the system does not give us: Unreadable unless the path itself is wrong.

    Args:
        what: cannot be read, for the message.
    """
    name = errno.errorcode.get(error.errno or 0, "")
    reason = f"{error.strerror or error}" + (f" ({name})" if name else "")
    named = "" if error.filename is None or str(error.filename) in what else f", at {error.filename}"
    kind = ElasticError if error.errno in LASTING else Unreadable
    return kind(f"cannot read {what}: {reason}{named}", remedy)


def persistently(look: Callable[[], Found]) -> Found:
    """What `look` finds; called again, anew from the beginning, while something is Unreadable.

    Raises:
        Unreadable: it was so for some seconds.
    """
    return _tried(look, PAUSES, f"; {NO_OLDER}")


def briefly(look: Callable[[], Found]) -> Found:
    """As `persistently`, for less than two seconds: for who has something older, while others stand still.

    Raises:
        Unreadable: it was so for as long.
    """
    return _tried(look, PAUSES[:BRIEF], "")


def _tried(look: Callable[[], Found], pauses: Sequence[float], remedy: str) -> Found:
    for pause in pauses:
        with contextlib.suppress(Unreadable):
            return look()
        time.sleep(pause)
    try:
        return look()
    except Unreadable as error:
        tries = f"{len(pauses) + 1} times in {sum(pauses):.0f} s"
        raise Unreadable(f"{error.message} ({tries})", f"{error.remedy}{remedy}") from None


@contextlib.contextmanager
def understood(prefix: str = "") -> Iterator[None]:
    """Tell what is damaged from what cannot be read at present.

    Args:
        prefix: of the messages about damage.

    Raises:
        Unreadable: storage does not give it, or there is no memory for it.
        ElasticError: it is missing, or not what was written.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise ElasticError(f"{prefix}{Path(str(error.filename)).name} is missing") from None
    except OSError as error:
        raise unreadable(str(error.filename or "a checkpoint"), error) from None
    except (MemoryError, *NOT_UNDERSTOOD) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, MemoryError) or _NO_MEMORY in said:
            advice = "ask for more memory (--mem), or free some on this node"
            raise Unreadable(f"there is no memory for a checkpoint that is read: {said}", advice) from None
        raise ElasticError(f"{prefix}it is not understood: {said}") from None
