"""What a state is made of beside tensors: containers, and values that read back as they were written.

State moves and is saved as `torch.load(weights_only=True)` takes it, so that nothing in it can make us run
code. That leaves out numpy's numbers, which a `LambdaLR` whose function uses numpy puts into `param_groups`,
and the types of named tuples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

PLACE = "\x00tensor"
"""A tensor's place in a state without its tensors is a tuple that begins with this."""


def mapped(value: Any, convert: Callable[[Any, Any], Any]) -> Any:
    """A container with everything in it converted; a value that is none as it is, numpy's as Python's.

    Args:
        convert: is given each item, and its key or place.

    Returns:
        A Counter for a Counter, a dict for any other mapping, a tuple for a named tuple, else the same type.
    """
    if isinstance(value, Mapping):
        items = {key: convert(each, key) for key, each in value.items()}
        return Counter(items) if isinstance(value, Counter) else items
    if isinstance(value, (list, tuple)):
        kind = tuple if hasattr(value, "_fields") else type(value)
        return kind([convert(each, place) for place, each in enumerate(value)])
    return value.item() if _is_numpys_scalar(value) else value


def plain(value: Any) -> Any:
    """The same with all that is in it made plain by `mapped`, however deep."""
    return mapped(value, lambda each, _: plain(each))


def _is_numpys_scalar(value: Any) -> bool:
    return type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
