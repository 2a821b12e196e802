"""What our commands take for an answer is what the service says it answers (`hpctools.budget.answers`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hpctools.budget.answers import (
    AMOUNT,
    FLAG,
    HOST,
    MOMENT,
    NUMBER,
    SHAPES,
    TEXT,
    ByName,
    Each,
    OrNull,
    Plain,
    Shape,
)

TYPES = {
    TEXT: {"string"}, HOST: {"string"}, MOMENT: {"string"}, AMOUNT: {"string"}, FLAG: {"boolean"},
    NUMBER: {"integer", "number"},
}  # fmt: skip


def test_nothing_that_the_service_may_say_is_taken_for_anothers(sqlite_service: Any) -> None:
    document = sqlite_service.anonymous().get("/openapi.json").json()
    answers = dict(_answers(document))
    assert answers.keys() >= SHAPES.keys()
    assert [
        each for key, shape in SHAPES.items() for each in _strange(document, answers[key], shape, key)
    ] == []


def _answers(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The answer of each question when all goes well, by method and path."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            good = [each for status, each in operation["responses"].items() if status[0] == "2"]
            content = good[0].get("content", {}).get("application/json")
            if content:
                yield f"{method.upper()} {re.sub('{[^}]*}', '*', path)}", content["schema"]


def _strange(document: Mapping[str, Any], schema: Any, shape: Shape, at: str) -> Iterator[str]:
    """Where the service may say what the shape has not."""
    for each in schema.get("anyOf", [schema]):
        if "$ref" in each:
            each = document["components"]["schemas"][each["$ref"].rpartition("/")[2]]
        if each.get("type") == "null":
            if not isinstance(shape, OrNull):
                yield f"{at} may be null"
        else:
            yield from _strange_value(document, each, shape.shape if isinstance(shape, OrNull) else shape, at)


def _strange_value(document: Mapping[str, Any], schema: Any, shape: Shape, at: str) -> Iterator[str]:
    if isinstance(shape, Plain):
        if schema.get("type") not in TYPES[shape]:
            yield f"{at} is {schema}"
    elif isinstance(shape, (Each, ByName)):
        yield from _strange(
            document, schema["items" if isinstance(shape, Each) else "additionalProperties"], shape.shape, at
        )
    else:
        assert not isinstance(shape, OrNull)
        for word, inner in shape.items():
            name = word.removesuffix("?")
            yield from _strange(document, schema["properties"][name], inner, f"{at} {name}")
