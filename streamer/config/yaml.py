"""Reads YAML into plain values, and remembers the position of each.

Supports only what a configuration needs: mappings, lists and scalars, anchors and merge keys; no tags; one document, bounded
in size and depth (aliases and merge keys count at each use, and nothing may contain itself). Environment variables are
inserted into scalar values after parsing, so that they cannot change the structure of the file.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

import yaml

from streamer.config.secrets import WITHHELD, is_secret_line, is_secret_name

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 100_000
LIST_FACTOR = 16
"""A list of expectations may be so many times as long as a configuration: `streamer test --record` writes 20 000 of them."""

_MOST_BITS = 64

LONG = 8
"""A value from the environment with at least this length may be a secret, whatever its variable's name."""

Location = tuple[str | int, ...]
"""Keys and list positions from the top of the file."""

_TAG = "tag:yaml.org,2002:"
_TEXT = _TAG + "str"
_MERGE = _TAG + "merge"
_KNOWN_TAGS = {_TAG + name for name in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge")}
_QUOTED = re.compile(r"""'([^'\n]*)'|"([^"\n]*)\"""")
_NOT_UTF8 = "text that UTF-8 cannot hold; expected whole characters"
_OCTAL = re.compile(r"[-+]?0[0-9_]+")
_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<inside>[^}]*)\}?")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)


class Position(NamedTuple):
    """Line and column, both from 1."""

    line: int
    column: int


class Mistake(NamedTuple):
    """A mistake in the YAML itself."""

    position: Position
    location: Location
    message: str


@dataclass
class Document:
    """A file's values and their positions. If there are mistakes, ``data`` is what could be read nevertheless."""

    data: Any = None
    values: dict[Location, Position] = field(default_factory=dict)
    keys: dict[Location, Position] = field(default_factory=dict)
    variables: dict[Location, tuple[str, ...]] = field(default_factory=dict)
    """The values that contain environment variables, with the names of these."""
    inserted: dict[Location, list[str]] = field(default_factory=dict)
    """The texts that stand for environment variables in values: their values, or the defaults in the file."""
    secrets: list[str] = field(default_factory=list)
    """Texts that no message may quote, such as values from the environment."""
    mistakes: list[Mistake] = field(default_factory=list)

    def position(self, location: Location, of_key: bool = False) -> Position:
        """Return the position of the value (or its key) at ``location``. If it is not in the file: of its parent."""
        while location:
            value, key = self.values.get(location), self.keys.get(location)
            if found := (key or value) if of_key else (value or key):
                return found
            location, of_key = location[:-1], True
        return Position(1, 1)


def read(text: str, environ: Mapping[str, str], most_nodes: int = MAX_NODES) -> Document:
    """Read one document. Mistakes in the text are not raised: see ``Document.mistakes``."""
    document = Document()
    loader: _Composer | None = None
    try:
        loader = _Composer(text)
        node = loader.get_single_node()
    except yaml.reader.ReaderError as exc:
        before = text[: exc.position]
        position = Position(before.count("\n") + 1, exc.position - before.rfind("\n"))
        document.mistakes.append(Mistake(position, (), "a control character; expected printable text"))
    except yaml.MarkedYAMLError as exc:
        document.mistakes.append(_syntax(text, exc))
    except _TooMuchError as exc:
        document.mistakes.append(Mistake(exc.position, (), str(exc)))
    except (ValueError, OverflowError):  # PyYAML checks neither the character of an escape nor the length of a number
        assert loader is not None
        mark = loader.get_mark()
        message = "not valid YAML: an escape of no character, or a number that is too long"
        document.mistakes.append(Mistake(Position(mark.line + 1, mark.column + 1), (), message))
    else:
        if node is not None:
            _Walk(document, environ, most_nodes).start(node)
    return document


def _too_deep() -> str:
    return f"nested too deeply; expected at most {MAX_DEPTH} levels"


