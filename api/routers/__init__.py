"""Routes: unpack, call one service, return."""

from typing import Any

from api.schemas.problem import Problem


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's description of the errors of a route."""
    return {status: {"model": Problem} for status in statuses}
