"""The documentation's links: each leads to a file that is there, and to a heading of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")))
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"\bdocs/[\w./-]+\.md\b")
SOURCES = ("hpctools", "api", "bench", "demo", "tests", "lifecycle-scripts", "pam", "slurm-conf")


def prose(page: Path) -> str:
    """What is no code: there brackets are not links, and # is no heading."""
    return CODE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """By which names GitHub makes a page's headings known."""
    fenced = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", fenced, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in headings}


def broken(page: Path) -> Iterator[str]:
    """The links of a page that lead nowhere."""
    for link in LINK.findall(prose(page)):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not link.startswith(("http://", "https://")) and (
            not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target))
        ):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_what_is_there(page: Path) -> None:
    assert list(broken(page)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `page`\n[a](#a-page) [b](#gone) [c](gone.md) `[d](gone)` [e](https://example.org/x)\n"
    )
    assert list(broken(page)) == ["#gone", "gone.md"]


def test_messages_and_comments_name_pages_that_are_there() -> None:
    """Those of commands send people to them."""
    named = {
        (str(path.relative_to(ROOT)), page)
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".yaml", ".service", ".conf", ".sh", ".md"} and path.is_file()
        for page in NAMED.findall(path.read_text(encoding="utf-8", errors="replace"))
    }
    assert len(named) > 50
    assert {each for each in named if not (ROOT / each[1]).exists()} == set()
