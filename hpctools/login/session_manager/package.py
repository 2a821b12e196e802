"""The Lambda function's zip: the handler's module and those of ours that it imports, and nothing else."""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import hpctools

HANDLER = "hpctools.cli.session_manager_lambda"
_TOP = "hpctools"
_DAWN = (1980, 1, 1, 0, 0, 0)
"""The first moment that a zip can name: the bytes do not depend on when they were made."""
_READABLE = 0o100644 << 16
_UNIX = 3


def function_zip(module: str = HANDLER) -> bytes:
    """A zip with a module and all of ours that it imports: the same bytes from the same sources, anywhere.

    It is not compressed: what zlib makes depends on its release. boto3 is Lambda's own.
    """
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for path, text in sorted(sources(module).items()):
            entry = zipfile.ZipInfo(path, _DAWN)
            entry.create_system, entry.external_attr = _UNIX, _READABLE
            archive.writestr(entry, text)
    return made.getvalue()


def sources(module: str) -> dict[str, bytes]:
    """Path and text of a module of ours, of those that it imports, and of the packages around them."""
    found: dict[str, bytes] = {}
    wanted = [module]
    while wanted:
        name = wanted.pop()
        for each in _with_parents(name):
            place = _place(each)
            if place is not None and place[0] not in found:
                found[place[0]] = place[1].read_bytes()
                wanted += imports(found[place[0]])
    return found


def imports(text: bytes) -> Iterator[str]:
    """What a text imports of ours when it runs, also within functions; `from a import b` may mean `a.b`.

    What stands under `if TYPE_CHECKING` is for checkers, and does not count.
    """
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from _ours([node.module, *(f"{node.module}.{each.name}" for each in node.names)])
        elif isinstance(node, ast.Import):
            yield from _ours([each.name for each in node.names])


def _ours(names: list[str]) -> list[str]:
    return [name for name in names if name.split(".")[0] == _TOP]


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _place(name: str) -> tuple[str, Path] | None:
    """A module's path in the zip and its file; None for what is no module."""
    top = Path(hpctools.__file__).parent.parent
    inside = name.replace(".", "/")
    candidates = (f"{inside}/__init__.py", f"{inside}.py")
    return next(((each, top / each) for each in candidates if (top / each).is_file()), None)
