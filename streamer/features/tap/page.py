"""The page `GET /api/v1/tap`: a live stream of messages with their outcomes and the beginning of their payload.

Only programs on this machine may read it, with the token or a certificate, whatever the configuration allows others. The
audit log has each reader with its filters. `streamer.features.tap.tap` decides which messages are
shown and which are left out.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from aiohttp import web

from streamer.config.checks import nearest
from streamer.delivery.router import Router
from streamer.features.api.access import caller_of, for_this_machine, refused, shows_payloads
from streamer.features.api.payloads import PAYLOADS, payload_fields
from streamer.features.api.streams import Streams, event, moment
from streamer.features.tap.tap import OUTCOMES, Tap, TapFilter, Tapped
from streamer.logs.audit import audit
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.uri import UriError, UUri
from streamer.uprotocol.uuid import format_id

MAX_TAPS = 4
MAX_RATE = 1000
TYPES = {kind.name.lower(): kind for kind in UMessageType if kind}

_WRITES_PER_S = 10
_NAMES = ("route", "endpoint", "source", "sink", "type", "outcome", "payload", "rate")
_LONGEST_NAME = 256
_MAX_NAMES = 50


class TapRequest(NamedTuple):
    """The parameters of a reader's request. ``rate``: the most messages per second."""

    filter: TapFilter
    payload: str
    rate: int
    given: dict[str, str]

    @classmethod
    def of(cls, query: dict[str, str]) -> "TapRequest":
        """Read the parameters of a request. Raises ValueError if one is invalid."""
        if unknown := [name for name in query if name not in _NAMES]:
            raise ValueError(f"{unknown[0]!r}: expected {', '.join(_NAMES)}")
        given = {name: value for name, value in query.items() if value}
        wanted = TapFilter(
            given.get("route"),
            given.get("endpoint"),
            _pattern("source", given),
            _pattern("sink", given),
            _types(given),
            _several("outcome", given, OUTCOMES),
        )
        payload = given.get("payload", "length")
        if payload not in PAYLOADS:
            raise ValueError(f"payload: {payload!r}: expected {', '.join(PAYLOADS)}")
        rate = given.get("rate", "100")
        if not (rate.isascii() and rate.isdecimal() and len(rate) < 6 and 0 < int(rate) <= MAX_RATE):
            raise ValueError(f"rate: expected 1 to {MAX_RATE} messages per second")
        return cls(wanted, payload, int(rate), given)


class TapStream:
    """The source of one reader's stream."""

    def __init__(self, tap_request: TapRequest, router: Router) -> None:
        most = max(1, tap_request.rate // _WRITES_PER_S)
        self.pace_s = most / tap_request.rate
        self.tap = Tap(tap_request.filter, most, tap_request.payload not in ("none", "length"))
        self.shown = self.left_out = 0
        self._payload = tap_request.payload
        self._clock = router.clock
        self._since_ms = self._clock.wall_ms()
        self._due_s = self._clock.monotonic_s() + 1.0

    def take(self) -> bytes:
        """Return the messages since the last call, and once a second how many were left out."""
        kept = self.tap.take()
        self.shown += len(kept)
        events = [event("message", as_json(tapped, self._payload)) for tapped in kept]
        now_s = self._clock.monotonic_s()
        if now_s >= self._due_s:
            self._due_s = now_s + 1.0
            left_out, since_ms = self.tap.left_out, self._since_ms
            self._since_ms = self._clock.wall_ms()
            self.tap.left_out = 0
            self.left_out += left_out
            if left_out:
                events.append(event("left_out", {"messages": left_out, "since": moment(since_ms)}))
        return b"".join(events)


class TapPages:
    """Streams the messages that the router settles."""

    def __init__(self, router: Router, streams: Streams) -> None:
        self._router = router
        self._streams = streams

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [web.get("/api/v1/tap", self._stream, allow_head=False)]

    @shows_payloads
    @for_this_machine
    async def _stream(self, request: web.Request) -> web.StreamResponse:
        try:
            tap_request = TapRequest.of(dict(request.query))
        except ValueError as exc:
            raise refused(str(exc), web.HTTPBadRequest) from exc
        self._check_names(tap_request.filter)
        await self._streams.check(request)
        stream = TapStream(tap_request, self._router)
        who: dict[str, Any] = caller_of(request)._asdict()
        audit("tap_began", **who, filters=_shown(tap_request))
        self._router.replace_observer(None, stream.tap)
        try:
            return await self._streams.serve(request, stream)
        finally:
            self._router.replace_observer(stream.tap, None)
            left_out = stream.left_out + stream.tap.left_out
            audit("tap_ended", **who, filters=_shown(tap_request), messages=stream.shown, left_out=left_out)

    def _check_names(self, wanted: TapFilter) -> None:
        """Refuse a route or an endpoint that does not exist. Raises an HTTP error with the nearest name, and all of them."""
        routes = {account.name for account in self._router.accounts()}
        endpoints = {account.name for account in self._router.endpoint_accounts()}
        for kind, name, known in (("route", wanted.route, routes), ("endpoint", wanted.endpoint, endpoints)):
            if name is not None and name not in known:
                text = f"{kind}: {name[:_LONGEST_NAME]!r}: expected one of {_some(known)}{nearest(name, known)}"
                raise refused(text, web.HTTPBadRequest)


def _some(names: Iterable[str]) -> str:
    """Return the names with commas, or the first of them and how many more there are."""
    first, more = (found := sorted(names))[:_MAX_NAMES], len(found) - _MAX_NAMES
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def as_json(tapped: Tapped, payload: str) -> dict[str, Any]:
    """Return a message as JSON, with its payload in one of the forms of `PAYLOADS`."""
    attributes = tapped.attributes
    return {
        "t": moment(tapped.when_ms),
        "route": tapped.route,
        "ingress": tapped.ingress,
        "egress": tapped.egress,
        "type": attributes.type.name.lower(),
        "source": str(attributes.source),
        "sink": None if attributes.sink is None else str(attributes.sink),
        "id": format_id(tapped.id),
        "priority": f"CS{attributes.priority_class}",
        "ttl_ms": attributes.ttl,
        "outcome": tapped.outcome,
        "code": tapped.code.name,
        "text": tapped.text,
        "attempts": tapped.attempts,
        "in_daemon_s": None if tapped.in_daemon_s is None else round(tapped.in_daemon_s, 6),
        **payload_fields(payload, attributes, tapped.payload_bytes, tapped.payload),
    }


def _pattern(name: str, given: dict[str, str]) -> UUri | None:
    if name not in given:
        return None
    try:
        pattern = UUri.parse(given[name])
    except UriError as exc:
        raise ValueError(f"{name}: {exc}") from exc
    if not pattern.authority:
        raise ValueError(f"{name}: {pattern}: expected an authority, or * for any")
    return pattern


def _several(name: str, given: dict[str, str], known: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the comma-separated values of a parameter; None: it is absent. Raises ValueError."""
    if name not in given:
        return None
    found = tuple(given[name].split(","))
    if unknown := [each for each in found if each not in known]:
        raise ValueError(f"{name}: {unknown[0]!r}: expected {', '.join(known)}")
    return found


def _types(given: dict[str, str]) -> tuple[UMessageType, ...] | None:
    found = _several("type", given, tuple(TYPES))
    return None if found is None else tuple(TYPES[each] for each in found)


def _shown(tap_request: TapRequest) -> str:
    return " ".join(f"{name}={value[:_LONGEST_NAME]}" for name, value in tap_request.given.items()) or "none"
