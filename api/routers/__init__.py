"""Routes: unpack, call one service, return."""

from typing import Any

from api.schemas.problem import Problem


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's description of the errors of a route."""
    schema = {"schema": {"$ref": f"#/components/schemas/{Problem.__name__}"}}
    return {
        status: {"model": Problem, "content": {"application/problem+json": schema}} for status in statuses
    }
