"""The documents are true: links lead somewhere, and names, keys, defaults, commands and files are those of the code."""

import ast
import importlib
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark_jobs.schema import TRACE
from spark_jobs.tables import TABLES
from streamer.admin.metrics import Exposition
from streamer.cli.main import _parser
from streamer.config.load import json_schema, load, warnings
from streamer.config.models import POLICY_KEYS, Config, TraceConfig
from streamer.config.permissions import load_verifier
from streamer.daemon import Daemon
from streamer.routing.outcome import Outcome
from streamer.traces.reader import COLUMNS
from streamer.transports.base import UTransport
from streamer.transports.installed import available_transports, load_transport
from streamer.transports.listening import ListeningTransport
from streamer.uprotocol.proto.ustreamer_v1_pb2 import DeadLetter

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
README_LINES = 200

OURS = [kind for kind in available_transports() if load_transport(kind).__module__.startswith("streamer.")]
"""The transports of this package; others may be installed beside it."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^    +\S.*$", re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
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


def _is_hidden(folder: str) -> bool:
    return folder.startswith(".") or folder in ("build", "dist")


def pages() -> list[Path]:
    """What describes the program as it is: not the changelog and the decisions, which tell how it came to be so."""
    return [path for path in everything() if path.name != "CHANGELOG.md" and DOCS / "adr" not in path.parents]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


ALL = pytest.mark.parametrize("page", everything(), ids=named)
PRESENT = pytest.mark.parametrize("page", pages(), ids=named)


def prose(text: str) -> str:
    """A page without its code."""
    return _INLINE.sub("", _FENCE.sub("", text))


def code(text: str) -> Iterator[str]:
    """The lines of a page's code blocks, fenced or indented."""
    for _, block in _FENCE.findall(text):
        yield from block.splitlines()
    yield from (line.strip() for line in _INDENTED.findall(_FENCE.sub("", text)))


def slugs(text: str) -> set[str]:
    """The anchors of a page's headings, by GitHub's rule."""
    found: dict[str, int] = {}
    for heading in _HEADING.findall(_FENCE.sub("", text)):
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