def _syntax(text: str, exc: yaml.MarkedYAMLError) -> Mistake:
    problem = exc.problem or "it cannot be read"
    at_end = "end of stream" in problem  # a quoted text without end: the position of its beginning says more
    mark = (exc.context_mark if at_end else None) or exc.problem_mark or exc.context_mark
    if mark is None:
        return Mistake(Position(1, 1), (), "not valid YAML")
    lines = text.split("\n")
    line = lines[min(mark.line, len(lines) - 1)]
    here = text[mark.index : mark.index + 1]
    if here == "\t":
        message = "a tab; expected spaces for indentation"
    elif exc.context == "while scanning an alias" or "undefined alias" in problem:
        message = "not valid YAML: a * begins an alias; expected quotes around text with a *"
    elif "single document" in (exc.context or ""):
        message = "a second document; expected one"
    elif here == "{" and text[mark.index - 1 : mark.index] == "$":
        message = "not valid YAML: expected quotes around ${...} inside { } and [ ]"
    elif is_secret_line(line):
        message = "not valid YAML (the text is withheld)"
    else:
        message = f"not valid YAML: {exc.context + ', ' if exc.context else ''}{problem}"
        message = _QUOTED.sub(_of_the_parser, message)
    return Mistake(Position(mark.line + 1, mark.column + 1), (), message)


def _of_the_parser(quoted: re.Match[str]) -> str:
    """Return a quoted character, or the parser's name of a token, such as '<scalar>'. Other quotes may be secrets."""
    text = quoted[1] or quoted[2] or ""
    return quoted[0] if len(text) <= 1 or re.fullmatch(r"<[a-z ]+>", text) else WITHHELD


