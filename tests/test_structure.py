"""How the package is built: what `tests.structure` measures, and that it would notice; names of classes."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests import structure

ROOT = Path(__file__).parents[1]
LAYERS = [["top"], ["left", "right"], ["ground"]]


def measured(imports: dict[str, set[str]]) -> structure.Structure:
    """Modules are named without the package's own name."""
    named = {f"p.{module}": {f"p.{each}" for each in imported} for module, imported in imports.items()}
    return structure.measure("p", named, LAYERS)


@pytest.mark.parametrize("package", structure.PACKAGES)
def test_no_import_goes_up_or_in_a_circle(package: str) -> None:
    assert structure.measured(package).faults() == []


def test_inside_of_a_package_what_is_outside_does_not_count() -> None:
    imports = {"p.left.in.a": {"p.left.out", "p.ground"}, "p.left.out": {"p.ground"}}
    found = structure.measure("p.left", imports, [["in"], ["out"]])
    assert (found.packages, found.chain, found.arrows) == (["in", "out"], ["in", "out"], {("in", "out")})


def test_packages_floors_and_arrows_are_counted() -> None:
    found = measured(
        {"top.a": {"left.a", "top.b"}, "top.b": {"left.b", "ground"}, "left.a": {"ground"}, "left.b": set(), "ground": set()}
    )
    assert found.packages == ["ground", "left", "top"]
    assert found.chain == ["top", "left", "ground"]
    assert found.arrows == {("top", "left"), ("top", "ground"), ("left", "ground")}
    assert found.faults() == []


def test_imports_of_higher_layers_siblings_and_of_what_has_no_layer_are_upward() -> None:
    found = measured({"top": set(), "left": {"right", "top"}, "right": set(), "new": {"other"}, "other": set()})
    assert found.upward == [("left", "right"), ("left", "top"), ("new", "other")]
    assert "upward arrow: left imports top" in found.faults()


def test_circles_between_files_are_found_also_inside_a_package() -> None:
    found = measured({"left.a": {"left.b"}, "left.b": {"left.c"}, "left.c": {"left.a", "left.d"}, "left.d": set()})
    assert found.circles == [["p.left.a", "p.left.b", "p.left.c"]]


def test_imports_for_type_checking_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "typed_only"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from typed_only import b\n")
    (package / "b.py").write_text("import typed_only.a\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert structure.measure("typed_only", structure.imports_of("typed_only"), []).circles == [
        ["typed_only.a", "typed_only.b"]
    ]


# names


def shared_names(folder: Path) -> dict[str, list[str]]:
    """Public class name → the files that define it, for the names with several definitions. Generated files aside."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        if not path.stem.endswith("_pb2"):
            classes = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))
            for name in (node.name for node in classes if not node.name.startswith("_")):
                found[name].append(str(path.relative_to(folder)))
    return {name: files for name, files in found.items() if len(files) > 1}


@pytest.mark.parametrize("package", ["streamer", "spark_jobs"])
def test_a_class_name_means_one_thing_in_a_package(package: str) -> None:
    assert shared_names(ROOT / package) == {}


def test_a_name_that_is_defined_twice_is_found(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.py").write_text("class Lane: ...\nclass _Own: ...\nclass Queue: ...\n")
    (tmp_path / "inner/b.py").write_text("class Outer:\n    class Lane: ...\nclass _Own: ...\n")
    (tmp_path / "inner/c_pb2.py").write_text("class Queue: ...\n")
    assert shared_names(tmp_path) == {"Lane": ["a.py", "inner/b.py"]}


def test_no_test_file_imports_from_another_one() -> None:
    """What several of them use lives in a module that says so: a test file may be split, renamed or deleted."""
    pattern = re.compile(r"^(?:from|import) tests\.(?:\w+\.)*test_\w+ ", re.MULTILINE)
    found = [
        str(path.relative_to(ROOT))
        for path in ROOT.glob("tests/**/*.py")
        if any(f".{path.stem} " not in line for line in pattern.findall(path.read_text()))
    ]
    assert found == []


# Each cache costs memory for each flow that strangers invent, and has to be emptied when what it holds changes.
CACHES = {
    "decoded headers": {
        "transports.mqtt5.headers.KnownHeaders._known",
        "transports.mqtt5.decoder.PublishDecoder._known",
        "transports.zenoh.wire.SampleDecoder._known",
    },
    "flows": {"transports.base.TransportContext.flows"},
    "decisions": {"delivery.inbound.resolve.Resolver._decisions"},
    "times to live from the arrival": {"delivery.inbound.ingress.Ingress._counted"},
    "encoded headers and keys": {"transports.mqtt5.wire.Encoder._flows", "transports.zenoh.sender.Publishers._puts"},
    "attributes in the journal": {"journal.codec._decoded"},
}
"""What is looked up for a message and could be computed again, by kind: one of each, and one for each wire."""


def caches(path: Path) -> set[str]:
    """The places where a file makes a cache, by class and attribute. Plain dicts, slots and `lru_cache` are not seen."""
    found: set[str] = set()

    def visit(node: ast.AST, within: str) -> None:
        if isinstance(node, ast.ClassDef):
            within = f"{within}.{node.name}"
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            made = {ast.unparse(each) for each in ast.walk(node.value) if isinstance(each, ast.Name)}
            if made & {"Cache", "BySource", "Flows"}:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                found.add(f"{within}.{ast.unparse(target).removeprefix('self.')}")
        for child in ast.iter_child_nodes(node):
            visit(child, within)

    visit(ast.parse(path.read_text()), ".".join(path.relative_to(ROOT / "streamer").with_suffix("").parts))
    return found


def test_a_message_meets_six_kinds_of_caches_and_no_other() -> None:
    made = {each for path in (ROOT / "streamer").rglob("*.py") for each in caches(path)}
    assert made == set().union(*CACHES.values())
    assert len(CACHES) == 6
