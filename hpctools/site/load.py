"""Reading a site file."""

from __future__ import annotations

from pathlib import Path

from hpctools.site.billing_rules import check_billing
from hpctools.site.document import Document, parse
from hpctools.site.findings import Finding, InvalidSiteError, NoSiteFileError, UnreadableSiteError
from hpctools.site.gpu_rules import check_gpus
from hpctools.site.hyperpod_rules import check_hyperpod
from hpctools.site.members import members_file, read_members, with_members
from hpctools.site.model import Site
from hpctools.site.places import check_places
from hpctools.site.rules import check
from hpctools.site.schema import validate
from hpctools.site.source import Source


def load(path: Path) -> Site:
    """Read a site file, and the people of the directory's groups from the file beside it if there is one.

    Raises:
        InvalidSiteError: a file cannot be read, or has findings; all of them are in `.findings`.
    """
    site = loads(_read(path), str(path))
    place = members_file(site, path)
    groups = read_members(place) if place is not None and site.directory_groups else None
    return site if groups is None else with_members(site, groups)


def loads(text: str, file: str = "site.yaml") -> Site:
    """Read a site from YAML text.

    Args:
        text: the YAML.
        file: its name, for findings.

    Raises:
        InvalidSiteError: it has findings.
    """
    document = parse(text, file)
    if document.data is None and not document.findings:
        raise InvalidSiteError(
            [document.finding((), "an empty file", "a site: cluster, node_groups, departments, tiers")]
        )
    site, findings = _examine(document)
    if site is None or findings:
        raise InvalidSiteError(findings)
    return site


def _examine(document: Document) -> tuple[Site | None, list[Finding]]:
    if document.data is None:
        return None, document.findings
    site, findings = validate(document)
    findings = [*document.findings, *findings, *check(document)]
    if site is None or findings:
        return None, findings
    site = site.with_source(Source(document.file, document.lines))
    return site, [*check_places(site), *check_gpus(site), *check_hyperpod(site), *check_billing(site)]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableSiteError(
            path, f"bytes that are not UTF-8 at offset {error.start}", "UTF-8 text"
        ) from None
    except OSError as error:
        raise NoSiteFileError(path, (error.strerror or str(error)).lower(), "a readable file") from None
