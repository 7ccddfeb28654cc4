"""Measures the size of the project and holds it to bounds that only fall. ``python -m tests.figures`` exits with 1 beyond.

`bounds.toml` lists the values of each figure, the oldest first; the last one is the bound. A value above the one before it
needs a page in `docs/adr` with a line ``Raises FIGURE from A to B`` that says what is bought with it. Where git's history
is there, an earlier list must be the beginning of the present one, so that nobody raises a bound by writing over it.

The kernel is what carries a message: it imports nothing of a feature. A feature is what an operator can name and do without.
One that came after the rings were drawn has a bound of its own in ``[features]``: its folder, tests and page do not count in
the figures of the whole.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path

from streamer.config.load import json_schema
from streamer.features.every import FILE
from tests.config_keys import leaves
from tests.pages import prose
from tests.structure import imports_of, measured

ROOT = Path(__file__).parents[1]
BOUNDS = ROOT / "tests/bounds.toml"
CHAPTERS = ROOT / "docs/adr"

KERNEL = {"uprotocol", "routing", "transports", "delivery", "journal", "config", "logs", "tokens"}
KERNEL |= {"backoff", "clock", "due", "files", "plugins", "rate", "systemd"}
"""What stands directly in `streamer` and carries messages."""

RIDDLE = re.compile(
    r"^(it|they|he|she|who|whoever|what|whatever|that|those|these|its|their|nobody|somebody|of)\b"
    r"|\b(the other one|the other side|one of a pair|what waits|who asks|what comes|what left|what was heard)\b",
    re.IGNORECASE,
)
"""A first line that names neither its subject nor its object."""


OF_A_FEATURE = "features/"
"""What begins the name of the figure of one feature's folder."""


def bounds(text: str) -> dict[str, list[int]]:
    """Return the values of each figure, oldest first, from the text of `bounds.toml`."""
    found = tomllib.loads(text)
    values: dict[str, list[int]] = found["values"]
    return values | {f"{OF_A_FEATURE}{name}": several for name, several in found.get("features", {}).items()}


def of_features() -> list[str]:
    """Return the features that have a bound of their own."""
    return list(tomllib.loads(BOUNDS.read_text()).get("features", {}))


def folders_of(name: str) -> tuple[Path, Path]:
    """Return the folder of a feature, or of its jobs on Spark (``NAME_jobs``), and that of its tests."""
    of_jobs = name.removesuffix("_jobs")
    parents = ("streamer/features", "tests/unit/features") if of_jobs == name else ("spark_jobs", "tests/spark")
    return ROOT / parents[0] / of_jobs, ROOT / parents[1] / of_jobs


def of_the_whole(folder: str) -> list[Path]:
    """Return the Python files of a folder that belong to no feature with a bound of its own."""
    apart = {folder for name in of_features() for folder in folders_of(name)}
    return [path for path in sources(folder) if not apart.intersection(path.parents)]


def is_kernel(module: str) -> bool:
    """Return whether a module of `streamer`, by its full name, belongs to the kernel."""
    return module.removeprefix("streamer.").partition(".")[0] in KERNEL


def sources(folder: str) -> list[Path]:
    """Return the Python files of a folder, without generated ones."""
    return [path for path in sorted((ROOT / folder).rglob("*.py")) if not path.stem.endswith("_pb2")]


def lines(paths: Iterable[Path]) -> int:
    """Return how many lines files have together."""
    return sum(len(path.read_text().splitlines()) for path in paths)


def kernel_files() -> list[Path]:
    """Return the files of the kernel."""
    return [path for path in sources("streamer") if is_kernel(_module(path))]


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def kernel_imports() -> list[str]:
    """Return each import of a feature's module by one of the kernel, as ``importer -> imported``."""
    found = imports_of("streamer")
    return sorted(
        f"{importer} -> {imported}"
        for importer, several in found.items()
        if is_kernel(importer)
        for imported in several
        if imported.startswith("streamer.") and not is_kernel(imported) and imported != "streamer"
    )


