"""The documentation can't name a file that isn't there.

Checked in README, changelog, architecture page, decisions and the demo's sources: relative links, paths in code spans,
and that decisions are numbered without a gap and have every section.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from streams.core.settings import Catalogue

ROOT = Path(__file__).resolve().parents[2]
DECISIONS = sorted((ROOT / "infra/decisions").glob("*.md"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "infra/ARCHITECTURE.md",
    ROOT / "infra/demo/SOURCES.md",
    *DECISIONS,
]

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+(?:\([^()\s]*\))?)\)")
CODE = re.compile(r"`([^`\n]+)`")
# A code span is a path if it starts with a directory of the fixed layout or is a file of the top level.
PATH = re.compile(r"(?:schemas|streams|connectors|infra|tests)/[\w.*/-]*|[\w.-]+\.(?:md|toml|yml)|Makefile|LICENSE")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def links(page: str) -> list[str]:
    """Relative links of a page, fences left out."""
    found = LINK.findall(FENCE.sub("", page))
    return [link for link in found if not re.match(r"[a-z][a-z0-9+.-]*:", link)]


def paths(page: str) -> list[str]:
    """Code spans that are paths of this project, without a trailing `:line` or `::test`."""
    spans = (span.split(":")[0] for span in CODE.findall(FENCE.sub("", page)))
    return [span for span in spans if PATH.fullmatch(span)]


def resolves(link: str, page: Path) -> bool:
    """Whether a relative link leads to a file of this project and, in Markdown, to one of its headings."""
    name, _, anchor = unquote(link).partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target.read_text("utf-8"))


def exists(path: str, page: Path) -> bool:
    """Whether a path, which may hold `*`, exists seen from the project's root or from beside the page."""
    return any(next(folder.glob(path), None) is not None for folder in (ROOT, page.parent))


def anchors(page: str) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    titles = (re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", title) for title in HEADING.findall(FENCE.sub("", page)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_everything_that_a_page_links_to_exists(page: Path) -> None:
    broken = [link for link in links(page.read_text("utf-8")) if not resolves(link, page)]
    assert not broken, f"{page.relative_to(ROOT)} links to what doesn't exist: {broken}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    missing = [path for path in paths(page.read_text("utf-8")) if not exists(path, page)]
    assert not missing, f"{page.relative_to(ROOT)} names paths that don't exist: {missing}"


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = [page.name[:4] for page in DECISIONS]
    assert numbers == [f"{number:04d}" for number in range(1, len(DECISIONS) + 1)]


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_title_state_and_sections(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text.startswith(f"# {page.name[:4]} ")
    assert re.search(r"^\d{4}-\d{2}-\d{2}, (accepted|rejected|replaced by \d{4})$", text, re.MULTILINE)
    sections = re.findall(r"^\*\*(\w+)\b", text, re.MULTILINE)
    assert sections == ["Context", "Decision", "Consequences", "Measured"]


def test_every_decision_is_on_the_architecture_page() -> None:
    page = (ROOT / "infra/ARCHITECTURE.md").read_text("utf-8")
    assert [decision.name for decision in DECISIONS if f"decisions/{decision.name}" not in page] == []


def test_the_checks_notice_what_is_missing() -> None:
    page = (
        "[a](no/such.md) `streams/no_such.py:3` `x.y`\n```\n[b](c.md) `infra/none`\n```\n[web](https://example.org/a)"
    )
    assert links(page) == ["no/such.md"]
    assert paths(page) == ["streams/no_such.py"]
    assert exists("schemas/*.py", ROOT / "README.md")
    assert not exists("schemas/*.none", ROOT / "README.md")
    assert anchors("# Where to look *first*\n") == {"where-to-look-first"}


def test_presets_of_the_readme_are_presets_of_a_file() -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.S | re.M)
    named = [name for block in blocks for name in Catalogue(block, origin="README.md").names()]
    assert {"balanced", "patient"} <= set(named)


def test_no_make_target_stands_twice() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = re.findall(r"^([a-z]+):", makefile, re.M)
    assert sorted(set(targets)) == sorted(targets)
    assert {"help", "setup", "demo", "test", "check", "bench", "up", "kafka", "lucene", "clean", "soak"} <= set(targets)
