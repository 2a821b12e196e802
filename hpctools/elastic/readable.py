"""Whether a training's state can be saved and read back, asked before the first step, not after an hour.

And again of each state that is saved or sent, as an object may hand out something else by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpctools.elastic.checkpoint.structure import packed, split, unpacked
from hpctools.elastic.containers import PLACE, mapped
from hpctools.errors import ElasticError


def check_readable(state: Mapping[str, Any]) -> None:
    """Make sure that what is no tensor comes back as it was written; takes no time for the tensors.

    Args:
        state: as it is saved and moved: a nest of dicts, lists, tuples, plain values and tensors.

    Raises:
        ElasticError: something in it does not; names its place in the state.
    """
    check_skeleton(split(state)[1])


def check_skeleton(skeleton: Mapping[str, Any]) -> None:
    """As `check_readable`, of a state with places where its tensors are; takes no time for the places.

    Raises:
        ElasticError: something in it does not come back; names its place in the state.
    """
    bare = _without_places(skeleton)
    if (reason := _reason(bare)) is None:
        return
    place, value, reason = _blamed(bare, reason)
    raise ElasticError(
        f"{place}, of type {type(value).__module__}.{type(value).__qualname__}, cannot be saved or moved to "
        f"another worker: {reason}",
        "have state_dict() give numbers, texts, containers and tensors, and load_state_dict() make it anew; "
        "a type of your own can also be allowed: torch.serialization.add_safe_globals",
    )


def _without_places(value: Any) -> Any:
    if isinstance(value, tuple) and value and isinstance(value[0], str) and value[0] == PLACE:
        return None
    return mapped(value, lambda each, _: _without_places(each))


def _blamed(state: Mapping[str, Any], reason: str) -> tuple[str, Any, str]:
    """The innermost part that does not come back, where it is, and why."""
    place, value = "the state", state
    while True:
        for step, each in _items(value):
            if (why := _reason(each)) is not None:
                place = _joined(place, step, outermost=value is state)
                value, reason = each, why
                break
        else:
            return place, value, reason


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, (list, tuple)):
        yield from enumerate(value)


def _joined(place: str, step: Any, *, outermost: bool) -> str:
    """A part's place as one would write it; `state NAME` is how a loader calls what it was given by name."""
    if not outermost:
        return f"{place}[{step!r}]"
    kind, _, name = str(step).partition(" ")
    return f"{kind}[{name!r}]" if name else kind


def _reason(value: Any) -> str | None:
    """Why a value does not come back; None: it does."""
    try:
        unpacked(packed(value))
    except Exception as error:  # noqa: BLE001 - the value's own __reduce__ may raise whatever it likes
        return _shortened(str(error) or type(error).__name__)
    return None


def _shortened(text: str) -> str:
    """The line that says something; torch's own also has advice, in place of which we have ours."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "Unsupported" in line), lines[0]).partition(". Please use")[0]
