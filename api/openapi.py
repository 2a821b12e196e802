"""The OpenAPI document: FastAPI's, with errors as what they are, and examples of all that is sent."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.idempotency import IGNORING, LONGEST
from api.problems import MEDIA_TYPE

_DETAILS = {
    400: "There was an error parsing the body",
    401: "A valid token is needed: Authorization: Bearer TOKEN.",
    403: "Your token lacks the scope admin for this.",
    404: "There is no account of this name that you may see.",
    406: "A statement is application/json, text/csv or application/pdf.",
    409: "The first request with this Idempotency-Key is not answered yet.",
    412: "It has changed since you read it. Read it again and decide anew.",
    413: "A request may have at most 1000000 bytes.",
    422: "query.limit: Input should be less than or equal to 1000",
    500: "The service cannot answer. Its log tells the operator why.",
    503: "Something that the service needs does not answer. Try again later.",
}
_FORMATS = {"date-time": "2026-11-21T12:00:00Z", "date": "2026-11-21"}

_PROBLEM = {"$ref": "#/components/schemas/Problem"}

_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A request that is sent again with the same key, within a day, is answered again and not "
    "carried out again. Another request with it is 422, one at the same time 409.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST, "pattern": "^[ -~]+$"},
    "example": "5b1f2c0e-6f1d-4a53-9d0b-1c8a0f6f3a11",
}


def install(app: FastAPI) -> None:
    """Make an application describe itself as it is."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            for path, operations in found["paths"].items():
                for method, operation in operations.items():
                    _complete(path, method, operation, found)
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _complete(path: str, method: str, operation: dict[str, Any], document: dict[str, Any]) -> None:
    if path.startswith("/v1/"):
        for status in _everywhere(path, method, operation):
            operation["responses"].setdefault(str(status), {"description": HTTPStatus(status).phrase})
    if method == "post" and _takes_key(path):
        operation.setdefault("parameters", []).append(_KEY)
    for status, response in operation["responses"].items():
        content = response.get("content", {})
        if status >= "400":
            # FastAPI describes its own form of 422, and every model as of its route's media type.
            told = {"schema": _PROBLEM, "example": _problem(path, int(status))}
            content = response["content"] = {MEDIA_TYPE: told}
        _exemplify(content, document)
    _exemplify(operation.get("requestBody", {}).get("content", {}), document)


def _takes_key(path: str) -> bool:
    return path.startswith("/v1/") and path not in IGNORING


def _everywhere(path: str, method: str, operation: dict[str, Any]) -> tuple[int, ...]:
    """Errors that no route makes itself: of what stands in front of it."""
    body = (400, 413, 422) if "requestBody" in operation else ()
    key = (409, 422) if method == "post" and _takes_key(path) else ()
    return (*body, *key, 500, 503)


def _problem(path: str, status: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": _DETAILS.get(status, f"{HTTPStatus(status).description}."),
        "instance": path,
    }
    if status == HTTPStatus.UNPROCESSABLE_ENTITY:
        told = {"field": "query.limit", "message": "Input should be less than or equal to 1000"}
        found["errors"] = [told]
    return found


def _exemplify(content: dict[str, Any], document: dict[str, Any]) -> None:
    for media in content.values():
        if "example" not in media and "examples" not in media and media.get("schema"):
            media["example"] = example(media["schema"], document)


def example(schema: dict[str, Any], document: dict[str, Any]) -> Any:
    """A value that a schema allows, out of the examples of its parts; None for a part that has none."""
    if "$ref" in schema:
        return example(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document)
    for known in ("examples", "enum"):
        if schema.get(known):
            return schema[known][0]
    if "const" in schema:
        return schema["const"]
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        return example(choice, document)
    return _by_type(schema, document)


def _by_type(schema: dict[str, Any], document: dict[str, Any]) -> Any:
    kind = schema.get("type")
    if kind == "object":
        return {name: example(part, document) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [example(schema["items"], document)]
    if kind == "boolean":
        return schema.get("default", False)
    return _FORMATS.get(schema.get("format", ""), schema.get("default"))