class _Composer(yaml.SafeLoader):
    """Makes nodes of a text, to a bounded depth: PyYAML recurses for each level."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # no stub
            raise _TooMuchError(Position(mark.line + 1, mark.column + 1), _too_deep())
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Walk:
    """Turns nodes into values."""

    def __init__(self, document: Document, environ: Mapping[str, str], most_nodes: int) -> None:
        self._document = document
        self._most_nodes = most_nodes
        self._environ = environ
        self._loader = yaml.SafeLoader("")
        self._nodes = 0
        self._open: set[int] = set()  # the mappings and lists around the present node, by aliases and merge keys, too

    def start(self, node: yaml.Node) -> None:
        try:
            self._document.data = self._value(node, ())
        except _TooMuchError as exc:
            self._document.data = None
            self._document.mistakes.append(Mistake(exc.position, (), str(exc)))

    @contextlib.contextmanager
    def _inside(self, node: yaml.Node) -> Iterator[None]:
        """Count a node, and check that it does not contain itself, around the reading of its content."""
        self._nodes += 1
        if id(node) in self._open:
            raise _TooMuchError(_position(node), "it contains itself, by an alias (*) or a merge key (<<)")
        if len(self._open) > MAX_DEPTH:
            raise _TooMuchError(_position(node), _too_deep())
        if self._nodes > self._most_nodes:
            raise _TooMuchError(_position(node), f"too many values; expected at most {self._most_nodes}, aliases counted")
        self._open.add(id(node))
        yield
        self._open.remove(id(node))

    def _value(self, node: yaml.Node, location: Location) -> Any:
        with self._inside(node):
            return self._of_kind(node, location)

    def _of_kind(self, node: yaml.Node, location: Location) -> Any:
        position = _position(node)
        self._document.values[location] = position
        if _is_mapping(node):
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self._value(child, (*location, index)) for index, child in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.tag in _KNOWN_TAGS:
            return self._scalar(node, location)
        self._wrong(position, location, "a YAML tag; expected plain text, numbers, lists and mappings only")
        return None

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        data: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        first_line: dict[str, int] = {}
        # Merged keys first, so that the positions of the mapping's own keys replace theirs.
        for key_node, value_node in sorted(node.value, key=lambda pair: bool(pair[0].tag != _MERGE)):
            position = _position(key_node)
            if key_node.tag == _MERGE:
                merged |= self._merge(value_node, location)
                continue
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _TEXT:
                self._wrong(position, location, "a key that is not text; expected text, in quotes if it looks like a number")
                continue
            key = str(key_node.value)
            if not _is_utf8(key):
                self._wrong(position, location, _NOT_UTF8)
                continue
            if key in first_line:
                self._wrong(
                    position,
                    (*location, key),
                    f"duplicate key in lines {first_line[key]} and {position.line}; expected each key once",
                )
                continue
            first_line[key] = position.line
            self._document.keys[*location, key] = position
            data[key] = self._value(value_node, (*location, key))
        return merged | data

    def _merge(self, node: yaml.Node, location: Location) -> dict[str, Any]:
        """Return the value of ``<<``: a mapping, or a list of mappings, of which the first with a key has precedence."""
        if _is_mapping(node):
            with self._inside(node):
                return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode) and all(map(_is_mapping, node.value)):
            merged: dict[str, Any] = {}
            for child in reversed(node.value):
                merged |= self._merge(child, location)
            return merged
        self._wrong(_position(node), location, "expected a mapping, or a list of mappings, behind <<")
        return {}

    def _scalar(self, node: yaml.ScalarNode, location: Location) -> Any:
        text, names = self._substituted(str(node.value), _position(node), location)
        tag = node.tag
        # A type that was implied by the text is determined again; quoted text and explicit tags stay.
        if text != node.value and node.style is None and tag == self._implied_tag(node.value):
            tag = self._implied_tag(text)
        if names:
            self._document.variables[location] = names
        if node.style is None and (unusual := _unusual_number(tag, text)):
            self._wrong(_position(node), location, unusual)
            return None
        if not _is_utf8(text):
            self._wrong(_position(node), location, _NOT_UTF8)
            return None
        if tag not in _KNOWN_TAGS or tag in (_MERGE, _TAG + "value"):
            tag = _TEXT
        try:
            value = self._loader.construct_object(yaml.ScalarNode(tag, text), deep=True)
        except (ValueError, LookupError, OverflowError, AttributeError, yaml.YAMLError):  # a tag may be on any text
            self._wrong(_position(node), location, "not what its form or tag promises; expected quotes around text")
            return None
        if isinstance(value, int) and value.bit_length() > _MOST_BITS:  # Python would refuse to show it
            self._wrong(_position(node), location, f"a number of more than {_MOST_BITS} bits; expected a smaller one")
            return None
        return value

    def _implied_tag(self, text: str) -> str:
        return str(self._loader.resolve(yaml.ScalarNode, text, (True, False)))  # type: ignore[no-untyped-call]  # no stub

    def _substituted(self, text: str, position: Position, location: Location) -> tuple[str, tuple[str, ...]]:
        """Return ``text`` with its environment variables replaced, and their names."""
        names: list[str] = []

        def replacement(match: re.Match[str]) -> str:
            if match["inside"] is None:
                return "${"
            inside = _INSIDE.fullmatch(match["inside"])
            if inside is None or not match[0].endswith("}"):
                self._wrong(position, location, "expected ${NAME} or ${NAME:-default}, and $${ for a plain ${")
                return ""
            name, default = inside["name"], inside["default"]
            value = self._environ.get(name)
            if value is None and default is None:
                self._wrong(
                    position, location, f"environment variable {name} is not set; expected it, or ${{{name}:-default}}"
                )
                self._document.variables[location] = (name,)
                return ""
            inserted = self._document.inserted.setdefault(location, [])
            if default is not None and not value:
                inserted.append(str(default))
                return str(default)
            inserted.append(value or "")
            names.append(name)
            if value and (is_secret_name(name) or len(value) >= LONG):
                self._document.secrets.append(value)
            return value or ""

        return _REFERENCE.sub(replacement, text), tuple(names)

    def _wrong(self, position: Position, location: Location, message: str) -> None:
        self._document.mistakes.append(Mistake(position, location, message))


def _unusual_number(tag: str, text: str) -> str:
    """Return the mistake in a number that YAML 1.1 reads unlike people and YAML 1.2; empty: none."""
    if tag == _TAG + "int" and _OCTAL.fullmatch(text):
        return "an octal number, because of its leading 0; expected a number without it, or quotes around text"
    if tag in (_TAG + "int", _TAG + "float") and ":" in text:
        return "a number in base 60, because of its colon; expected a number without it, or quotes around text"
    return ""


def _is_mapping(node: yaml.Node) -> TypeGuard[yaml.MappingNode]:
    return isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map"


def _is_utf8(text: str) -> bool:
    """Whether UTF-8 can encode a text: not ``"\\ud800"``, nor bytes of the environment in another encoding."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _TooMuchError(Exception):
    """The document is larger than a configuration may be."""

    def __init__(self, position: Position, message: str) -> None:
        super().__init__(message)
        self.position = position


def _position(node: yaml.Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)