def rows(page: Path, heading: str) -> list[list[str]]:
    """The cells of the table rows below a heading whose first cell begins with a name in backticks."""
    text = page.read_text()
    assert text.count(f"\n{heading}\n") == 1, heading
    part = re.split(r"^#", text.partition(f"\n{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def plain(markdown: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "")


# links


@ALL
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link, target, anchor in links(page):
        is_page = target.suffix == ".md" and target.is_file()
        if not target.exists() or (anchor and is_page and anchor not in slugs(target.read_text())):
            broken.append(link)
    assert broken == []


def test_every_page_can_be_reached_from_the_readme_or_the_index() -> None:
    seen: set[Path] = set()
    waiting = [README, DOCS / "README.md"]
    while waiting:
        page = waiting.pop()
        if page.is_dir():
            page /= "README.md"
        if page.suffix == ".md" and page.is_file() and page not in seen:
            seen.add(page)
            waiting += [target for _, target, _ in links(page)]
    assert [named(page) for page in sorted(DOCS.rglob("*.md")) if page not in seen] == []


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= README_LINES


@pytest.mark.parametrize(
    ("heading", "slug"),
    [
        ("# What to look at when …", "what-to-look-at-when-"),
        ("### `streamer dead-letters`", "streamer-dead-letters"),
        ("## Two, side-by-side: [a link](x.md)", "two-side-by-side-a-link"),
    ],
)
def test_anchors_are_made_as_on_github(heading: str, slug: str) -> None:
    assert slugs(f"{heading}\n") == {slug}


def test_headings_of_the_same_name_are_numbered() -> None:
    assert slugs("# A\n## B\n## B\n") == {"a", "b", "b-1"}


# configuration


def leaves(node: dict[str, Any], defs: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Every key of a JSON Schema that holds a value itself, by its path, and whether it has to be given."""
    for name, child in node.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        inside = list(_inside(child, defs, here))
        if inside:
            for where, part in inside:
                yield from leaves(part, defs, where)
        else:
            yield here, child, name in node.get("required", ())


def _inside(node: dict[str, Any], defs: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if "$ref" in node:
        node = defs[node["$ref"].rpartition("/")[2]]
    if "properties" in node:
        yield path, node
    for choice in node.get("anyOf", ()):
        yield from _inside(choice, defs, path)
    if "items" in node:
        yield from _inside(node["items"], defs, f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from _inside(node["additionalProperties"], defs, f"{path}.NAME")


def default_of(node: dict[str, Any], is_required: bool) -> object:
    return "required" if is_required else node["default"]


def described(headings: list[str]) -> dict[str, object]:
    """Key to default, as the tables below some headings say."""
    found: dict[str, object] = {}
    for heading in headings:
        for keys, default, meaning in rows(DOCS / "configuration.md", heading):
            assert meaning, keys
            for key in _INLINE.findall(keys):
                assert key not in found, key
                found[key] = "required" if default == "required" else value(default)
    return found


def value(cell: str) -> object:
    text = cell.strip("`")
    size = re.fullmatch(r"(\d+)([KMG])iB", text)
    return int(size[1]) << {"K": 10, "M": 20, "G": 30}[size[2]] if size else yaml.safe_load(text)


def test_every_key_is_described_with_its_default() -> None:
    schema = json_schema()
    mirrored = {f"routes[].{key}" for key in POLICY_KEYS}
    known = {
        path: default_of(node, is_required)
        for path, node, is_required in leaves(schema, schema["$defs"])
        if path not in ("endpoints.NAME.options", "permissions.tap.options")
        and ".".join(path.split(".")[:2]) not in mirrored
    }
    page = (DOCS / "configuration.md").read_text()
    sections = [f"### {name}" for name in re.findall(r"^### (.*)$", page.partition("\n## Reference\n")[2], re.MULTILINE)]
    assert described(sections) == known


@pytest.mark.parametrize("kind", OURS)
def test_every_option_of_a_transport_is_described_with_its_default(kind: str) -> None:
    schema = load_transport(kind).Options.model_json_schema()
    known = {path: default_of(node, is_required) for path, node, is_required in leaves(schema, schema.get("$defs", {}))}
    assert described([f"#### Options of `{kind}`"]) == known


def test_every_option_of_our_token_verifier_is_described_with_its_default() -> None:
    schema = load_verifier("jwt").Options.model_json_schema()
    known = {path: default_of(node, is_required) for path, node, is_required in leaves(schema, schema.get("$defs", {}))}
    assert described(["#### Options of the verifier `jwt`"]) == known


def yaml_blocks() -> list[tuple[str, str]]:
    return [(named(page), block) for page in pages() for kind, block in _FENCE.findall(page.read_text()) if kind == "yaml"]


@pytest.mark.parametrize(("page", "block"), yaml_blocks(), ids=lambda text: text if text.endswith(".md") else "block")
def test_every_piece_of_configuration_is_good(page: str, block: str, tmp_path: Path) -> None:
    shown = yaml.safe_load(block)
    assert shown.keys() <= Config.model_json_schema()["properties"].keys(), "is it a configuration at all?"
    whole = shown if "authority" in shown else yaml.safe_load((ROOT / "config/minimal.yaml").read_text()) | shown
    file = tmp_path / "streamer.yaml"
    file.write_text(block if shown is whole else yaml.safe_dump(whole))
    load(file)


def test_the_first_configuration_is_complete_and_has_no_warnings(tmp_path: Path) -> None:
    (block,) = [block for page, block in yaml_blocks() if page == "README.md"]
    file = tmp_path / "streamer.yaml"
    file.write_text(block)
    assert warnings(load(file)) == []


def test_the_trace_section_has_the_defaults() -> None:
    (block,) = [block for page, block in yaml_blocks() if page == "docs/traces.md"]
    shown = TraceConfig.model_validate(yaml.safe_load(block)["trace"])
    assert shown == TraceConfig.model_validate({"path": "/var/lib/streamer/traces"})  # where the systemd unit lets it write


# commands


@PRESENT
def test_every_command_is_understood(page: Path) -> None:
    for line in code(page.read_text()):
        words = shlex.split(line, comments=True) if line.startswith("streamer ") else []
        if words[1:] not in ([], ["--version"]):
            _parser().parse_args(words[1:])


@PRESENT
def test_every_make_target_and_module_is_there(page: Path) -> None:
    text = page.read_text()
    snippets = [*code(text), *_INLINE.findall(text)]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {name for each in snippets for name in re.findall(r"^make ([a-z-]+)", each)} <= {*targets}
    modules = {name for each in snippets for name in re.findall(r"python -m ((?:streamer|spark_jobs|tests)[\w.]*)", each)}
    assert [name for name in sorted(modules) if importlib.util.find_spec(name) is None] == []


def test_every_make_target_is_mentioned() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    mentioned = set(re.findall(r"\bmake ([a-z-]+)", "".join(page.read_text() for page in pages())))
    assert set(phony.split()) <= mentioned


# what the program says


def exported(tmp_path: Path) -> set[str]:
    """Every metric of ours, of a daemon that has everything switched on."""
    raw = yaml.safe_load((ROOT / "config/minimal.yaml").read_text())
    raw |= {"journal": {"path": str(tmp_path / "journal.db")}, "trace": {"path": str(tmp_path / "traces")}}
    daemon = Daemon(Config.model_validate(raw))
    text = Exposition(daemon.router, daemon.tracing, daemon.service_host.gauges).text().decode()
    return set(re.findall(r"^# TYPE (ustreamer_\w+) ", text, re.MULTILINE))


async def test_every_metric_is_listed_and_no_other(tmp_path: Path) -> None:
    listed = [_INLINE.findall(row[0])[0] for row in rows(DOCS / "operations.md", "## Metrics")]
    assert sorted(listed) == sorted(exported(tmp_path))


async def test_no_page_names_a_metric_that_is_not_there(tmp_path: Path) -> None:
    there = exported(tmp_path)
    for page in pages():
        found = set(re.findall(r"\bustreamer_\w+\b(?!\.proto)", page.read_text()))
        assert found <= there, named(page)


def test_every_outcome_is_listed() -> None:
    assert [plain(row[0]) for row in rows(DOCS / "operations.md", "### Outcomes")] == [each.value for each in Outcome]


def test_every_path_of_the_http_port_is_listed_and_no_other() -> None:
    source = "".join(path.read_text() for path in (ROOT / "streamer/admin").glob("*.py"))
    served = {f"{method.upper()} {path}" for method, path in re.findall(r'web\.(get|post)\("(/\w+)"', source)}
    assert served
    page = DOCS / "operations.md"
    listed = {f"GET {path}" for row in rows(page, "## Health") for path in _INLINE.findall(row[0])}
    assert listed | {plain(row[0]) for row in rows(page, "### Over HTTP")} == served


@PRESENT
def test_every_log_line_is_written_somewhere(page: Path) -> None:
    lines = re.findall(r"log lines? `(\w+)`", page.read_text())
    source = "".join(path.read_text() for path in (ROOT / "streamer").rglob("*.py"))
    assert [line for line in lines if f'"{line} ' not in source] == []


def test_every_field_of_a_dead_letter_is_listed() -> None:
    found = re.findall(r"^\| (\d) \| `(\w+)` \|", (DOCS / "dead-letters.md").read_text(), re.MULTILINE)
    assert found == [(str(field.number), field.name) for field in DeadLetter.DESCRIPTOR.fields]


def test_every_column_of_the_record_is_listed() -> None:
    listed = [tuple(map(plain, row)) for row in rows(DOCS / "traces.md", "## The record")]
    assert listed == [(field.name, field.dataType.simpleString(), field.metadata["comment"]) for field in TRACE]


def test_the_record_is_the_one_that_is_read_without_spark() -> None:
    assert [field.name for field in TRACE] == COLUMNS.names


def test_every_table_is_listed_with_its_question() -> None:
    listed = [tuple(map(plain, row)) for row in rows(DOCS / "traces.md", "## The tables")]
    assert listed == [(table.name, table.question) for table in TABLES.values()]


# the code


def members(heading: str) -> set[str]:
    """What the rows below a heading of the transport guide are about."""
    names = (name for row in rows(DOCS / "transports.md", heading) for name in _INLINE.findall(row[0]))
    return {re.sub(r"\(.*\)", "", name) for name in names}


def test_every_member_that_a_transport_may_override_is_listed() -> None:
    own = {name for name, member in vars(UTransport).items() if not name.startswith("_")}
    shared = {name for name in vars(ListeningTransport) if not name.startswith("_")}
    implemented = shared - ListeningTransport.__abstractmethods__
    for_use = {"authenticate", "require_authenticated", "send", "set_state"}  # called, and not overridden
    assert members("## Tell more about your network") == own - implemented - for_use - UTransport.__abstractmethods__


def test_every_member_that_a_transport_must_have_is_listed() -> None:
    declared = {
        name for name in UTransport.__annotations__ if name not in vars(UTransport)
    }  # class attributes without a value
    assert members("## What a transport does") >= {*ListeningTransport.__abstractmethods__, *declared}


def packages() -> list[str]:
    return [path.name for path in (ROOT / "streamer").iterdir() if (path / "__init__.py").is_file()]


def test_every_function_that_the_architecture_names_is_there() -> None:
    text = (DOCS / "architecture.md").read_text()
    schema = json_schema()
    keys = {path for path, _, _ in leaves(schema, schema["$defs"])}  # of the configuration: some are named as packages are
    found = [name for name in _INLINE.findall(text) if re.fullmatch(rf"({'|'.join(packages())})\.[\w.]+", name)]
    found = [name for name in found if name not in keys]
    assert len(found) > 20
    assert [name for name in found if not is_there(f"streamer.{name}")] == []


def is_there(name: str) -> bool:
    """Whether there is such a module, or such a class or function in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        module = ".".join(parts[:count])
        if importlib.util.find_spec(parts[0]) and _exists(module):
            found: object = importlib.import_module(module)
            for part in parts[count:]:
                found = getattr(found, part, None)
            return found is not None
    return False


def _exists(module: str) -> bool:
    path = ROOT / Path(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def test_every_package_has_its_row_in_the_architecture() -> None:
    listed = {name for row in rows(DOCS / "architecture.md", "## The parts") for name in _INLINE.findall(row[0])}
    modules = {path.stem for path in (ROOT / "streamer").glob("*.py") if not path.stem.startswith("__")}
    assert listed == {*packages(), *modules}


def test_every_thread_and_task_is_named_in_the_architecture() -> None:
    """They are few, and each thread is a hand-over that somebody has to think of."""
    makers = {
        ".".join(path.relative_to(ROOT / "streamer").with_suffix("").parts)
        for path in (ROOT / "streamer").rglob("*.py")
        if "demo" not in path.parts and any(_makes_thread(node) for node in ast.walk(ast.parse(path.read_text())))
    }
    tasks = re.findall(r'create_task\(.*name="(\w+)"\)', (ROOT / "streamer/daemon.py").read_text())
    assert tasks
    section = (DOCS / "architecture.md").read_text().partition("\n## Threads and hand-overs\n")[2].partition("\n## ")[0]
    assert makers | {*tasks} <= set(_INLINE.findall(section))


def _makes_thread(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {
        "threading.Thread",
        "ThreadPoolExecutor",
        "asyncio.to_thread",
    }