def feature_imports(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """Return each import of a feature's module by one outside of the feature, which the list of records alone may have.

    A feature is a folder in `features`, but for the two frames. What one of them imports cannot be taken out without it.
    """
    of = re.compile(r"streamer\.features\.(?!api\b|host\b)(\w+)\.")
    return sorted(
        f"{importer} -> {imported}"
        for importer, several in imports.items()
        if importer != "streamer.features.every"
        for imported in several
        if (feature := of.match(imported)) and not f"{importer}.".startswith(feature[0])
    )


def late_slots() -> list[str]:
    """Return each slot of a kernel's class that is empty when its constructor returns and that another file fills in."""
    slots = dict(slot for path in kernel_files() for slot in _slots(path))
    return sorted(
        f"{_module(path)}: {ast.unparse(target)}"
        for path in sources("streamer")
        for target in _assigned(ast.parse(path.read_text()))
        if ast.unparse(target.value) != "self" and slots.get(target.attr, path) != path
    )


def _slots(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the public attributes that hold a callable or an object, and that a constructor sets to None."""
    for constructor in _constructors(ast.parse(path.read_text())):
        for node in ast.walk(constructor):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute) and node.value is not None:
                kind = ast.unparse(node.annotation)
                is_empty = ast.unparse(node.value) == "None" or isinstance(node.value, ast.Lambda)
                is_value = re.fullmatch(r"(int|float|str|bytes|bool) \| None", kind)
                if is_empty and not is_value and not node.target.attr.startswith("_"):
                    yield node.target.attr, path


def _constructors(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__")


def _assigned(tree: ast.Module) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (each for each in ast.walk(target) if isinstance(each, ast.Attribute))


def first_lines(path: Path) -> Iterator[str]:
    """Yield the first line of each docstring of a file, those of attributes included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            text := ast.get_docstring(node)
        ):
            yield text.splitlines()[0]
        body = getattr(node, "body", None)
        for before, after in pairwise(body) if isinstance(body, list) else ():
            if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
                said = after.value.value if isinstance(after.value, ast.Constant) else None
                if isinstance(said, str) and said:
                    yield said.strip().splitlines()[0]


def riddles(paths: Iterable[Path]) -> list[str]:
    """Return the first lines of docstrings that do not say of what they speak."""
    return [f"{_module(path)}: {line}" for path in paths for line in first_lines(path) if RIDDLE.search(line)]


def transport_methods() -> int:
    """Return how many methods and properties `UTransport` has."""
    tree = ast.parse((ROOT / "streamer/transports/base.py").read_text())
    of = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "UTransport")
    return sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in of.body)


