"""Figures as files: the same for programs and for browsers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from fastapi import Response
from fastapi.responses import StreamingResponse

from api.formats.negotiate import MEDIA_TYPES, Format
from api.formats.tables import as_csv, as_focus
from hpctools.budget.statement import Statement


def statement_file(statement: Statement, form: Format, cluster: str) -> Response:
    """A statement to be kept: CSV, PDF or FOCUS.

    Args:
        form: all but `json`, which is no file.
        cluster: the site, which issues it.
    """
    ending = "pdf" if form == "pdf" else "csv"
    name = f"{statement.account.name}-{statement.month}{'-focus' if form == 'focus' else ''}.{ending}"
    return Response(_written(statement, form, cluster), media_type=MEDIA_TYPES[form], headers=_attached(name))


def csv_file(text: str, name: str) -> Response:
    """A table to be kept."""
    return Response(text, media_type=MEDIA_TYPES["csv"], headers=_attached(name))


def csv_stream(pieces: Iterator[str], name: str) -> Response:
    """A table of any length to be kept.

    The first piece is made before anything is sent: what fails at once is an error like any other. What fails
    later cuts the answer off, which every client notices.
    """
    first = next(pieces, "")
    return StreamingResponse(chain([first], pieces), media_type=MEDIA_TYPES["csv"], headers=_attached(name))


def _attached(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def _written(statement: Statement, form: Format, cluster: str) -> str | bytes:
    if form == "pdf":
        from api.formats.pdf import as_pdf

        return as_pdf(statement)
    return as_focus(statement, cluster) if form == "focus" else as_csv(statement)
