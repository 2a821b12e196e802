"""torch Distributed Checkpoint in one process, without collectives.

The steps of `torch.distributed.checkpoint.save` and `load` are taken one by one: with torch releases that
know no `no_dist` those would use the default process group, which belongs to the training.
"""

from __future__ import annotations

import contextlib
import io
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import (
    FileSystem,
    FileSystemReader,
    FileSystemWriter,
    _StorageInfo,  # private, and pickled under this name into every `.metadata` there is
)
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex
from torch.distributed.checkpoint.storage import WriteResult

from hpctools.elastic.checkpoint.manifest import FileRecord, new_digest
from hpctools.elastic.checkpoint.structure import SKELETON, join, packed, shapes, unpacked
from hpctools.errors import ElasticError

ALIGNMENT = 64
WHOLE_BYTES = 1 << 20
_LOCAL_HEADER, _LENGTHS = 30, 26  # of an entry of a zip archive: its size, and where its variable lengths are


@dataclass(frozen=True)
class Slice:
    """Where a tensor lies in a file.

    Attributes:
        offset, length: of the archive that `torch.save` made of it.
        values: offset in the file of the bare values, which that archive has as they are.
    """

    offset: int
    length: int
    values: int


@dataclass(frozen=True)
class Stored:
    """A box of a tensor in a file that has been written already.

    Attributes:
        file: its name.
        offset, length: as in `Slice`.
        offsets, sizes: where the box begins in the whole tensor, and its extent.
    """

    file: str
    offset: int
    length: int
    offsets: Sequence[int]
    sizes: Sequence[int]


def write_state(
    folder: Path, tensors: Mapping[str, torch.Tensor], skeleton: Any, go_on: Callable[[], None]
) -> dict[str, FileRecord]:
    """See `tensors.write_state`."""
    state = {**tensors, SKELETON: packed(skeleton)}
    return write_planned(FileSystemWriter(folder), DefaultSavePlanner(), state, go_on)


def write_planned(
    writer: Any,
    planner: DefaultSavePlanner,
    state: dict[str, Any],
    go_on: Callable[[], None],
    stored: Mapping[str, Sequence[Stored]] | None = None,
) -> dict[str, FileRecord]:
    """As `write_state`, with a planner that knows where the tensors' values are.

    Args:
        stored: by name as torch gives it, tensors that lie beside these files; they are not written again.
    """
    stored = stored or {}
    files = CheckedFiles(go_on)
    writer.fs = files
    planner.set_up_planner(state, writer.storage_meta(), is_coordinator=True)
    writer.set_up_storage_writer(True)
    local = writer.prepare_local_plan(planner.create_local_plan())
    plans, metadata = planner.create_global_plan([local])
    (plan,) = writer.prepare_global_plan(plans)
    plan = replace(plan, items=[each for each in plan.items if each.index.fqn not in stored])
    try:
        written = writer.write_data(planner.finish_plan(plan), planner).wait()
        writer.finish(metadata, [written, _described(metadata, stored)])
    except RuntimeError as error:
        raise files.failure or error from None
    return files.records


def _described(metadata: Metadata, stored: Mapping[str, Sequence[Stored]]) -> list[WriteResult]:
    """Have the metadata say which boxes a tensor is in; where each of them is."""
    results = []
    for name, boxes in stored.items():
        described: Any = metadata.state_dict_metadata[name]
        described.chunks = [
            ChunkStorageMetadata(torch.Size(each.offsets), torch.Size(each.sizes)) for each in boxes
        ]
        for number, each in enumerate(boxes):
            index = MetadataIndex(name, torch.Size(each.offsets), number)
            place = _StorageInfo(each.file, each.offset, each.length)
            results.append(WriteResult(index, each.length, place))
    return results


def write_slices(
    path: Path, tensors: Mapping[str, torch.Tensor], go_on: Callable[[], None]
) -> tuple[FileRecord, dict[str, Slice]]:
    """Write tensors into one file as torch does: each by `torch.save`, one behind the other.

    Args:
        tensors: on the CPU; those without elements are left out.
        go_on: as in `write_state`.

    Raises:
        OSError, RuntimeError: it cannot be written.
    """
    files, slices = CheckedFiles(go_on), {}
    try:
        with files.create_stream(path, "wb") as stream, path.open("rb") as written:
            for name, tensor in tensors.items():
                if tensor.numel():
                    slices[name] = _appended(stream, written, tensor)
    except RuntimeError as error:
        raise files.failure or error from None
    return files.records[path.name], slices


