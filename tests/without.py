"""Takes a feature out of the tree in the working directory, a copy: ``python -m tests.without NAME``; see ``make without``.

Its folder, its lines in the lists and in config/streamer.yaml, its entries in pyproject.toml and its tests go; so does every
other file of tests that imports one of these, directly or not: they are printed. A file of the program that imports it is
left, so the copy does not pass. Tests with the mark ``needs`` of a feature that is not there are left out. Without NAME,
print whose turn it is.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import grimp

EVERY = Path("streamer/features/every.py")
LISTS = EVERY, Path("tests/flow/witnesses.py")
"""The files that list what features bring. `every` has their records."""


def names() -> list[str]:
    """Return the features that are listed."""
    return re.findall(r"from streamer\.features\.(\w+)\.feature import", EVERY.read_text())


def turn() -> str:
    """Return the feature that the present commit chooses: each has its turn."""
    commit = subprocess.run(("git", "rev-parse", "HEAD"), capture_output=True, text=True, check=False).stdout
    listed = names()
    return listed[int(commit or "0", 16) % len(listed)]


def taken(name: str) -> set[str]:
    """Return the modules of a feature and of its tests, and those of tests that import one of them, directly or not."""
    graph = grimp.build_graph("streamer", "tests", cache_dir=None)
    own = re.compile(rf"(streamer|tests\.unit)\.features\.{name}(\.|$)")
    lists = {".".join(path.with_suffix("").parts) for path in LISTS}
    found = {module for module in graph.modules if own.match(module)}
    ahead = list(found)
    while ahead:
        for importer in graph.find_modules_that_directly_import(ahead.pop()) - found - lists:
            if importer.startswith("tests."):
                found.add(importer)
                ahead.append(importer)
    return found


def without(pattern: str, path: Path) -> None:
    """Remove the lines of a file that match a pattern."""
    path.write_text("".join(line for line in path.read_text().splitlines(True) if not re.match(pattern, line)))


def take_out(name: str) -> list[str]:
    """Take a feature out; return the modules of tests that went with it from other folders."""
    modules = taken(name)
    brings = rf"from \S+\.features\.{name}\.\w+ import (\w+)"
    for path in LISTS:
        kinds = re.findall(brings, path.read_text())
        without("|".join([brings, *(f"    {kind}," for kind in kinds)]), path)
    without(rf' *"streamer\.features\.{name}[\w.]*",', Path("pyproject.toml"))
    record = Path(f"streamer/features/{name}/feature.py").read_text()
    for key in re.findall(r'KEYS = \{"(?:endpoints\.\*\.)?(\w+)"', record):
        without(f" *{key}: null$", Path("config/streamer.yaml"))
    for module in modules:
        Path(*module.split(".")).with_suffix(".py").unlink(missing_ok=True)
    for folder in ("streamer/features", "tests/unit/features"):
        shutil.rmtree(Path(folder, name))
    return sorted(module for module in modules if not re.match(rf"(streamer|tests\.unit)\.features\.{name}\b", module))


def main(asked: list[str]) -> None:
    if asked and asked[0] not in names():
        sys.exit(f"{asked[0]}: not in {EVERY}, which has {', '.join(names())}")
    print(*take_out(asked[0]) if asked else [turn()], sep="\n")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
