from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@pytest.fixture
def document(sqlite_service: Any) -> dict[str, Any]:
    found: dict[str, Any] = sqlite_service.anonymous().get("/openapi.json").json()
    return found


def contents(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Where, of which media type, and its description, of every request's and answer's body."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            bodies = [("request", operation.get("requestBody", {})), *operation["responses"].items()]
            for status, body in bodies:
                for media, content in body.get("content", {}).items():
                    yield f"{method} {path} {status}", media, content


def test_every_request_and_answer_has_an_example_that_is_one(document: dict[str, Any]) -> None:
    wrong = []
    for where, media, content in contents(document):
        if "example" not in content:
            wrong.append(f"{where}: no example")
            continue
        if not media.endswith("json"):
            continue
        schema = {"$schema": DIALECT, **content["schema"], "components": document["components"]}
        validator = jsonschema.Draft202012Validator(schema)
        wrong += [
            f"{where}: {error.json_path}: {error.message}"
            for error in validator.iter_errors(content["example"])
        ]
    assert wrong == []


def test_an_example_that_was_forgotten_would_be_noticed(sqlite_service: Any) -> None:
    from pydantic import BaseModel

    class Forgotten(BaseModel):
        word: str

    sqlite_service.app.get("/v1/forgotten", response_model=Forgotten)(lambda: {})  # noqa: PIE807
    document = sqlite_service.anonymous().get("/openapi.json").json()
    (content,) = (content for where, _, content in contents(document) if where == "get /v1/forgotten 200")
    assert content["example"] == {"word": None}


def test_every_operation_says_what_it_is_and_how_it_fails(document: dict[str, Any]) -> None:
    names = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            names.append(operation["operationId"])
            assert operation["summary"], path
            assert operation.get("description"), path
            if path.startswith("/v1/"):
                assert "401" in operation["responses"], path
                assert operation["security"] == [{"HTTPBearer": []}], path
                keyed = [known["name"] for known in operation.get("parameters", ())]
                without = path in {"/v1/tokens", "/v1/login/sessions", "/v1/login/leases"}
                assert ("Idempotency-Key" in keyed) == (method == "post" and not without)
            for status, response in operation["responses"].items():
                if status >= "400":
                    assert list(response["content"]) == ["application/problem+json"], (path, status)
    assert len(names) == len(set(names))
