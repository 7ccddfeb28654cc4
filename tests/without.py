"""Takes a feature out of the tree in the working directory, a copy: ``python -m tests.without NAME``; see ``make without``.

Its folder, its lines in the lists and in config/streamer.yaml, its entries in pyproject.toml and its tests go; so does every
other file of tests that imports one of these, directly or not: they are printed. A file of the program that imports it is
left, so the copy does not pass.
"""

import re
import shutil
import sys
from pathlib import Path

import grimp

LISTS = "streamer.features.every", "tests.flow.witnesses"
"""The modules that list what features bring. `every` has their records."""


def taken(name: str) -> set[str]:
    """Return the modules of a feature and of its tests, and those of tests that import one of them, directly or not."""
    graph = grimp.build_graph("streamer", "tests", cache_dir=None)
    own = re.compile(rf"(streamer|tests\.unit)\.features\.{name}(\.|$)")
    found = {module for module in graph.modules if own.match(module)}
    ahead = list(found)
    while ahead:
        for importer in graph.find_modules_that_directly_import(ahead.pop()) - found:
            if importer.startswith("tests.") and importer not in LISTS:
                found.add(importer)
                ahead.append(importer)
    return found


def without(pattern: str, path: Path) -> None:
    """Remove the lines of a file that match a pattern."""
    path.write_text("".join(line for line in path.read_text().splitlines(True) if not re.match(pattern, line)))


if __name__ == "__main__":
    feature = sys.argv[1]
    modules = taken(feature)
    brings = rf"from \S+\.features\.{feature}\.\w+ import (\w+)"
    for listed in (Path(*module.split(".")).with_suffix(".py") for module in LISTS):
        kinds = re.findall(brings, listed.read_text())
        if not kinds and listed.stem == "every":
            sys.exit(f"{feature}: not in {listed}")
        without("|".join([brings, *(f"    {kind}," for kind in kinds)]), listed)
    without(rf' *"streamer\.features\.{feature}[\w.]*",', Path("pyproject.toml"))
    for key in re.findall(
        r'KEYS = \{"(?:endpoints\.\*\.)?(\w+)"', Path(f"streamer/features/{feature}/feature.py").read_text()
    ):
        without(f" *{key}: null$", Path("config/streamer.yaml"))
    for module in modules:
        Path(*module.split(".")).with_suffix(".py").unlink(missing_ok=True)
    shutil.rmtree(f"streamer/features/{feature}")
    print(*sorted(module for module in modules if not module.startswith("streamer.")), sep="\n")  # noqa: T201
