"""The documents are true: links lead somewhere, and names, commands and files are those of the code."""

import ast
import importlib
import importlib.util
import re
import shlex
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml

from spark_jobs.schema import EVENT, TRACE
from spark_jobs.tables import TABLES, VIEWS
from streamer.config.load import json_schema
from streamer.config.metrics import MetricsConfig
from streamer.daemon import Daemon
from streamer.features.api.metrics import Exposition
from streamer.features.api.server import AdminServer
from streamer.features.every import FILE
from streamer.features.otel.config import OtelConfig
from streamer.features.otel.push import Push
from streamer.features.pair.feature import PairFeature
from streamer.features.pair.page import families
from streamer.features.traces.reader import COLUMNS
from streamer.features.usubscription.feature import UsubscriptionFeature
from streamer.main import _parser
from streamer.routing.outcome import Outcome
from streamer.transports.base import UTransport
from streamer.transports.listening import ListeningTransport
from streamer.uprotocol.proto.ustreamer_v1_pb2 import DeadLetter
from tests.config_keys import leaves
from tests.figures import of_features
from tests.hosted import one_of
from tests.pages import ALL, DOCS, INLINE, PRESENT, README, ROOT, code, links, named, pages, plain, rows, slugs
from tests.unit.features.pair.found import pair_of

ADR = DOCS / "adr"
README_LINES = 200

# links


@ALL
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = re.findall(r"\[[^\]]+\]\(\)", page.read_text())
    for link, target, anchor in links(page):
        is_page = target.suffix == ".md" and target.is_file()
        if not target.exists() or (anchor and is_page and anchor not in slugs(target.read_text())):
            broken.append(link)
    assert broken == []


def reached(clicks: int) -> set[Path]:
    """The pages to which so many links lead from the README, one after the other."""
    seen = {README}
    for _ in range(clicks):
        found = {target / "README.md" if target.is_dir() else target for page in seen for _, target, _ in links(page)}
        seen |= {page for page in found if page.suffix == ".md" and page.is_file()}
    return seen


def test_every_page_is_two_clicks_from_the_readme() -> None:
    wanted = {page for page in DOCS.rglob("*.md") if ADR not in page.parents}
    assert len(wanted) > 30
    assert sorted(named(page) for page in wanted - reached(2)) == []


def test_every_chapter_can_be_reached_from_the_readme() -> None:
    assert sorted(named(page) for page in set(ADR.rglob("*.md")) - reached(3)) == []


def test_a_page_that_lists_its_tasks_lists_each_section_of_the_first_level() -> None:
    """The list of docs/operations.md: what stands under a heading of its own is found from the top."""
    page = DOCS / "operations.md"
    listed = page.read_text().partition("\n## ")[0]
    headings = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
    anchors = {slug for heading in headings for slug in slugs(f"## {heading}\n")}
    assert anchors - {link.partition("#")[2] for link, *_ in links(page) if f"({link})" in listed} == set()


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
    snippets = [*code(text), *INLINE.findall(text)]
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
    raw["utwin"] = {}
    raw["permissions"] = {"tap": {"verifier": "jwt", "options": {"jwks_file": "/k", "issuer": "i", "audience": "a"}}}
    (tmp_path / "pair.key").write_text("k" * 32)
    raw["pair"] = {"listen": "127.0.0.1:0", "key_file": str(tmp_path / "pair.key")}
    daemon = Daemon(FILE.model_validate(raw))
    told = list(families(pair_of(daemon.features)))
    pair_of(daemon.features)._is_standby = False  # as of one that is active
    others = [feature.families for feature in daemon.features if not isinstance(feature, PairFeature)]
    push = Push(OtelConfig(endpoint="http://localhost"), "gw", daemon.exposition.families, None, 0)
    exposition = Exposition(daemon.router, [lambda: told, *others, push.families, daemon._admin._expiry.families])
    text = exposition.text().decode()
    return set(re.findall(r"^# TYPE (ustreamer_\w+) ", text, re.MULTILINE))


async def test_every_metric_is_listed_and_no_other(tmp_path: Path) -> None:
    listed = [INLINE.findall(row[0])[0] for row in rows(DOCS / "metrics.md", "## Metrics")]
    assert sorted(listed) == sorted(exported(tmp_path))


