"""The how-to pages: short, listed, and followed by a test."""

import re
from pathlib import Path

import pytest

from tests.e2e.how_to import LINES, PAGES
from tests.pages import DOCS, ROOT, code, links

EACH = pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)


@EACH
def test_a_page_is_one_screen(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= LINES


@EACH
def test_a_page_is_listed_once(page: Path) -> None:
    index = DOCS / "README.md"
    assert page in [target for _, target, _ in links(index)]
    part = index.read_text().partition("\n## How to\n")[2].partition("\n## ")[0]
    assert part.count(f"how-to/{page.name})") == 1


@EACH
def test_a_command_reads_the_files_of_the_service_as_the_service(page: Path) -> None:
    """They are 0640: whoever has another user's rights is refused."""
    assert [line for line in code(page.read_text()) if line.startswith("streamer ")] == []
    assert [line for line in code(page.read_text()) if "--config /etc/ustreamer/streamer.yaml" in line] == []  # the default


@EACH
def test_a_test_follows_the_page(page: Path) -> None:
    """If it does so with `tests.e2e.how_to.Gateway`, that sees to it that all of its blocks are done, in their order."""
    name = re.compile(rf'["/]{page.stem}(\.md)?"')
    tests = [path.name for path in (ROOT / "tests").rglob("test_*.py") if name.search(path.read_text())]
    assert tests
