"""Checks that the parts of a configuration fit together.

Pure functions on the raw values, so that they work on files whose other parts are wrong. Unusable values are skipped here,
because their own models report them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from pydantic_core import PydanticCustomError

from streamer.config.types import OWN_NAME, expected
from streamer.uprotocol.uri import ANY_AUTHORITY, UriError, UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

RESERVED_ROUTES = frozenset({"none", "dead-letter", "rpc-error"})
"""Route names that metrics and traces use for messages without a configured route."""

ORIGIN = "origin"
"""In ``dead_letter.endpoints``: the endpoint that the message came from."""


class Finding(NamedTuple):
    """A mistake and its location: keys and list positions from the top of the file."""

    location: tuple[str | int, ...]
    message: str


def nearest(text: object, valid: Iterable[str]) -> str:
    """Return a question that suggests the nearest valid name, after a semicolon; empty if none is near."""
    names = sorted(valid)
    close = get_close_matches(str(text), names, n=1, cutoff=0.6)
    close = close or [name for name in names if text and name.startswith(str(text))]
    return f"; did you mean {close[0]!r}?" if close else ""


def check_installed(name: str, load: Callable[[str], Any], names: Callable[[], list[str]], what: str) -> str:
    """Return the name of an installed class that can be loaded, or raise the error that says what was expected."""
    try:
        load(name)
    except LookupError:
        installed = names()
        expectation = f"one of the installed {what}s ({', '.join(installed)})"
        hint = nearest(name, installed)
        raise PydanticCustomError("choice", "expected {what}{hint}", {"what": expectation, "hint": hint}) from None
    except ImportError as exc:
        raise expected(f"a {what} that can be loaded ({type(exc).__name__}: {exc})") from exc
    return name


def check_options(options: Any, name: str | None, load: Callable[[str], Any]) -> Any:
    """Return the options as an instance of the named class's own model; unchanged if there is no such class."""
    return options if name is None else load(name).Options.model_validate({} if options is None else options)


def findings(raw: Any) -> Iterator[Finding]:
    """Yield every mistake between the parts of the configuration ``raw`` (mappings, or models)."""
    endpoints = part(raw, "endpoints")
    authorities = {
        name: [text for text in items(part(endpoint, "authorities")) if isinstance(text, str)]
        for name, endpoint in (endpoints.items() if isinstance(endpoints, Mapping) else ())
        if isinstance(name, str)
    }
    yield from _endpoints(authorities, part(raw, "authority"), endpoints)
    if authorities:
        yield from _dead_letter(raw, authorities)
        yield from _routes(list(items(part(raw, "routes"))), authorities)
        yield from _permissions(part(part(raw, "permissions"), "endpoints"), authorities)


def _endpoints(authorities: Mapping[str, list[str]], own: Any, endpoints: Any) -> Iterator[Finding]:
    for name in authorities:
        if name == ORIGIN:
            yield Finding(
                ("endpoints", name), f"expected another name: {ORIGIN!r} means where a dead letter's message came from"
            )
        if name == LOCAL_ENDPOINT:
            text = f"expected another name: {LOCAL_ENDPOINT!r} is where the streamer's own services are"
            yield Finding(("endpoints", name), text)
        seen: set[str] = set()
        for position, text in enumerate(items(part(endpoints[name], "authorities"))):
            location = ("endpoints", name, "authorities", position)
            if not isinstance(text, str):
                continue
            if text in seen:
                yield Finding(location, f"{text!r} is listed twice; expected each authority once")
            elif text == own != ANY_AUTHORITY:
                yield Finding(location, f"{text!r} is the streamer's own authority; expected those reached through here")
            seen.add(text)


def _dead_letter(raw: Any, known: Iterable[str]) -> Iterator[Finding]:
    choices = [ORIGIN, *known]
    for position, name in enumerate(items(part(part(raw, "dead_letter"), "endpoints"))):
        if isinstance(name, str) and name not in choices:
            yield Finding(("dead_letter", "endpoints", position), _unknown_endpoint(name, choices))