async def test_no_page_names_a_metric_that_is_not_there(tmp_path: Path) -> None:
    there = exported(tmp_path)
    for page in {*pages()} - {DOCS / f"features/{name}.md" for name in of_features()}:  # their own tests know theirs
        found = set(re.findall(r"\bustreamer_\w+\b(?!\.proto)", page.read_text()))
        assert found <= there, named(page)


async def test_every_kind_of_entry_of_usubscription_is_listed() -> None:
    raw = yaml.safe_load((ROOT / "config/minimal.yaml").read_text())
    service = one_of(Daemon(FILE.model_validate(raw)).service_host.features, UsubscriptionFeature).gauges()
    external = {"usubscription": {"external": {"service": "//veh1/0/3/0"}}}
    follower = one_of(Daemon(FILE.model_validate(raw | external)).service_host.features, UsubscriptionFeature).gauges()
    (kinds,) = (row[2] for row in rows(DOCS / "metrics.md", "## Metrics") if "_usubscription_entries" in row[0])
    assert set(INLINE.findall(kinds)) == {*service, *follower}


def test_every_outcome_is_listed() -> None:
    assert [plain(row[0]) for row in rows(DOCS / "metrics.md", "### Outcomes")] == [each.value for each in Outcome]


def test_every_path_of_the_http_port_is_listed_and_no_other() -> None:
    served = {route.path for route in AdminServer(Mock(), Mock(), MetricsConfig()).own_pages()}
    assert {path for row in rows(DOCS / "metrics.md", "## Health") for path in INLINE.findall(row[0])} == served


def test_every_page_of_the_administration_api_is_listed_in_its_order() -> None:
    described = yaml.safe_load((ROOT / "streamer/features/api/openapi.yaml").read_text())["paths"]
    pages = [f"{method.upper()} {path}" for path, item in described.items() for method in item]
    assert [plain(row[0]) for row in rows(DOCS / "features/api.md", "## The pages")] == pages


@PRESENT
def test_every_log_line_is_written_somewhere(page: Path) -> None:
    lines = re.findall(r"log lines? `(\w+)`", page.read_text())
    source = "".join(path.read_text() for path in (ROOT / "streamer").rglob("*.py"))
    assert [line for line in lines if f'"{line} ' not in source] == []


def test_every_log_line_that_reports_a_state_is_listed() -> None:
    text = (DOCS / "logs.md").read_text().partition("**State changes.**")[2].partition("\n\n")[0]
    calls = [
        (node.args[0], extra.value)
        for path in (ROOT / "streamer").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and node.args
        for extra in node.keywords
        if extra.arg == "extra"
    ]
    reporting = [
        str(line.value).split()[0]
        for line, extra in calls
        if isinstance(line, ast.Constant) and isinstance(extra, ast.Dict) and _has_state(extra)
    ]
    assert len(reporting) > 10
    assert sorted(set(reporting) - set(INLINE.findall(text))) == []


def _has_state(extra: ast.Dict) -> bool:
    return any(isinstance(key, ast.Constant) and key.value == "state" for key in extra.keys)


def test_no_log_line_has_an_earlier_name() -> None:
    record = (ADR / "code.md").read_text()
    table = re.search(r"^\| log events .*?\n(?=\| \w)", record, re.DOTALL | re.MULTILINE)
    assert table is not None
    earlier = {name for row in table[0].splitlines() for name in INLINE.findall(row.split("|")[2])}
    source = "".join(path.read_text() for path in (ROOT / "streamer").rglob("*.py"))
    assert len(earlier) > 10
    assert [name for name in sorted(earlier) if f'"{name} ' in source or f'"{name}"' in source] == []


def test_every_field_of_a_dead_letter_is_listed() -> None:
    found = re.findall(r"^\| (\d) \| `(\w+)` \|", (DOCS / "dead-letters.md").read_text(), re.MULTILINE)
    assert found == [(str(field.number), field.name) for field in DeadLetter.DESCRIPTOR.fields]


def test_every_column_of_the_record_is_listed() -> None:
    listed = [tuple(map(plain, row)) for row in rows(DOCS / "features/traces.md", "## The record")]
    assert listed == [(field.name, field.dataType.simpleString(), field.metadata["comment"]) for field in TRACE]


def test_every_column_of_an_event_is_listed() -> None:
    listed = [tuple(map(plain, row)) for row in rows(DOCS / "features/traces.md", "## Events") if len(row) == 3]
    assert listed == [(field.name, field.dataType.simpleString(), field.metadata["comment"]) for field in EVENT]


