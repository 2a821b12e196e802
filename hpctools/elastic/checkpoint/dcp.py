"""torch Distributed Checkpoint in one process, without collectives.

The steps of `torch.distributed.checkpoint.save` and `load` are taken one by one: with torch releases that
know no `no_dist` those would use the default process group, which belongs to the training.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter

from hpctools.elastic.checkpoint.manifest import FileRecord, new_digest
from hpctools.elastic.checkpoint.structure import SKELETON, join, packed, shapes, unpacked
from hpctools.errors import ElasticError


def write_state(
    folder: Path, tensors: Mapping[str, torch.Tensor], skeleton: Any, go_on: Callable[[], None]
) -> dict[str, FileRecord]:
    """See `tensors.write_state`."""
    state = {**tensors, SKELETON: packed(skeleton)}
    return write_planned(FileSystemWriter(folder), DefaultSavePlanner(), state, go_on)


def write_planned(
    writer: Any, planner: DefaultSavePlanner, state: dict[str, Any], go_on: Callable[[], None]
) -> dict[str, FileRecord]:
    """As `write_state`, with a planner that knows where the tensors' values are."""
    files = CheckedFiles(go_on)
    writer.fs = files
    planner.set_up_planner(state, writer.storage_meta(), is_coordinator=True)
    writer.set_up_storage_writer(True)
    local = writer.prepare_local_plan(planner.create_local_plan())
    plans, metadata = planner.create_global_plan([local])
    (plan,) = writer.prepare_global_plan(plans)
    try:
        written = writer.write_data(planner.finish_plan(plan), planner).wait()
        writer.finish(metadata, [written])
    except RuntimeError as error:
        raise files.failure or error from None
    return files.records


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
