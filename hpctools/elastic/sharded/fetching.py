"""The files of a checkpoint that a rank needs, as they were written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from hpctools.elastic.checkpoint.manifest import damage
from hpctools.elastic.checkpoint.selection import Found
from hpctools.elastic.checkpoint.settings import S3
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