def test_the_record_is_the_one_that_is_read_without_spark() -> None:
    assert [field.name for field in TRACE] == COLUMNS.names


def test_every_table_is_listed_with_its_question() -> None:
    listed = [tuple(map(plain, row)) for row in rows(DOCS / "features/nightly.md", "## The tables")]
    assert listed == [(table.name, table.question) for table in (*TABLES.values(), *VIEWS.values())]


# the glossary

GLOSSARY = DOCS / "glossary.md"


def words(text: str) -> list[tuple[str, str]]:
    """Each word with the cell that names its modules."""
    return re.findall(r"^\| \*\*(.+?)\*\* \| .* \| ([^|]+) \|$", text, re.MULTILINE)


def test_the_glossary_is_short_and_begins_with_the_path() -> None:
    first, *others = GLOSSARY.read_text().split("\n## ")[1:-1]
    assert first.startswith("The path of a message\n")
    assert len(words(first)) == 10
    assert 0 < sum(len(words(each)) for each in others) <= 70


def test_every_module_that_the_glossary_names_is_there() -> None:
    names = {(word, name) for word, cell in words(GLOSSARY.read_text()) for name in INLINE.findall(cell) if "/" in name}
    assert len(names) > 50
    assert sorted(name for name in names if not _is_module(ROOT / "streamer" / name[1])) == []


def _is_module(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


# the decisions


def test_every_chapter_is_in_the_index() -> None:
    listed = re.findall(r"^\| \[[^\]]+\]\(([\w-]+\.md)\) \|", (ADR / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in ADR.glob("*.md") if path.name != "README.md")


# the code


def members(heading: str) -> set[str]:
    """What the rows below a heading of the transport guide are about."""
    names = (name for row in rows(DOCS / "transports.md", heading) for name in INLINE.findall(row[0]))
    return {re.sub(r"\(.*\)", "", name) for name in names}


def test_every_member_that_a_transport_may_override_is_listed() -> None:
    own = {name for name, member in vars(UTransport).items() if not name.startswith("_")}
    shared = {name for name in vars(ListeningTransport) if not name.startswith("_")}
    implemented = shared - ListeningTransport.__abstractmethods__
    for_use = {"authenticate", "require_authenticated", "send", "set_state", "link"}  # called, and not overridden
    assert members("## Tell more about your network") == own - implemented - for_use - UTransport.__abstractmethods__


def test_every_member_that_a_transport_must_have_is_listed() -> None:
    declared = {
        name for name in UTransport.__annotations__ if name not in vars(UTransport)
    }  # class attributes without a value
    assert members("## What a transport does") >= {*ListeningTransport.__abstractmethods__, *declared}


def packages() -> list[str]:
    return [path.name for path in (ROOT / "streamer").iterdir() if (path / "__init__.py").is_file()]


@pytest.mark.parametrize("page", ["architecture.md", "bounds.md"])
def test_every_function_that_the_architecture_names_is_there(page: str) -> None:
    text = (DOCS / page).read_text()
    schema = json_schema(FILE)
    keys = {path for path, _, _ in leaves(schema, schema["$defs"])}  # of the configuration: some are named as packages are
    found = [name for name in INLINE.findall(text) if re.fullmatch(rf"({'|'.join(packages())})\.[\w.]+", name)]
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


def test_every_thread_and_task_is_named_in_the_architecture() -> None:
    """They are few, and each thread is a hand-over that somebody has to think of."""
    makers = {
        ".".join(path.relative_to(ROOT / "streamer").with_suffix("").parts)
        for path in (ROOT / "streamer").rglob("*.py")
        if any(_makes_thread(node) for node in ast.walk(ast.parse(path.read_text())))
    }
    tasks = re.findall(r'create_task\(.*name="(\w+)"\)', (ROOT / "streamer/daemon/daemon.py").read_text())
    assert tasks
    section = (DOCS / "architecture.md").read_text().partition("\n## Threads and hand-overs\n")[2].partition("\n## ")[0]
    assert makers | {*tasks} <= set(INLINE.findall(section))


def _makes_thread(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {
        "threading.Thread",
        "ThreadPoolExecutor",
        "asyncio.to_thread",
    }


def test_every_command_is_in_the_table_of_commands() -> None:
    table = (DOCS / "commands.md").read_text()
    (choices,) = (each.choices for each in _parser()._actions if isinstance(each.choices, dict))
    assert len(choices) > 15
    assert [name for name in choices if f"`streamer {name}" not in table] == []
