"""Figures as files: the same for programs and for browsers."""

from __future__ import annotations

from fastapi import Response

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


def _attached(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def _written(statement: Statement, form: Format, cluster: str) -> str | bytes:
    if form == "pdf":
        from api.formats.pdf import as_pdf

        return as_pdf(statement)
    return as_focus(statement, cluster) if form == "focus" else as_csv(statement)
