"""Loads classes of installed packages, found by their entry points."""

from importlib.metadata import entry_points
from typing import Any


def available(group: str) -> list[str]:
    """Return the names of all classes that are installed in an entry point group."""
    return sorted({entry.name for entry in entry_points(group=group)})


def load(group: str, name: str, what: str) -> Any:
    """Return the class of a name. Raises LookupError if it is not installed, ImportError if it cannot be loaded.

    ``what``: the kind of class, for the text of the error.
    """
    for entry in entry_points(group=group, name=name):
        return entry.load()
    raise LookupError(f"no {what} {name!r}; installed: {', '.join(available(group))}")
