"""Reading the Markdown pages of this repository. No tests."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^    +\S.*$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?) *$", re.MULTILINE)
_ELSEWHERE = re.compile(r"[a-z]+:")


def everything() -> list[Path]:
    """Every Markdown file of the repository."""
    found = (path for path in ROOT.rglob("*.md"))
    mine = [
        path for path in found if not {part for part in path.relative_to(ROOT).parts if part[0] == "." or part == "build"}
    ]
    assert README in mine
    return sorted(mine)


def pages() -> list[Path]:
    """What describes the program as it is: not the changelog and the decisions, which tell how it came to be so."""
    return [path for path in everything() if path.name != "CHANGELOG.md" and DOCS / "adr" not in path.parents]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


ALL = pytest.mark.parametrize("page", everything(), ids=named)
PRESENT = pytest.mark.parametrize("page", pages(), ids=named)


def prose(text: str) -> str:
    """A page without its code."""
    return INLINE.sub("", FENCE.sub("", text))


def code(text: str) -> Iterator[str]:
    """The lines of a page's code blocks, fenced or indented."""
    for _, block in FENCE.findall(text):
        yield from block.splitlines()
    yield from (line.strip() for line in _INDENTED.findall(FENCE.sub("", text)))


def slugs(text: str) -> set[str]:
    """The anchors of a page's headings, by GitHub's rule."""
    found: dict[str, int] = {}
    for heading in _HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
        if found[slug]:
            found[f"{slug}-{found[slug]}"] = 0
    return set(found)


def links(page: Path) -> Iterator[tuple[str, Path, str]]:
    """Every link of a page to something in the repository: as it stands there, its file, and its anchor."""
    for link in _LINK.findall(prose(page.read_text())):
        if not _ELSEWHERE.match(link):
            file, _, anchor = link.partition("#")
            yield link, (page.parent / file).resolve() if file else page, anchor


def block(page: Path, heading: str, kind: str) -> str:
    """The only fenced block of this kind below a heading."""
    text = page.read_text()
    assert text.count(f"\n{heading}\n") == 1, heading
    part = re.split(r"^##", text.partition(f"\n{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    (found,) = [each for language, each in FENCE.findall(part) if language == kind]
    return str(found)


def rows(page: Path, heading: str) -> list[list[str]]:
    """The cells of the table rows below a heading whose first cell begins with a name in backticks."""
    text = page.read_text()
    assert text.count(f"\n{heading}\n") == 1, heading
    part = re.split(r"^#", text.partition(f"\n{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def plain(markdown: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "")


def yaml_blocks() -> list[tuple[str, str]]:
    return [(named(page), block) for page in pages() for kind, block in FENCE.findall(page.read_text()) if kind == "yaml"]
