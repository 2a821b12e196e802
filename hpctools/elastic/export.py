"""Write an elastic.ShardedLoader's checkpoint anew, checked and with whole tensors, as torch has them.

    python -m hpctools.elastic.export CHECKPOINT FOLDER

Works offline, in one process, on what the checkpoint says alone: neither the training's script nor its number
of workers matters.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpctools.elastic.checkpoint.manifest import damage
from hpctools.elastic.checkpoint.place import meant_by
from hpctools.elastic.checkpoint.reading import NOT_UNDERSTOOD, Unreadable
from hpctools.elastic.checkpoint.selection import Found, candidates
from hpctools.elastic.checkpoint.settings import S3
from hpctools.errors import ElasticError, HpctoolsError

DESCRIPTION = """\
Make of a checkpoint of elastic.ShardedLoader a torch Distributed Checkpoint with whole tensors. One plain
process reads it: torch.distributed.checkpoint.load({"model": model.state_dict()}, checkpoint_id=FOLDER)."""
EPILOG = """\
In FOLDER are model, optimizer (named as get_optimizer_state_dict of torch.distributed.checkpoint.state_dict
does) and state (what state= and track gave to the loader). The place in the data is not: a training of
elastic.ShardedLoader goes on from CHECKPOINT itself. Needs as much disk as the checkpoint, and memory for two
of its tensors."""


def export(checkpoint: str, folder: Path) -> str:
    """Write a sharded checkpoint as a DCP checkpoint with whole tensors.

    Args:
        checkpoint: a checkpoint, a folder or s3:// address of checkpoints, or a run's folder; of several the
            newest whole one is taken. Every file's checksum is compared.
        folder: made (0700) by this, all at once; its parent has to be there.

    Returns:
        What was done, for people.

    Raises:
        ElasticError: nothing whole is there, the newest cannot be read, `folder` exists or cannot be written.
    """
    target = folder.expanduser().absolute()
    _check_free(target)
    place = (
        checkpoint.rstrip("/") if checkpoint.startswith(S3) else str(Path(checkpoint).expanduser().absolute())
    )
    try:
        with _newest_whole(place) as (found, files):
            size = _written(found, files, target)
    except Unreadable as error:
        advice = "try again when it can be read, or name the checkpoint (step-...) that is to be exported"
        raise ElasticError(error.message, advice) from None
    return f"step {found.manifest.step} of {found.where} is in {target} ({size / 1e6:.1f} MB)"


def _check_free(target: Path) -> None:
    if os.path.lexists(target):
        raise ElasticError(f"{target} exists already", "name a folder that does not, or remove it")
    if not target.parent.is_dir():
        raise ElasticError(f"{target.parent} is no folder", "make it first, or name another place")


@contextlib.contextmanager
def _newest_whole(place: str) -> Iterator[tuple[Found, Path]]:
    """The newest sharded checkpoint whose files are as they were written, and a folder that has them."""
    rejected: list[str] = []
    for found in _usable(place, rejected):
        with contextlib.ExitStack() as stack:
            try:
                files = stack.enter_context(found.store.fetched(found.name, found.manifest))
                problem = _problem(found, files)
            except Unreadable:
                raise
            except ElasticError as error:
                problem = str(error)
            if problem is None:
                for line in rejected:
                    print(f"elastic: {line}", file=sys.stderr)
                yield found, files
                return
        rejected.append(f"checkpoint {found.where} is not used: {problem}")
    reasons = f" ({'; '.join(rejected)})" if rejected else ""
    raise ElasticError(
        f"there is no whole checkpoint of a sharded model in {place}{reasons}",
        "give a run's folder, a folder of checkpoints, one of them, or s3://bucket/prefix",
    )


def _usable(place: str, rejected: list[str]) -> Iterator[Found]:
    try:
        places = meant_by(place)
    except OSError as error:
        raise ElasticError(f"cannot read {place}: {error.strerror or error}") from None
    for each in places:
        seen = candidates(each)
        rejected += seen.rejected
        yield from seen.in_turn()


def _problem(found: Found, files: Path) -> str | None:
    if "sharded_over" not in found.manifest.training:
        return "it is of a model that is not sharded, and torch.distributed.checkpoint.load reads it as it is"
    return damage(files, found.manifest.files)


def _written(found: Found, files: Path, target: Path) -> int:
    """Write into a hidden folder beside the target, which then gets its name."""
    from hpctools.elastic.sharded.whole import write_whole  # torch: not for --help and wrong paths

    try:
        hidden = Path(tempfile.mkdtemp(prefix=f".{target.name}.exporting-", dir=target.parent))
        try:
            size = write_whole(files, hidden)
            _check_free(target)
            hidden.rename(target)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
    except OSError as error:
        if str(error.filename or "").startswith(str(files)):
            raise ElasticError(
                f"cannot read {error.filename}: {error.strerror or error}",
                "export again: a run that trains on removes old checkpoints; then the newest one is taken",
            ) from None
        raise ElasticError(
            f"cannot write {target}: {error.strerror or error}",
            "free space or quota there, or name another place",
        ) from None
    except NOT_UNDERSTOOD as error:
        raise ElasticError(
            f"checkpoint {found.where} is not understood: {' '.join(str(error).split())}",
            "export it with the hpctools and torch releases that wrote it (manifest.json)",
        ) from None
    return size


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m hpctools.elastic.export", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="a checkpoint (step-...), or a folder or s3:// address of them, or a run's folder: then the "
        "newest whole one",
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="is made; must not exist")
    given = parser.parse_args(argv)
    try:
        print(export(given.checkpoint, given.folder))
    except HpctoolsError as error:
        print(f"elastic: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
