"""Checks plain data against the models, and turns pydantic's errors into findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hpctools.site.document import Document
from hpctools.site.findings import Finding, Location, one_of, spell_value
from hpctools.site.model import Site
from hpctools.site.scalars import spell_duration


def validate(document: Document) -> tuple[Site | None, list[Finding]]:
    """Check a document's data against the models.

    Returns:
        The site, or None with everything that is wrong; references between parts are not looked at.
    """
    try:
        return Site.model_validate(document.data), []
    except ValidationError as error:
        details = error.errors(include_url=False)
    return None, [_finding(document, detail) for detail in details if not _is_echo(detail)]


def _is_echo(detail: ErrorDetails) -> bool:
    """Whether a list is called too short only because its entries have findings of their own."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]


def model_at(location: Location, model: type[BaseModel] = Site) -> type[BaseModel] | None:
    """Return the model that describes a location of a site file; None when a plain value stands there."""
    annotation: Any = model
    for step in location:
        current = _model_in(annotation)
        if current is not None and isinstance(step, str):
            field = current.model_fields.get(step)
            annotation = field.annotation if field else None
        else:
            annotation = _element(annotation)
    return _model_in(annotation)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation is, or is optionally; None for containers and plain values."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (tuple, dict):
        return None
    return next((found for found in map(_model_in, get_args(annotation)) if found), None)


def _element(annotation: Any) -> Any:
    """What a container's annotation holds."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is dict:
        return arguments[1]
    if origin is tuple:
        return arguments[0]
    return next((found for found in map(_element, arguments) if found), None)


def _finding(document: Document, detail: ErrorDetails) -> Finding:
    # A mapping's key that is refused is located by pydantic as (..., key, "[key]").
    location = tuple(step for step in detail["loc"] if step != "[key]")
    kind, value = detail["type"], detail["input"]
    if kind == "missing":
        return document.finding(location, "nothing", f"the key {location[-1]!r}")
    if kind == "extra_forbidden":
        owner = model_at(location[:-1])
        keys = one_of(owner.model_fields if owner else (), location[-1])
        return document.finding(location, f"the unknown key {location[-1]!r}", keys)
    context = detail.get("ctx", {})
    if isinstance(value, str):
        # A number that is written as text is a time.
        context = {
            key: spell_duration(bound) if key in ("ge", "le") else bound for key, bound in context.items()
        }
    return document.finding(location, spell_value(value), _expected(kind, context, detail["msg"]))


_EXPECTED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "site": lambda ctx: str(ctx["expected"]),
    "string_type": lambda _: "text",
    "int_type": lambda _: "a whole number",
    "bool_type": lambda _: "true or false",
    "tuple_type": lambda _: "a list",
    "dict_type": lambda _: "a mapping",
    "model_type": lambda _: "a mapping",
    "model_attributes_type": lambda _: "a mapping",
    "literal_error": lambda ctx: f"one of: {', '.join(_choices(str(ctx['expected'])))}",
    "greater_than_equal": lambda ctx: f"at least {ctx['ge']}",
    "less_than_equal": lambda ctx: f"at most {ctx['le']}",
    "too_short": lambda ctx: f"at least {ctx['min_length']} entry",
    "too_long": lambda ctx: f"at most {ctx['max_length']} entries",
}


def _expected(kind: str, context: Mapping[str, Any], message: str) -> str:
    spell = _EXPECTED.get(kind)
    return spell(context) if spell else message


def _choices(expected: str) -> Iterator[str]:
    for word in expected.replace(" or ", ", ").split(", "):
        yield word.strip("'")
