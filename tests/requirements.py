"""What the specifications require of the streamer, clause by clause, and the tests that cover it.

Owns `requirements.toml`: reading it, finding the tests that it names without running them, and the page
docs/requirements.md, which ``python -m tests.requirements`` writes.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "requirements.toml"
PAGE = ROOT / "docs" / "requirements.md"

Level = Literal["MUST", "SHOULD", "STATED"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""MUST stands for MUST NOT, SHALL and REQUIRED too. STATED is what a document states as a fact, without a key word."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One requirement, in our own words. ``tests`` are pytest node ids without parameters, ``note`` is a remark on it.

    ``spec`` is the identifier of the item in the specification that it stands for or is a part of, if it has one.
    """

    id: str
    section: str
    level: Level
    text: str
    tests: tuple[str, ...]
    note: str
    spec: str


@dataclass(frozen=True, slots=True)
class Document:
    """One document. ``counts`` says how many clauses of each level it holds, as counted by hand in its text."""

    id: str
    title: str
    about: str
    counts: dict[Level, int]
    clauses: tuple[Clause, ...]


def read(path: Path = FILE) -> list[Document]:
    """All documents with their clauses. Raises KeyError or TypeError for a key that is missing or unknown."""
    with path.open("rb") as file:
        return [_document(raw) for raw in tomllib.load(file)["document"]]


def _document(raw: dict[str, Any]) -> Document:
    clauses = tuple(Clause(**({"note": "", "spec": ""} | one | {"tests": tuple(one["tests"])})) for one in raw["clause"])
    return Document(raw["id"], raw["title"], raw["about"], {level: raw[level.lower()] for level in LEVELS}, clauses)


def exists(node: str) -> bool:
    """Whether there is such a test, in a file of ours, and it is not switched off."""
    path, _, name = node.partition("::")
    return name in _tests_in(ROOT / path)


@cache
def _tests_in(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    return frozenset(_names(ast.parse(path.read_text()).body, ""))


def _names(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("test_") and not any(map(_switches_off, node.decorator_list)):
                yield prefix + node.name
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _names(node.body, f"{node.name}::")
        elif isinstance(node, ast.Assign):  # hypothesis: TestBook = Book.TestCase
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id.startswith("Test"):
                    yield f"{target.id}::runTest"


def _switches_off(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute) and called.attr in ("skip", "xfail")


def page(documents: list[Document]) -> str:
    """The whole page: a summary, and a table per document."""
    number = sum(len(document.clauses) for document in documents)
    tests = {test for document in documents for clause in document.clauses for test in clause.tests}
    parts = [
        "# Requirements\n\n"
        "For auditors and developers: every clause of the specifications that this streamer is built to, and the tests\n"
        "that cover it.\n\n"
        f"There are {number} clauses and {len(tests)} tests. No clause that this streamer can meet is without a test. MUST\n"
        "stands for MUST NOT, SHALL and REQUIRED too; STATED is what a document states as a fact, without a key word.\n"
        "Where the specification gives an item an identifier (`dsn~…`, `req~…`), it is told.\n\n"
        "This page is generated: `python -m tests.requirements` writes it from\n"
        "[tests/requirements.toml](../tests/requirements.toml), and a test compares the two.\n"
    ]
    for document in documents:
        counts = ", ".join(f"{count} {level}" for level, count in document.counts.items() if count)
        rows = "".join(_row(clause) for clause in document.clauses)
        parts.append(
            f"## {document.title}\n\n{counts}. {document.about}\n\n"
            f"| clause | level | requirement | tests |\n|---|---|---|---|\n{rows}"
        )
    return "\n".join(parts)


def _row(clause: Clause) -> str:
    asks = _plain(clause.text) + (f" *({_plain(clause.note)})*" if clause.note else "")
    tests = "<br>".join(_link(test) for test in clause.tests) or "–"
    spec = f"<br>`{clause.spec}`" if clause.spec else ""
    return f"| {clause.id}<br>{clause.section}{spec} | {clause.level} | {asks} | {tests} |\n"


def _plain(text: str) -> str:
    """As Markdown that shows just this text, in a table."""
    return text.replace("\\", "\\\\").replace("*", "\\*").replace("|", "\\|").replace("<", "&lt;")


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[{name.removeprefix('test_').replace('_', ' ')}](../{path})"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(read()))
    sys.stdout.write(f"{PAGE} is written\n")


if __name__ == "__main__":
    main()
