"""Jobs in the store: append what changed, read what is current."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from itertools import islice

from sqlalchemy import and_, func, insert, or_, select
from sqlalchemy.orm import Session

from api.db.models import JobVersion
from hpctools.budget.month import Month, day_start
from hpctools.slurm.accounting import JobRecord

_BATCH = 1000
_COLUMNS = tuple(field.name for field in fields(JobRecord))


def append_jobs(session: Session, jobs: Iterable[JobRecord], seen_at: int) -> int:
    """Store jobs that started and are new or differ from their newest version; return how many.

    A job that was seen later already (in another month's run) stays as it is.
    """
    started = (job for job in jobs if job.start is not None)
    changed = 0
    for batch in _batches(started):
        known = _newest(session, batch)
        rows = [
            asdict(job) | {"version": version, "seen_at": seen_at, "digest": digest}
            for job, version, digest in _changes(batch, known, seen_at)
        ]
        if rows:
            session.execute(insert(JobVersion), rows)
        changed += len(rows)
    return changed


def current_jobs(session: Session, month: Month) -> list[JobRecord]:
    """The newest version of every job that ran at some time of a month."""
    newest = (
        select(JobVersion.cluster, JobVersion.dbindex, func.max(JobVersion.version).label("version"))
        .group_by(JobVersion.cluster, JobVersion.dbindex)
        .subquery()
    )
    query = (
        select(*(getattr(JobVersion, name) for name in _COLUMNS))
        .join(
            newest,
            and_(
                JobVersion.cluster == newest.c.cluster,
                JobVersion.dbindex == newest.c.dbindex,
                JobVersion.version == newest.c.version,
            ),
        )
        .where(JobVersion.start < day_start(month.end))
        .where(or_(JobVersion.end.is_(None), JobVersion.end > day_start(month.start)))
    )
    return [JobRecord(*row) for row in session.execute(query)]


def _changes(
    batch: Iterable[JobRecord], known: dict[tuple[str, int], tuple[int, int, str]], now: int
) -> Iterator[tuple[JobRecord, int, str]]:
    for job in batch:
        version, seen_at, old = known.get((job.cluster, job.dbindex), (0, 0, ""))
        digest = hashlib.sha256(repr(job).encode()).hexdigest()
        if digest != old and seen_at <= now:
            yield job, version + 1, digest


def _newest(session: Session, batch: Iterable[JobRecord]) -> dict[tuple[str, int], tuple[int, int, str]]:
    query = (
        select(
            JobVersion.cluster, JobVersion.dbindex, JobVersion.version, JobVersion.seen_at, JobVersion.digest
        )
        .where(JobVersion.dbindex.in_([job.dbindex for job in batch]))
        .order_by(JobVersion.version)
    )
    return {
        (row.cluster, row.dbindex): (row.version, row.seen_at, row.digest) for row in session.execute(query)
    }


def _batches(jobs: Iterable[JobRecord]) -> Iterator[list[JobRecord]]:
    rest = iter(jobs)
    while batch := list(islice(rest, _BATCH)):
        yield batch
