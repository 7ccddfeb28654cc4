"""Finds and loads the installed transports, of this package and others."""

from collections.abc import Mapping
from contextlib import suppress
from functools import cache

from streamer import plugins
from streamer.transports.base import ENTRY_POINTS, UTransport


def available_transports() -> list[str]:
    """Return the names of all installed transports."""
    return plugins.available(ENTRY_POINTS)


@cache
def load_transport(kind: str) -> type[UTransport]:
    """Return the class of a transport. Raises LookupError if it is not installed, ImportError if it cannot be loaded."""
    loaded: type[UTransport] = plugins.load(ENTRY_POINTS, kind, "transport")
    return loaded


@cache
def loadable_transports() -> Mapping[str, type[UTransport]]:
    """Return all installed transports that can be loaded, by name. The first call imports the libraries of all of them."""
    found = {}
    for kind in available_transports():
        with suppress(ImportError):
            found[kind] = load_transport(kind)
    return found
