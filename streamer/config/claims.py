"""Finds what a configuration gives to two parts (a port, a file, a session at a broker), and paths that name no file.

Nothing is opened or looked up.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from streamer.config.checks import Finding
from streamer.config.secrets import dotted
from streamer.transports.claims import Claim

_DATABASE = ("", "-wal", "-shm", ".lock")
"""Suffixes of a database's files: SQLite's own and our lock file."""

Location = tuple[str | int, ...]


def written(location: Location, path: Path) -> Claim:
    """Return the claim of a part that writes to a file or a folder."""
    return Claim(location, f"the path {os.path.abspath(path)}")


def database(location: Location, path: Path) -> Iterator[Claim]:
    """Yield the claims of a part that owns a SQLite file."""
    return (written(location, path.with_name(f"{path.name}{behind}")) for behind in _DATABASE)


def read_only(part: Any) -> Iterator[Claim]:
    """Yield the claims of a part that only reads files. Several parts may read the same file."""
    for location, path in paths(part):
        if str(location[-1]).endswith("_file"):
            yield written(location, path)._replace(is_shared=True)


def paths(part: Any, location: Location = ()) -> Iterator[tuple[Location, Path]]:
    """Yield every path in a part of the configuration, with its location relative to the part."""
    if isinstance(part, Path):
        yield location, part
        return
    if isinstance(part, BaseModel):
        parts: Mapping[Any, Any] = {name: getattr(part, name) for name in type(part).model_fields}
    elif isinstance(part, Mapping):
        parts = part
    elif isinstance(part, list | tuple):
        parts = dict(enumerate(part))
    else:
        return
    for name, inner in parts.items():
        yield from paths(inner, (*location, name))


def without_name(part: Any) -> Iterator[Finding]:
    """Yield a mistake for each path that no file can have, such as an empty text, which is the current folder."""
    for location, path in paths(part):
        if not path.name:
            yield Finding(location, "expected a path that ends in a name; found none")
        elif "\0" in str(path):
            yield Finding(location, "expected a path without the character 0")


def conflicts(claims: Iterable[Claim]) -> Iterator[Finding]:
    """Yield a mistake for each key whose claim conflicts with that of an earlier key, in the order of the file."""
    seen: dict[str, list[Claim]] = {}
    reported: set[tuple[Location, Location]] = set()
    for claim in claims:
        earlier = seen.setdefault(claim.thing, [])
        taken = next((each for each in earlier if each.excludes(claim) and each.key != claim.key), None)
        if taken is None:
            earlier.append(claim)
        elif (claim.key, taken.key) not in reported:
            reported.add((claim.key, taken.key))
            where = "" if claim.host is None else f" at {claim.host}"
            by = dotted(taken.key) + ("" if taken.host in (None, claim.host) else f" ({taken.host})")
            yield Finding(claim.key, f"{claim.thing}{where} is taken by {by} already; expected another")