def _appended(stream: Any, written: IO[bytes], tensor: torch.Tensor) -> Slice:
    stream.write(b"\0" * (-stream.tell() % ALIGNMENT))
    offset = stream.tell()
    own = tensor.detach().contiguous()
    if own.untyped_storage().nbytes() != own.nbytes:
        own = own.clone()  # else all of the memory that it is a view of were written
    if own.nbytes < WHOLE_BYTES:
        whole = io.BytesIO()  # torch writes an archive in forty pieces
        torch.save(own, whole)
        stream.write(whole.getbuffer())
    else:
        torch.save(own, stream)
    return Slice(offset, stream.tell() - offset, _values_at(written))


def _values_at(file: IO[bytes]) -> int:
    """Where the values begin in the archive that a file ends with."""
    with zipfile.ZipFile(file) as archive:
        (entry,) = [each for each in archive.infolist() if each.filename.endswith("/data/0")]
    file.seek(entry.header_offset + _LENGTHS)
    name, extra = struct.unpack("<HH", file.read(4))
    return entry.header_offset + _LOCAL_HEADER + int(name) + int(extra)


def read_state(folder: Path) -> Any:
    """See `tensors.read_state`."""
    reader = FileSystemReader(folder)
    metadata = reader.read_metadata()
    if SKELETON not in metadata.state_dict_metadata:
        raise ElasticError(f"{folder} was not written by hpctools", "load it with torch's own dcp.load")
    described: Any = metadata.state_dict_metadata[SKELETON]
    data = {SKELETON: torch.empty(described.size, dtype=torch.uint8)}
    _fill(reader, metadata, data)
    skeleton = unpacked(data[SKELETON])
    tensors = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in shapes(skeleton).items()}
    _fill(reader, metadata, tensors)
    return join(skeleton, tensors)


def _fill(reader: Any, metadata: Any, tensors: dict[str, torch.Tensor]) -> None:
    planner = DefaultLoadPlanner()
    planner.set_up_planner(tensors, metadata, is_coordinator=True)
    reader.set_up_storage_reader(metadata, True)
    local = reader.prepare_local_plan(planner.create_local_plan())
    (plan,) = reader.prepare_global_plan(planner.create_global_plan([local]))
    reader.read_data(planner.finish_plan(plan), planner).wait()


class CheckedFiles(FileSystem):
    """torch's file system, which adds up size and checksum of each file while it is written.

    Args:
        go_on: called before each piece; what it raises ends the writing.

    Attributes:
        records: of the files that were written, by name.
        failure: what ended the writing; torch's own writer only tells that something did.
    """

    def __init__(self, go_on: Callable[[], None]) -> None:
        self._go_on = go_on
        self.records: dict[str, FileRecord] = {}
        self.failure: OSError | ElasticError | None = None

    @contextlib.contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        """A file; counted when it is written."""
        if mode != "wb":
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        with Path(path).open("wb", buffering=0) as raw:
            counted = _Counted(raw, self._go_on)
            try:
                yield counted
            finally:
                self.failure = self.failure or counted.failure
        self.records[Path(path).name] = counted.record()

    def rename(self, path: Any, new_path: Any) -> None:
        """A file is written under another name first."""
        super().rename(path, new_path)
        self.records[Path(new_path).name] = self.records.pop(Path(path).name)


class _Counted(io.RawIOBase):
    """A file that is written from beginning to end."""

    def __init__(self, raw: io.FileIO, go_on: Callable[[], None]) -> None:
        self._raw = raw
        self._go_on = go_on
        self._digest = new_digest()
        self._size = 0
        self.failure: OSError | ElasticError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            return self._write(memoryview(data).cast("B"))
        except (OSError, ElasticError) as error:
            self.failure = error
            raise

    def _write(self, rest: memoryview) -> int:
        self._go_on()
        self._digest.update(rest)
        self._size += rest.nbytes
        written = rest.nbytes
        while rest.nbytes:
            rest = rest[self._raw.write(rest) or 0 :]
        return written

    def tell(self) -> int:
        return self._size

    def fileno(self) -> int:
        return self._raw.fileno()

    def record(self) -> FileRecord:
        return FileRecord(self._size, self._digest.hexdigest())
