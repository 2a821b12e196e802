"""A query parameter that nothing reads is refused: a misspelt filter would answer more than was asked for."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import Request

from api.problems import ProblemError


async def only_known(request: Request) -> None:
    """Refuse parameters that the OpenAPI document does not have for this route.

    Raises:
        ProblemError: 422, with the names.
    """
    unknown = sorted(set(request.query_params) - _described(request)) if request.query_params else []
    if unknown:
        errors = tuple({"field": name[:128], "message": "there is no such parameter"} for name in unknown)
        detail = "The query has parameters that this address does not know."
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=errors)


def _described(request: Request) -> set[str]:
    operations = request.app.openapi()["paths"].get(request.scope["route"].path_format, {})
    described = operations.get(request.method.lower(), operations.get("get", {}))
    return {each["name"] for each in described.get("parameters", ()) if each["in"] == "query"}
