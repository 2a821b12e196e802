"""The facts of an installation as a file: `facts.yaml` beside slurm.conf.

The keys are the attributes of `Facts`; what is left out has its default. A password never stands in it: it is
the whole content of a file of its own, named by `storage_password_file`, that only root may read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError

from hpctools.conf.facts import Facts
from hpctools.errors import HpctoolsError, UsageError
from hpctools.site.document import parse
from hpctools.slurm.versions import parse_release, spell_release

FACTS_FILE = "facts.yaml"
"""Its usual name, in the configuration folder."""

_PASSWORD_FILE = "storage_password_file"  # noqa: S105
# Not `{}`, below which no line can be added.
_NOTHING = "# Nothing yet: add lines such as `cgroup: v1` (docs/plan.md, facts).\n"
_APART = ("slurm_version", "storage_password")
_KINDS = {name: kind for name, kind in get_type_hints(Facts).items() if name not in _APART}


def load_facts(path: Path) -> Facts:
    """Read a facts file.

    Raises:
        UsageError: it cannot be read.
        HpctoolsError: it says what cannot be understood; the message names file and key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read the facts in {path}: {reason}", "check the file, or --facts") from None
    document = parse(text, str(path))
    if document.findings:
        raise HpctoolsError("\n".join(str(finding) for finding in document.findings))
    return _facts(document.data or {}, path)


def dump_facts(facts: Facts) -> str:
    """Spell facts as `load_facts` reads them: only what differs from the defaults, and no password."""
    import yaml

    stated = {name: getattr(facts, name) for name in _KINDS}
    usual = Facts()
    kept = {name: _plain(value) for name, value in stated.items() if value != getattr(usual, name)}
    if facts.slurm_version is not None:
        kept["slurm_version"] = spell_release(facts.slurm_version)
    head = "# What there is beside the site file: release, addresses, ports. hpctools reads it each time.\n"
    return head + (yaml.safe_dump(kept, sort_keys=True, width=100) if kept else _NOTHING)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, BaseModel):
        return value.model_dump()
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, Mapping) else value


def _facts(data: Any, path: Path) -> Facts:
    if not isinstance(data, dict):
        raise HpctoolsError(f"{path}: the facts are no mapping", "write lines such as `cgroup: v1`")
    for key in data:
        if key not in {"slurm_version", _PASSWORD_FILE, *_KINDS}:
            raise HpctoolsError(f"{path}: {key!r} cannot be stated here", _instead(key))
    values = {key: _value(key, data[key], path) for key in _KINDS if key in data}
    if "slurm_version" in data:
        values["slurm_version"] = _release(data["slurm_version"], path)
    if _PASSWORD_FILE in data:
        values["storage_password"] = _password(path.parent / str(data[_PASSWORD_FILE]))
    return Facts(**values)


def _instead(key: str) -> str:
    if key == "storage_password":
        return f"name a file that holds it: {_PASSWORD_FILE}"
    return f"known: {', '.join(sorted(('slurm_version', _PASSWORD_FILE, *_KINDS)))}"


def _value(key: str, value: Any, path: Path) -> Any:
    try:
        return TypeAdapter(_KINDS[key]).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in (key, *first["loc"]))
        raise HpctoolsError(f"{path}: {where}: {first['msg'].lower()}", "see docs/plan.md, facts") from None


def _release(value: Any, path: Path) -> tuple[int, ...]:
    try:
        return parse_release(value if isinstance(value, str) else "")
    except ValueError:
        raise HpctoolsError(
            f"{path}: slurm_version: {value!r} is no release", 'write it in quotes: "24.11.5"'
        ) from None


def _password(path: Path) -> str:
    try:
        if path.stat().st_mode & 0o077:
            raise HpctoolsError(f"{path} holds a password, and others may read it", f"chmod 600 {path}")
        return path.read_text(encoding="utf-8").rstrip("\n")
    except OSError as error:
        raise HpctoolsError(
            f"cannot read the password in {path}: {error.strerror}", "check the file"
        ) from None
