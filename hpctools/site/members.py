"""The people of the directory's groups, as a file beside the site file, and as part of the site.

`hpctools identity sync` writes the file; whoever reads the site reads it too. So a plan needs no directory,
shows people who come and go like every other change, and nobody goes because a server did not answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError

from hpctools.site.base import Model
from hpctools.site.departments import Department, Lab
from hpctools.site.document import Document, parse
from hpctools.site.findings import Finding, InvalidSiteError, UnreadableSiteError, spell_value
from hpctools.site.identity import DirectoryGroup
from hpctools.site.model import Site
from hpctools.site.scalars import UserName

Groups = Mapping[str, tuple[str, ...]]
"""The Unix accounts of the people of each group."""

_HEAD = "# Written by `hpctools identity sync` from the directory; edits are overwritten.\n"
_Owner = TypeVar("_Owner", Department, Lab)


class _File(Model):
    version: Literal[1]
    groups: dict[DirectoryGroup, Annotated[tuple[UserName, ...], Field(max_length=100_000)]]


def members_file(site: Site, site_file: Path) -> Path | None:
    """Where the people of the site's groups are kept; None for a site that has no directory."""
    return site_file.parent / site.identity.members_file if site.identity is not None else None


def read_members(path: Path) -> Groups | None:
    """Read the file.

    Returns:
        The groups; None when there is no file.

    Raises:
        InvalidSiteError: it cannot be read, or has findings.
    """
    try:
        return parse_members(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        found = getattr(error, "strerror", None) or "bytes that are not UTF-8"
        raise UnreadableSiteError(path, found.lower(), "what `hpctools identity sync` wrote") from None


def parse_members(text: str, file: str) -> Groups:
    """Parse the file's text.

    Raises:
        InvalidSiteError: it has findings: a name that is no Unix account, for instance.
    """
    document = parse(text, file)
    if document.findings:
        raise InvalidSiteError(document.findings)
    try:
        return _File.model_validate(document.data).groups
    except ValidationError as error:
        raise InvalidSiteError(_findings(document, error)) from None


def _findings(document: Document, error: ValidationError) -> Iterable[Finding]:
    for detail in error.errors(include_url=False):
        location = tuple(step for step in detail["loc"] if step != "[key]")
        expected = str(detail.get("ctx", {}).get("expected") or detail["msg"])
        yield document.finding(location, spell_value(detail["input"]), expected)


def spell_members(groups: Groups) -> str:
    """Spell groups as `parse_members` reads them: in order, so that a difference shows who comes and goes."""
    lines = [_HEAD + "version: 1", "groups:" if groups else "groups: {}"]
    for name, people in sorted(groups.items()):
        lines.append(f"  {json.dumps(name)}:" if people else f"  {json.dumps(name)}: []")
        lines += [f"    - {json.dumps(user)}" for user in sorted(set(people))]
    return "\n".join(lines) + "\n"


def with_members(site: Site, groups: Groups) -> Site:
    """Return a site whose accounts also have the people of their groups.

    Args:
        site: the site as its file says.
        groups: the people of the directory's groups; accounts whose groups are not all here stay unread.
    """
    departments = tuple(_fed(each, groups) for each in site.departments)
    return site.model_copy(update={"departments": departments}).with_groups_read(groups)


def _fed(owner: _Owner, groups: Groups) -> _Owner:
    found: list[str] = [user for name in owner.members_from for user in groups.get(name, ())]
    members = tuple(dict.fromkeys([*owner.members, *found]))
    labs = tuple(_fed(lab, groups) for lab in owner.labs)
    return owner.model_copy(update={"members": members, "labs": labs})
