"""Measures how the package `streamer` is built, from its imports. ``python -m tests.structure`` exits with 1 beyond a bound.

- **packages**: what stands directly in `streamer`, single modules included;
- **floors**: the longest chain of packages that import each other downward;
- **arrows**: pairs of packages of which one imports the other;
- **upward**: arrows to a package that is not in a lower layer of the import contract (`[tool.importlinter]`);
- **circles**: sets of files that all import each other, directly or not. Imports for type checking only count, too.
"""

import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache
from pathlib import Path
from typing import NamedTuple

import grimp

PACKAGE = "streamer"
MAX_FLOORS = 10
MAX_ARROWS = 80
MAX_CIRCLES = 0

Arrow = tuple[str, str]
"""Who imports, and what."""


class Structure(NamedTuple):
    """What was measured."""

    packages: list[str]
    chain: list[str]
    """One of the longest, from the top down: its length is the number of floors."""
    arrows: set[Arrow]
    upward: list[Arrow]
    circles: list[list[str]]

    def faults(self) -> list[str]:
        """What is beyond a bound, one line each."""
        found = []
        if len(self.chain) > MAX_FLOORS:
            found.append(f"{len(self.chain)} floors, at most {MAX_FLOORS}: {' → '.join(self.chain)}")
        if len(self.arrows) > MAX_ARROWS:
            found.append(f"{len(self.arrows)} arrows between packages, at most {MAX_ARROWS}")
        found += [f"upward arrow: {importer} imports {imported}" for importer, imported in self.upward]
        if len(self.circles) > MAX_CIRCLES:
            found += [f"circle: {', '.join(circle)}" for circle in self.circles]
        return found


def imports_of(package: str = PACKAGE) -> dict[str, Set[str]]:
    """The modules of a package, each with those of the package that it imports."""
    graph = grimp.build_graph(package, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules - {package}}


def layers_of(pyproject: Path) -> list[list[str]]:
    """The layers of the import contract, the highest first; siblings stand together."""
    contracts = tomllib.loads(pyproject.read_text())["tool"]["importlinter"]["contracts"]
    layers: list[str] = next(each["layers"] for each in contracts if each["type"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in layers]


def measure(imports: Mapping[str, Iterable[str]], layers: Sequence[Sequence[str]]) -> Structure:
    """Measure modules with full names by their imports. Packages that stand in no layer are below all others."""
    depth = {name: number for number, layer in enumerate(layers) for name in layer}
    arrows = {
        (_package(importer), _package(imported))
        for importer, several in imports.items()
        for imported in several
        if imported in imports and _package(importer) != _package(imported)
    }
    upward = [arrow for arrow in sorted(arrows) if depth.get(arrow[1], len(layers)) <= depth.get(arrow[0], len(layers))]
    packages = sorted(set(map(_package, imports)))
    return Structure(packages, _longest_chain(packages, arrows.difference(upward)), arrows, upward, _circles(imports))


def _package(module: str) -> str:
    return module.split(".")[1]


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


def main() -> int:
    structure = measure(imports_of(), layers_of(Path(__file__).parents[1] / "pyproject.toml"))
    table = (
        ("packages", len(structure.packages), ""),
        ("floors", len(structure.chain), f"at most {MAX_FLOORS}"),
        ("arrows", len(structure.arrows), f"at most {MAX_ARROWS}"),
        ("upward", len(structure.upward), "at most 0"),
        ("circles", len(structure.circles), f"at most {MAX_CIRCLES}"),
    )
    sys.stdout.writelines(f"{name:<9}{number:>4}  {bound}".rstrip() + "\n" for name, number, bound in table)
    faults = structure.faults()
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
