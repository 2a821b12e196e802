"""Files that come to the cluster: into the run folder, whole, checked, and never over others."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from hpctools.errors import RemoteError, UsageError
from hpctools.remote.names import inner_path
from hpctools.remote.settling import put_in_place, take_back
from hpctools.remote.submissions import Submission
from hpctools.remote.wire import CHUNK, Wire, WireError

MOST_FILES = 10_000


@dataclass(frozen=True)
class FileOffer:
    """A file that a laptop has.

    Attributes:
        path: below the run folder.
        digest: SHA-256, hexadecimal.
        runs: it is a program.
    """

    path: str
    size: int
    digest: str
    runs: bool = False

    @property
    def inner(self) -> PurePosixPath:
        """Its path, checked."""
        return inner_path(self.path)


def read_offers(stated: Any) -> tuple[FileOffer, ...]:
    """Offers as they were sent.

    Raises:
        UsageError: they are none, or a path leads somewhere else.
    """
    try:
        offers = tuple(
            FileOffer(str(each["path"]), int(each["size"]), str(each["digest"]), bool(each.get("runs")))
            for each in stated
        )
        good = len(offers) <= MOST_FILES and all(
            o.size >= 0 and len(bytes.fromhex(o.digest)) == 32 for o in offers
        )
    except (TypeError, KeyError, ValueError):
        good, offers = False, ()
    if not good:
        raise UsageError(
            "the files of the request cannot be understood", "use the same release on both sides"
        )
    paths = {offer.inner for offer in offers}
    if len(paths) < len(offers) or any(parent in paths for path in paths for parent in path.parents):
        raise UsageError("two files of the request have the same name", "give each a name of its own")
    return offers


class Reception:
    """Files of a submission whose lock we hold."""

    def __init__(self, submission: Submission, offers: Sequence[FileOffer]) -> None:
        self.submission = submission
        self.offers = offers
        self.parts = submission.own / "parts"

    def missing(self) -> Iterator[tuple[int, int]]:
        """Indices of files that are not in place yet, and how many bytes of each are here.

        Raises:
            RemoteError: another file is in the place of one.
            OSError: what is here cannot be read.
        """
        for index, offer in enumerate(self.offers):
            target = self._target(offer)
            take_back(self._part(offer), target, offer.size)
            if not os.path.lexists(target):
                part = self._part(offer)
                here = part.stat().st_size if part.exists() else 0
                yield index, here if here <= offer.size else 0
            elif target.is_symlink() or not target.is_file() or _digest(target) != offer.digest:
                raise RemoteError(f"{target} is there already, with other content", "nothing was overwritten")

    def take(self, wire: Wire, needed: dict[int, int]) -> None:
        """Receive what is needed, from where it stands, until the other side says that it was all.

        Args:
            needed: as `missing` says; what comes of others is passed over.

        Raises:
            WireError: the stream ended, or is none of ours; what has come stays for the next time.
            RemoteError: a file is not what was offered, grew, or there is no room.
        """
        positions = dict(needed)
        while not (message := wire.get()).get("end"):
            index, offset = message.get("file"), message.get("offset")
            if not isinstance(index, int) or not 0 <= index < len(self.offers):
                raise WireError("a piece of no file")
            if index in positions and offset == positions[index]:
                self._append(self.offers[index], offset, message.data)
                positions[index] += len(message.data)
        for index in needed:
            self._settle(self.offers[index])

    def _append(self, offer: FileOffer, offset: int, data: bytes) -> None:
        if offset + len(data) > offer.size:
            raise RemoteError(
                f"{offer.path} grew while it was sent",
                f"nothing was submitted: when nobody writes it, {self._again()}",
            )
        part = self._part(offer)
        try:
            self.parts.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.truncate(offset)
                file.seek(offset)
                file.write(data)
        except OSError as error:
            raise self._no_room(offer, error) from None

    def _settle(self, offer: FileOffer) -> None:
        """Put a file in its place, once it is known to be the one that was offered."""
        part, target = self._part(offer), self._target(offer)
        try:
            if not offer.size:
                self.parts.mkdir(mode=0o700, exist_ok=True)
                part.touch(mode=0o600)
            if _digest(part) != offer.digest:
                part.unlink(missing_ok=True)
                raise RemoteError(
                    f"{offer.path} changed while it was sent, or on its way",
                    f"nothing was submitted: when nobody writes it, {self._again()}",
                )
            _sync(part)
            part.chmod(0o700 if offer.runs else 0o600)
            self._folder_of(target)
            put_in_place(part, target)
        except FileExistsError:
            raise RemoteError(f"{target} is there already", "nothing was overwritten") from None
        except OSError as error:
            raise self._no_room(offer, error) from None

    def _again(self) -> str:
        """Under another id all other files would be sent anew."""
        name = self.submission.folder.name
        return f"give the same line with --submission {name}: what has come of other files is not sent anew"

    def _no_room(self, offer: FileOffer, error: OSError) -> RemoteError:
        """What has come takes room there, too: another id would leave it lying and begin from nothing."""
        folder = self.submission.folder
        return RemoteError(
            f"cannot keep {offer.path} on the cluster: {error.strerror}",
            f"free space or quota there, and give the same line with --submission {folder.name}: it goes on "
            f"where it stands. To give it up, remove {folder} there",
        )

    def _folder_of(self, target: Path) -> None:
        folder = self.submission.folder
        for name in target.relative_to(folder).parts[:-1]:
            folder = folder / name
            if folder.is_symlink():
                raise RemoteError(f"{folder} is a link", "nothing was written through it")
            folder.mkdir(mode=0o700, exist_ok=True)

    def _target(self, offer: FileOffer) -> Path:
        return self.submission.folder / offer.inner

    def _part(self, offer: FileOffer) -> Path:
        name = hashlib.sha256(f"{offer.path}\0{offer.digest}".encode("utf-8", "surrogateescape")).hexdigest()
        return self.parts / name


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            found.update(data)
    return found.hexdigest()


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
