"""The page `GET /api/v1/events`: a stream of server-sent events about states, rates and failures, without any payload.

The law of this file:
- Without readers, nothing is computed. With readers, every state without a callback for changes is compared once a second,
  and a change becomes an event.
- An event is encoded once for all readers. Each reader has a queue, bounded in events and bytes; events that do not fit are
  counted, and the count is sent once there is room.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from streamer.config.models import Config
from streamer.config.shown import fingerprint
from streamer.delivery.observers import OutcomeObserver
from streamer.delivery.router import Router
from streamer.features.api.access import refused
from streamer.features.api.rates import Rates
from streamer.features.api.readiness import causes_of, unready
from streamer.features.api.streams import Streams, event, moment
from streamer.features.record import Feature
from streamer.routing.outcome import FailedMessage
from streamer.uprotocol.uuid import format_id

KINDS = ("state", "dead_letter", "rates", "config", "paused")
LETTERS_PER_S = 50
MAX_EVENTS = 256
MAX_BYTES = 512 * 1024
"""The most bytes that wait for one reader."""

_INTERVAL_S = 1.0
_TEXT = 500  # most characters of a reason, which may contain texts of others

_Key = tuple[str, str]
_State = tuple[str, tuple[str, ...]]


class Listener:
    """The queue of one reader, for events of the kinds that it requested."""

    pace_s = 0.25

    def __init__(self, kinds: Sequence[str]) -> None:
        self.kinds = frozenset(kinds)
        self.left_out = 0
        self._waiting: deque[bytes] = deque()
        self._bytes = 0

    def offer(self, kind: str, data: bytes) -> None:
        """Add an event if it fits; else count it."""
        if kind not in self.kinds:
            return
        if len(self._waiting) >= MAX_EVENTS or self._bytes + len(data) > MAX_BYTES:
            self.left_out += 1
            return
        self._waiting.append(data)
        self._bytes += len(data)

    def take(self) -> bytes:
        """Return and remove everything that waits, encoded."""
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        if self.left_out:
            data += event("left_out", {"events": self.left_out})
            self.left_out = 0
        return data


class Events(OutcomeObserver):
    """Detects changes, and offers them to all readers as events."""

    def __init__(self, router: Router, config: Callable[[], Config], streams: Streams, features: Sequence[Feature]) -> None:
        """``config`` returns the configuration in use; ``features`` may have events of their own."""
        self._router = router
        self._features = [feature for feature in features if feature.EVENTS]
        self._kinds = *KINDS, *(kind for feature in self._features for kind in feature.EVENTS)
        self._config_in_use = config
        self._clock = router.clock
        self._streams = streams
        self._listeners: list[Listener] = []
        self._rates = Rates(router)
        self._reading: asyncio.Task[None] | None = None
        self._due_s = 0.0
        self._config = config()
        self._rules = router.pause_rules.rules
        self._states: dict[_Key, _State] = {}
        self._letters = 0  # sent as events in this second
        self._letters_left_out = 0

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [web.get("/api/v1/events", self._stream, allow_head=False)]

    def tick(self, now_s: float) -> None:
        """Compare all states if there are readers and a second has passed. The daemon's clock calls this."""
        if self._listeners and now_s >= self._due_s:
            late_s = now_s - self._due_s
            self._due_s = now_s + _INTERVAL_S - (late_s if late_s < _INTERVAL_S else 0.0)
            self._send_left_out()
            self._send_states()
            self._send_changes()
            for kind, data in self._of_features():
                self._send(kind, data)
            if not self._is_wanted("rates"):
                self._rates.forget()
            elif self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._send_rates(now_s), name="rates")

    def dead_lettered(self, failed: FailedMessage, number: int | None) -> None:
        """Send an event for a new dead letter."""
        if self._letters >= LETTERS_PER_S:
            self._letters_left_out += 1
            return
        self._letters += 1
        message, failure = failed.message, failed.failure
        attributes = message.attributes
        size = len(message.payload or b"") if failure.payload_bytes is None else failure.payload_bytes
        self._send(
            "dead_letter",
            {
                "number": number,
                "id": format_id(message.id),
                "route": failed.route,
                "reason": failure.code.name,
                "text": failure.text[:_TEXT],
                "type": attributes.type.name.lower(),
                "source": str(attributes.source),
                "sink": None if attributes.sink is None else str(attributes.sink),
                "size": size,
                "when": moment(failed.last_ms),
            },
        )

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        kinds = request.query.get("kinds", ",".join(self._kinds)).split(",")
        if unknown := [kind for kind in kinds if kind not in self._kinds]:
            raise refused(f"kinds: {unknown[0]!r}: expected {', '.join(self._kinds)}", web.HTTPBadRequest)
        await self._streams.check(request)
        listener = Listener(kinds)
        if not self._listeners:
            self._begin()
        for key, state in self._states.items():
            listener.offer("state", event("state", _as_json(key, state)))
        self._listeners.append(listener)
        try:
            return await self._streams.serve(request, listener)
        finally:
            self._listeners.remove(listener)
            if not self._listeners:
                self._router.replace_observer(self, None)

    def _begin(self) -> None:
        """Take the present states as the base of comparison: there is a first reader."""
        self._rates.forget()
        self._states = self._now()
        self._config, self._rules = self._config_in_use(), self._router.pause_rules.rules
        self._letters = self._letters_left_out = 0
        self._of_features()  # what happened before
        self._due_s = self._clock.monotonic_s()
        self._router.replace_observer(None, self)

    def _of_features(self) -> list[tuple[str, dict[str, Any]]]:
        return [each for feature in self._features for each in feature.events()]

    async def _send_rates(self, now_s: float) -> None:
        rates = await self._rates.read(now_s)
        self._send("rates", {"t": moment(self._clock.wall_ms()), **rates})

    def _is_wanted(self, kind: str) -> bool:
        return any(kind in listener.kinds for listener in self._listeners)

    def _send(self, kind: str, data: dict[str, Any]) -> None:
        if self._is_wanted(kind):
            encoded = event(kind, data)
            for listener in self._listeners:
                listener.offer(kind, encoded)

    def _send_left_out(self) -> None:
        if self._letters_left_out:
            self._send("dead_letter", {"left_out": self._letters_left_out})
        self._letters = self._letters_left_out = 0

    def _send_states(self) -> None:
        now, before = self._now(), self._states
        self._states = now
        for key, state in now.items():
            if before.get(key) != state:
                self._send("state", _as_json(key, state))
        for key in before.keys() - now.keys():
            self._send("state", _as_json(key, ("removed", ())))

    def _send_changes(self) -> None:
        config, rules = self._config_in_use(), self._router.pause_rules.rules
        if config is not self._config:
            self._config = config
            self._send("config", {"fingerprint": fingerprint(config)})
        if rules != self._rules:
            self._rules = rules
            self._send("paused", {})

    def _now(self) -> dict[_Key, _State]:
        """Return the present states of endpoints, routes and everything else that is compared."""
        found: dict[_Key, _State] = {
            ("endpoint", account.name): (account.link.state.value, (*causes_of(account.link), *account.problems))
            for account in self._router.endpoint_accounts()
        }
        journal = self._router.journal
        if journal is not None:
            problems = (journal.problem,) if journal.problem else ()
            found["journal", str(journal.path)] = (journal.state.value, problems)
        reasons = tuple(unready(self._router))
        found["ready", ""] = ("not ready" if reasons else "ready", reasons)
        return found


def _as_json(key: _Key, state: _State) -> dict[str, Any]:
    return {"what": key[0], "name": key[1], "state": state[0], "problems": list(state[1])}
