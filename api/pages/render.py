"""Templates."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from api.rooted import ROOT, linked


def render(template: str, **values: Any) -> str:
    """A page out of a template; values are escaped."""
    return _environment().get_template(template).render(**values)


@lru_cache(maxsize=8)
def source(name: str) -> str:
    """A file beside the templates, as it is."""
    return (files("api.pages") / "templates" / name).read_text()


@lru_cache(maxsize=1)
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("api.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["linked"], made.globals["root"] = linked, ROOT.get
    return made
