"""Every call that logs names its event in the source: a name that is put together while the program runs cannot be searched
for, and `JsonFormatter`, which takes the event and its fields from the format string, would write the format instead.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import streamer

ROOT = Path(streamer.__file__).parent
LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log"}
EVENT = re.compile(r"[a-z][a-z0-9_]*(?= |$)")
FIELD = re.compile(r" \w+=%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")


def formats(source: str) -> Iterator[str]:
    """The format strings of the calls that log: those that stand in the call, and those of the names that it passes."""
    tree = ast.parse(source)
    everywhere = _named(tree.body)
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        named = everywhere | _named(ast.walk(function))
        for node in ast.walk(function):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS):
                continue
            if not (isinstance(node.func.value, ast.Name) and node.func.value.id in ("logger", "_logger")):
                continue
            given = node.args[1 if node.func.attr == "log" else 0]
            found = named.get(given.id, []) if isinstance(given, ast.Name) else [given]
            for value in found:
                yield from _texts(value)


def _named(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """The values that these statements give to names."""
    named: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named.setdefault(node.targets[0].id, []).append(node.value)
    return named


def _texts(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.IfExp):
        yield from _texts(value.body)
        yield from _texts(value.orelse)
    elif isinstance(value, ast.BinOp):  # a name that the caller passes, and a constant
        yield from (f"event{text}" if isinstance(value.left, ast.Name) else text for text in _texts(value.right))


def faults(source: str) -> list[str]:
    """Format strings without a fixed event, or with a value that is no field, unless it stands in a text after a colon."""
    found = []
    for text in formats(source):
        head = text.split(": ", 1)[0]
        if EVENT.match(text) is None or FIELD.sub("", head).count("%"):
            found.append(text)
    return found


FILES = [path for path in sorted(ROOT.rglob("*.py")) if "logger" in path.read_text()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_event_and_fields_of_every_line_stand_in_the_source(path: Path) -> None:
    assert faults(path.read_text()) == []


@pytest.mark.parametrize(
    "call",
    [
        'logger.info("node_%s endpoint=%s", "found", name)',
        'logger.info("node_found %s endpoint=%s", zid, name)',
        'text = "node_%s endpoint=%s"\n    logger.info(text, "found", name)',
        'text = "node_found" if found else "node_%s"\n    logger.log(level, text, "lost")',
        'logger.info("%s", text)',
        'logger.info("Node found endpoint=%s", name)',
    ],
)
def test_a_line_without_is_found(call: str) -> None:
    assert len(faults(f"def f():\n    {call}\n")) == 1


def test_files_that_log_are_looked_at() -> None:
    """So that the test does not look at nothing once a logger has another name."""
    assert sum(len(list(formats(path.read_text()))) for path in FILES) > 100
