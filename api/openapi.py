"""The OpenAPI document: FastAPI's, with errors as what they are, problem details."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.problems import MEDIA_TYPE


def install(app: FastAPI) -> None:
    """Make an application describe its errors with their real media type.

    FastAPI describes every model as `application/json`.
    """

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            _retype_errors(app.openapi_schema)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _retype_errors(schema: dict[str, Any]) -> None:
    for operations in schema["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                content = response.get("content", {})
                if status >= "400" and "application/json" in content:
                    content[MEDIA_TYPE] = content.pop("application/json")
