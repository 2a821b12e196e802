"""docs/site-file.md: its reference is made from the models, and its examples are valid."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hpctools.site import Site, billing, hostlist, loads, parameters, scalars
from hpctools.site.base import Model
from hpctools.site.nodes import Count
from hpctools.site.scalars import spell_duration

PAGE = Path(__file__).parents[2] / "docs/site-file.md"
BEGIN, END = "<!-- reference: made from the models -->\n", "<!-- end of the reference -->\n"

WORDS = {
    "Duration": "time",
    "Money": "amount in quotes",
    "Text": "text",
    "Release": "release in quotes",
    "Currency": "currency code",
    "TagKey": "tag key",
    "HostName": "host name",
    "UserName": "Unix account",
    "InstanceType": "instance type",
    "GpuType": "GPU type",
    "MigProfile": "MIG profile",
    "FilePath": "absolute path",
    "Rate": "price in quotes",
    "Day": "day",
    "HostList": "host list",
    "OverSubscribe": "`no`, `exclusive`, `yes:N` or `force:N`",
    "ParameterName": "key",
    "ParameterValue": "value",
    "SettingValue": "value",
}


def word_of(metadata: list[Any]) -> str | None:
    for name, kind in (
        *vars(scalars).items(),
        *vars(billing).items(),
        *vars(hostlist).items(),
        *vars(parameters).items(),
    ):
        if (
            get_origin(kind) is not None
            and hasattr(kind, "__metadata__")
            and kind.__metadata__[0] in metadata
        ):
            return WORDS.get(name, "name")
    return None


def spell(annotation: Any, metadata: list[Any] | None = None) -> str:
    """A type as a sysadmin reads it."""
    word = word_of(metadata or [])
    if word:
        return word
    if hasattr(annotation, "__metadata__"):
        return spell(annotation.__origin__, list(annotation.__metadata__))
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple:
        return f"list of {spell(arguments[0])}"
    if origin is dict:
        return f"mapping of {spell(arguments[0])} to {spell(arguments[1])}"
    if origin is Literal:
        return " \\| ".join(f"`{choice}`" for choice in arguments)
    if annotation is Count:
        return "number, or `{min: N, max: M}`"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    if arguments:
        return " or ".join(spell(each) for each in arguments if each is not NoneType)
    return {int: "number", float: "number", bool: "true \\| false", str: "text"}[annotation]


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required, or `nodes`" if field.annotation is Count else "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ({}, ()) or isinstance(value, BaseModel):
        return ""
    if word_of(list(field.metadata)) == "time":
        return f"`{spell_duration(value)}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def models(model: type[Model], seen: dict[str, type[Model]]) -> dict[str, type[Model]]:
    """The model and those within it, outermost first."""
    seen.setdefault(model.__name__, model)
    for field in model.model_fields.values():
        for inner in inner_models(field.annotation):
            if inner is not Count and inner.__name__ not in seen:
                models(inner, seen)
    return seen


def inner_models(annotation: Any) -> Iterator[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for each in get_args(annotation):
        yield from inner_models(each)


def meanings(model: type[Model]) -> dict[str, str]:
    """The docstring below each field, of the model and of those that it is made from."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__[: model.__mro__.index(Model)]):
        (made,) = ast.parse(inspect.getsource(each)).body
        assert isinstance(made, ast.ClassDef)
        for field, below in pairwise(made.body):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                assert isinstance(field.target, ast.Name)
                found[field.target.id] = " ".join(ast.literal_eval(below.value).split())
    return found


def section(model: type[Model]) -> str:
    about = " ".join((model.__doc__ or "").split())
    told = meanings(model)
    rows = [
        f"| `{key}` | {spell(field.annotation, list(field.metadata))} | {default_of(field)} "
        f"| {told.get(key, '')} |"
        for key, field in model.model_fields.items()
    ]
    head = ["| key | value | when left out | meaning |", "|---|---|---|---|"]
    return "\n".join([f"### {model.__name__}", "", about, "", *head, *rows, ""])


def reference() -> str:
    return "\n".join(section(model) for model in models(Site, {}).values())


def test_the_reference_is_that_of_the_models(golden: Callable[[Path, str], None]) -> None:
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    golden(PAGE, f"{before}{BEGIN}\n{reference()}\n{END}{after}")


def test_every_key_is_explained() -> None:
    unexplained = [
        f"{name}.{key}"
        for name, model in models(Site, {}).items()
        for key in model.model_fields
        if not meanings(model).get(key, "").endswith(".")
    ]
    assert unexplained == []


EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_examples_are_valid_sites(text: str) -> None:
    assert loads(text).departments