def documents() -> list[Path]:
    """Return the README and the pages below `docs`."""
    return [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


def words() -> int:
    """Return how many words the README and the documents have, without the pages of features with a bound of their own."""
    apart = {ROOT / f"docs/features/{name}.md" for name in of_features()}
    return sum(len(path.read_text().split()) for path in documents() if path not in apart)


def repeats(pages: Mapping[str, str]) -> list[str]:
    """Return each run of twelve words that stands on more than one page: a thing is told once, and linked elsewhere."""
    seen: dict[tuple[str, ...], set[str]] = {}
    for name, text in pages.items():
        found = re.findall(r"\w+", prose(re.sub(r"\]\([^)]*\)|^    .*$", "", text, flags=re.MULTILINE)).lower())
        for run in zip(*(found[start:] for start in range(12)), strict=False):
            seen.setdefault(run, set()).add(name)
    return [f"{' '.join(run)}: {', '.join(sorted(several))}" for run, several in seen.items() if len(several) > 1]


def repeated() -> list[str]:
    """Return what the README and the documents repeat."""
    return repeats({str(path.relative_to(ROOT)): path.read_text() for path in documents()})


def configuration_keys() -> int:
    """Return how many keys of the configuration hold a value, without those of features with a bound of their own."""
    schema = json_schema(FILE)
    definitions = schema["$defs"]
    options = (part for name, part in definitions.items() if name.endswith(".options"))
    found = (path for part in (schema, *options) for path, _, _ in leaves(part, definitions))
    return sum(set(path.split(".")).isdisjoint(of_features()) for path in found)


EMPTY = {"set", "dict", "list", "deque", "OrderedDict", "defaultdict", "Counter"}


def unbounded_containers() -> list[str]:
    """Return each attribute that a constructor makes as an empty container, in a module that `docs/bounds.md` does not name.

    A container that strangers can fill has a row there, or on the page of its feature, which names its module.
    """
    pages = ROOT / "docs/bounds.md", *(ROOT / f"docs/features/{name}.md" for name in of_features())
    named = set(re.findall(r"`([\w.]+)`", "".join(page.read_text() for page in pages if page.is_file())))
    return [
        f"{_module(path)}: {attribute}"
        for path in sources("streamer")
        if _module(path).removeprefix("streamer.") not in named and not is_of_a_command(path)
        for attribute in _containers(ast.parse(path.read_text()))
    ]


def is_of_a_command(path: Path) -> bool:
    """Return whether a file runs in a process of its own, for the one who has started it."""
    return "tools" in path.parts or path.stem.startswith("command") or path.stem in ("main", "machine", "probe")


def _containers(tree: ast.Module) -> Iterator[str]:
    for node in (each for constructor in _constructors(tree) for each in ast.walk(constructor)):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        value = node.value
        is_empty = (isinstance(value, ast.Dict) and not value.keys) or (isinstance(value, ast.List) and not value.elts)
        is_empty |= isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in EMPTY
        if is_empty and isinstance(target, ast.Attribute):
            yield target.attr


def _lines_of_feature(name: str) -> int:
    return lines(sources(str(folders_of(name)[0])))


FIGURES: Mapping[str, Callable[[], int]] = {
    "lines": lambda: lines(of_the_whole("streamer")),
    "kernel-lines": lambda: lines(kernel_files()),
    "pair-lines": lambda: lines(
        path for path in sources("streamer/features/pair") if path.stem not in ("command", "config", "feature", "page")
    ),
    "test-lines": lambda: lines(of_the_whole("tests")),
    "job-lines": lambda: lines(of_the_whole("spark_jobs")),
    "demo-lines": lambda: lines(sources("demo")),
    "words": words,
    "repeats": lambda: len(repeated()),
    "keys": configuration_keys,
    "kernel-imports": lambda: len(kernel_imports()),
    "feature-imports": lambda: len(feature_imports(imports_of("streamer"))),
    "late-slots": lambda: len(late_slots()),
    "transport-methods": transport_methods,
    "riddles": lambda: len(riddles([*sources("streamer"), *sources("demo")])),
    "containers": lambda: len(unbounded_containers()),
    "arrows": lambda: len(measured("streamer").arrows),
    "floors": lambda: len(measured("streamer").chain),
    "delivery-arrows": lambda: len(measured("streamer.delivery").arrows),
    "delivery-floors": lambda: len(measured("streamer.delivery").chain),
    **{f"{OF_A_FEATURE}{name}": partial(_lines_of_feature, name) for name in of_features()},
}


def raised(values: Mapping[str, list[int]], chapters: Iterable[str]) -> list[str]:
    """Return a fault for each bound that was raised without a page of docs/adr that says so."""
    text = "\n".join(chapters)
    return [
        f"{name}: raised from {before} to {after}, and no page in docs/adr has 'Raises {name} from {before} to {after}'"
        for name, several in values.items()
        for before, after in pairwise(several)
        if after > before and f"Raises {name} from {before} to {after}" not in text
    ]


def rewritten(values: Mapping[str, list[int]], earlier: Iterable[Mapping[str, list[int]]]) -> list[str]:
    """Return a fault for each figure whose earlier list is not the beginning of the present one."""
    return [
        f"{name}: the values were {several}, which are not the beginning of {values.get(name)}"
        for version in earlier
        for name, several in version.items()
        if values.get(name, [])[: len(several)] != several
    ]


def committed() -> Iterator[dict[str, list[int]]]:
    """Yield the lists of each version in git's history, as far as it is there."""

    def git(*words: str) -> str:
        return subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=False).stdout

    name = BOUNDS.relative_to(ROOT).as_posix()
    for commit in git("log", "--format=%H", "--", name).split():
        yield bounds(git("show", f"{commit}:{name}"))


def beyond(found: Mapping[str, int], values: Mapping[str, list[int]]) -> list[str]:
    """Return a fault for each figure that is above its bound, or that has none."""
    faults = [f"{name}: {number}, at most {values[name][-1]}" for name, number in found.items() if number > values[name][-1]]
    return faults + [f"{name}: measured by nobody" for name in values if name not in found]


def main() -> int:
    values = bounds(BOUNDS.read_text())
    found = {name: figure() for name, figure in FIGURES.items()}
    sys.stdout.writelines(f"{name:<18}{number:>8}  at most {values[name][-1]}\n" for name, number in found.items())
    faults = beyond(found, values) + raised(values, (each.read_text() for each in CHAPTERS.glob("*.md")))
    faults += rewritten(values, committed())
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    for name, listed in (
        ("kernel-imports", kernel_imports),
        ("feature-imports", partial(feature_imports, imports_of("streamer"))),
        ("late-slots", late_slots),
        ("repeats", repeated),
    ):
        if found[name] > values[name][-1]:
            sys.stderr.writelines(f"{name}: {each}\n" for each in listed())
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
