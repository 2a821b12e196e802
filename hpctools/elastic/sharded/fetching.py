"""The files of a checkpoint that a rank needs, as they were written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpctools.elastic.checkpoint.manifest import damage
from hpctools.elastic.checkpoint.reading import persistently, understood
from hpctools.elastic.checkpoint.selection import Found
from hpctools.elastic.checkpoint.settings import S3
from hpctools.elastic.sharded import part_files
from hpctools.elastic.sharded.layout import Part
from hpctools.elastic.sharded.moving import Wanted
from hpctools.errors import ElasticError

ATTEMPTS = 3


@contextlib.contextmanager
def fetched(found: Found, wants: Callable[[str], bool]) -> Iterator[Path]:
    """Some of a checkpoint's files in a folder.

    A folder that all nodes share is read as it is: rank 0 has compared it with the checksums. What comes
    from S3 is another copy on each node, so each is compared, and downloaded again when it is damaged.

    Raises:
        ElasticError: it cannot be read, or is damaged each time.
    """
    files = {name: record for name, record in found.manifest.files.items() if wants(name)}
    manifest, problem = replace(found.manifest, files=files), None
    with contextlib.ExitStack() as stack:
        for _ in range(ATTEMPTS):
            stack.close()  # what was damaged takes no space beside the next
            folder = stack.enter_context(found.store.fetched(found.name, manifest))
            problem = damage(folder, files) if found.where.startswith(S3) else None
            if problem is None:
                break
        if problem is not None:
            raise ElasticError(
                f"checkpoint {found.where} arrives damaged here, {ATTEMPTS} times of {ATTEMPTS}: {problem}",
                "rank 0 found it whole: look for a fault of this node's network, memory or $TMPDIR",
            )
        yield folder


def examples_of(found: Found) -> Mapping[str, Part]:
    """An example part of each of a checkpoint's tensors.

    Raises:
        ElasticError: it is damaged, or cannot be read for some seconds.
    """

    def read() -> Mapping[str, Part]:
        with fetched(found, part_files.is_index) as folder, _told_of(found):
            return part_files.examples_in(folder)

    return persistently(read)


def read_parts_of(found: Found, wanted: Wanted) -> Mapping[str, Any]:
    """Fill the wanted parts; returns the unsharded state. Raises as `examples_of` does."""
    return persistently(lambda: _read(found, wanted))


def _read(found: Found, wanted: Wanted) -> Mapping[str, Any]:
    with fetched(found, part_files.is_index) as folder, _told_of(found):
        needed = part_files.needed(folder, wanted)
    with fetched(found, needed.__contains__) as folder, _told_of(found):
        part_files.read_parts(folder, wanted)
        plain: Mapping[str, Any] = part_files.read_plain(folder)
    return plain


def _told_of(found: Found) -> contextlib.AbstractContextManager[None]:
    return understood(f"checkpoint {found.where}: ")
