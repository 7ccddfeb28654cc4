"""The keys of the configuration, from its JSON Schema. No tests."""

from collections.abc import Iterator
from typing import Any


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