def _routes(routes: list[Any], authorities: Mapping[str, list[str]]) -> Iterator[Finding]:
    ends_seen: dict[tuple[str, str], int] = {}
    names_seen: dict[str, int] = {}
    for position, route in enumerate(routes):
        start, end, name = part(route, "from", "from_"), part(route, "to"), part(route, "name")
        for key, endpoint in (("from", start), ("to", end)):
            if isinstance(endpoint, str) and endpoint not in authorities:
                yield Finding(("routes", position, key), _unknown_endpoint(endpoint, authorities))
        twice = False
        if isinstance(start, str) and isinstance(end, str):
            if start == end:
                yield Finding(
                    ("routes", position, "to"),
                    f"the route leads back to {end!r}, where it starts; expected another endpoint (nothing may loop)",
                )
            first = ends_seen.setdefault((start, end), position)
            if twice := first != position:
                yield Finding(
                    ("routes", position),
                    f"routes[{first}] already leads from {start!r} to {end!r}; expected one route for each direction",
                )
            name = name or f"{start}-{end}"
        if isinstance(name, str) and not twice and (first := names_seen.setdefault(name, position)) != position:
            yield Finding(("routes", position, "name"), f"routes[{first}] is named {name!r} too; expected a name of its own")
        yield from _patterns(position, route, start, authorities)


def _patterns(position: int, route: Any, start: Any, authorities: Mapping[str, list[str]]) -> Iterator[Finding]:
    """Yield patterns that can never match, because their authority is not reached through the route's start."""
    if not isinstance(start, str) or start not in authorities:
        return
    for index, pattern in enumerate(items(part(route, "publish"))):
        authority = _authority_of(pattern)
        if authority is None or authority in (ANY_AUTHORITY, *authorities[start]):
            continue
        homes = [name for name, listed in authorities.items() if authority in listed]
        if homes:
            yield Finding(
                ("routes", position, "publish", index),
                f"{authority!r} lives at {' and '.join(map(repr, homes))}, so nothing from it arrives at {start!r}, "
                "where this route starts; expected an authority of "
                f"{start!r} ({', '.join(authorities[start]) or 'none listed'})",
            )


def _permissions(endpoints: Any, authorities: Mapping[str, list[str]]) -> Iterator[Finding]:
    """Yield rules and identities whose sources are not reached through their endpoint, so that they never match."""
    for name, section in endpoints.items() if isinstance(endpoints, Mapping) else ():
        here = ("permissions", "endpoints", name)
        if name not in authorities:
            yield Finding(here, _unknown_endpoint(str(name), authorities))
            continue
        for index, rule in enumerate(items(part(section, "rules"))):
            for kind in ("allow", "deny"):
                authority = _authority_of(part(part(rule, kind), "from", "from_"))
                if authority is not None and is_elsewhere(authority, name, authorities):
                    yield Finding((*here, "rules", index, kind, "from"), _never_comes(authority, name, authorities))
        identities = part(section, "identities")
        for identity, spoken_for in identities.items() if isinstance(identities, Mapping) else ():
            for index, text in enumerate(items(spoken_for)):
                if isinstance(text, str) and text != OWN_NAME and is_elsewhere(text, name, authorities):
                    yield Finding((*here, "identities", identity, index), _never_comes(text, name, authorities))


def is_elsewhere(authority: str, endpoint: str, authorities: Mapping[str, list[str]]) -> bool:
    """Whether no source of this authority is reached through the endpoint: `RoutingTable.homes`."""
    if authority == ANY_AUTHORITY or authority in authorities[endpoint]:
        return False
    return ANY_AUTHORITY not in authorities[endpoint] or any(authority in listed for listed in authorities.values())


def _never_comes(authority: str, endpoint: str, authorities: Mapping[str, list[str]]) -> str:
    homes = [name for name, listed in authorities.items() if authority in listed]
    lives = f"lives at {' and '.join(map(repr, homes))}" if homes else "lives at no endpoint"
    return (
        f"{authority!r} {lives}, so nothing from it comes in through {endpoint!r}; expected an authority of {endpoint!r} "
        f"({', '.join(authorities[endpoint]) or 'none listed'}), or *"
    )


def _authority_of(pattern: Any) -> str | None:
    """Return the authority of a pattern, which may be text; None if the pattern is invalid."""
    try:
        found = UUri.parse(pattern).authority if isinstance(pattern, str) else part(pattern, "authority")
    except UriError:
        return None
    return found if isinstance(found, str) else None


def _unknown_endpoint(name: str, known: Iterable[str]) -> str:
    known = list(known)
    return f"expected one of the endpoints ({', '.join(known)}), found {name!r}{nearest(name, known)}"


def part(whole: Any, *keys: str) -> Any:
    """Return the value of the first of ``keys`` that ``whole`` (a mapping or a model) has; None if it has none."""
    for key in keys:
        if isinstance(whole, Mapping):
            if key in whole:
                return whole[key]
        elif hasattr(whole, key):
            return getattr(whole, key)
    return None


def items(value: Any) -> Iterable[Any]:
    """Return the entries of a list, which may be none."""
    return value if isinstance(value, list | tuple) and not isinstance(value, UUri) else ()
