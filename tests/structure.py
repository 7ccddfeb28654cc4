"""Measures how a package is built, from its imports.

- **packages**: what stands directly in the measured package, single modules included;
- **floors**: the longest chain of packages that import each other downward;
- **arrows**: pairs of packages of which one imports the other;
- **upward**: arrows to a package that is not in a lower layer of the import contract (`[tool.importlinter]`);
- **circles**: sets of files that all import each other, directly or not. Imports for type checking only count, too.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache
from pathlib import Path
from typing import NamedTuple

import grimp

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"

Arrow = tuple[str, str]
"""Who imports, and what."""


PACKAGES = ("streamer", "streamer.delivery")
"""What is measured."""


class Structure(NamedTuple):
    """What was measured."""

    packages: list[str]
    chain: list[str]
    """One of the longest, from the top down: its length is the number of floors."""
    arrows: set[Arrow]
    upward: list[Arrow]
    circles: list[list[str]]

    def faults(self) -> list[str]:
        """What may not be at all, one line each."""
        found = [f"upward arrow: {importer} imports {imported}" for importer, imported in self.upward]
        return found + [f"circle: {', '.join(circle)}" for circle in self.circles]


def imports_of(package: str) -> dict[str, Set[str]]:
    """The modules inside a package, each with those of the whole program that it imports."""
    graph = grimp.build_graph(package.partition(".")[0], cache_dir=None)
    inside = [module for module in graph.modules if module.startswith(f"{package}.")]
    return {module: graph.find_modules_directly_imported_by(module) for module in inside}


def layers_of(package: str, pyproject: Path = PYPROJECT) -> list[list[str]]:
    """The layers of the import contract of a package, the highest first; siblings stand together."""
    contracts = tomllib.loads(pyproject.read_text())["tool"]["importlinter"]["contracts"]
    layers: list[str] = next(each["layers"] for each in contracts if each.get("containers") == [package])
    return [[name.strip() for name in layer.split("|")] for layer in layers]


def measure(package: str, imports: Mapping[str, Iterable[str]], layers: Sequence[Sequence[str]]) -> Structure:
    """Measure what stands in ``package`` by the imports of its modules. Those in no layer are below all others."""

    def part_of(module: str) -> str:
        return module.removeprefix(f"{package}.").partition(".")[0]

    depth = {name: number for number, layer in enumerate(layers) for name in layer}
    arrows = {
        (part_of(importer), part_of(imported))
        for importer, several in imports.items()
        for imported in several
        if imported in imports and part_of(importer) != part_of(imported)
    }
    upward = [arrow for arrow in sorted(arrows) if depth.get(arrow[1], len(layers)) <= depth.get(arrow[0], len(layers))]
    packages = sorted(set(map(part_of, imports)))
    return Structure(packages, _longest_chain(packages, arrows.difference(upward)), arrows, upward, _circles(imports))


def measured(package: str) -> Structure:
    """Measure a package as it is."""
    return measure(package, imports_of(package), layers_of(package))


def _longest_chain(packages: Iterable[str], downward: Set[Arrow]) -> list[str]:
    @cache
    def below(name: str) -> list[str]:
        return [name, *max((below(lower) for upper, lower in sorted(downward) if upper == name), key=len, default=[])]

    return max(map(below, packages), key=len, default=[])


def _circles(imports: Mapping[str, Iterable[str]]) -> list[list[str]]:
    reached = {module: _reached(module, imports) for module in imports}
    groups = {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in imports
        if module in reached[module]
    }
    return sorted(map(sorted, groups))


def _reached(start: str, imports: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        fresh = set(imports[ahead.pop()]) & imports.keys() - found
        found |= fresh
        ahead += fresh
    return found
