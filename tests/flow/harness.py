"""A router on memory transports, with a clock that the test advances."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from streamer.config.models import Config
from streamer.delivery.inbound.transport_events import CountingEvents
from streamer.delivery.router import Additions, Router
from streamer.features.every import FILE, built
from streamer.features.record import additions_of
from streamer.journal.journal import Journal
from streamer.transports.base import LinkState, Refused, TransportContext
from streamer.transports.memory import MemoryOptions, MemoryReceived, MemoryTransport
from streamer.uprotocol.message import Attributes, Options, UMessage, UMessageType, UPriority, notification, publish, request
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.clock import FakeClock
from tests.configurations import config_of, endpoint_of
from tests.constants import with_constants
from tests.flow.ledger import Counted, Ledger, Witness
from tests.flow.witnesses import WITNESSES

GATEWAY = "gateway.veh1"
DEAD_LETTERS = UUri(GATEWAY, 4, 1, 0x8001)

VEHICLE_APP = UUri("veh1", 0xA8000, 2, 0)
SPEED = UUri("veh1", 0xA8000, 2, 0x8A50)
CLIMATE = UUri("veh1", 0xB, 1, 7)
CLOUD_APP = UUri("cloud", 0xC0, 1, 0)
CLOUD_METHOD = UUri("cloud", 0xC0, 1, 9)
ORDERS = UUri("cloud", 0xC0, 1, 0x9000)

_buses = itertools.count()

_Witness = TypeVar("_Witness", bound=Witness)


def configuration(**changes: Any) -> Config:
    """Two memory endpoints, `vehicle` (veh1) and `cloud` (everyone else), routes both ways."""
    raw: dict[str, object] = config_of(
        {"vehicle": endpoint_of("memory", "veh1"), "cloud": endpoint_of("memory", "*")},
        [{"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]}, {"from": "cloud", "to": "vehicle"}],
        authority=GATEWAY,
        queue_policy={},
    )
    return FILE.model_validate(raw | changes)


def three_networks(**changes: Any) -> Config:
    """As `configuration`, and `phone` (phone1), which only a route of ``changes`` leads to."""
    return configuration(
        endpoints={
            "vehicle": {"transport": "memory", "authorities": ["veh1"]},
            "cloud": {"transport": "memory", "authorities": ["*"]},
            "phone": {"transport": "memory", "authorities": ["phone1"]},
        },
        **changes,
    )


class FlowEvents(CountingEvents):
    """The events of one endpoint, as the daemon passes them on."""

    def __init__(self, harness: "RouterHarness", name: str) -> None:
        super().__init__(name, lambda name: harness.router.ingresses.get(name), lambda: harness.router.settler.log)
        self._router = lambda: harness.router
        self._endpoint = name

    def state_changed(self, state: LinkState, reason: str = "") -> None:
        self._router().link_changed(self._endpoint, state)


class RouterHarness:
    """The router with its two (or more) networks. ``sent(name)`` is what has left through an endpoint."""

    def __init__(
        self,
        config: Config | None = None,
        addressed: tuple[str, ...] = (),
        unconfirmed_s: float = 0,
        journal: Journal | None = None,
        clock: FakeClock | None = None,
        is_observed: bool = True,
        witnesses: Sequence[type[Witness]] = WITNESSES,
        additions: Additions = Additions(),  # noqa: B008  # immutable
    ) -> None:
        """``unconfirmed_s``: nobody confirms on the vehicle's network, as with Zenoh. ``is_observed``: count outcomes."""
        self.config = config or configuration()
        self.clock = clock or FakeClock()
        self.due: list[Callable[[], None]] = []  # flushes that the router has asked for, with a journal
        self._run = next(_buses)
        self.transports = {
            name: self._transport(
                name, sink_authority=name in addressed, unconfirmed_s=unconfirmed_s if name == "vehicle" else 0
            )
            for name in self.config.endpoints
        }
        self.ledger = Ledger()
        self.ended: Counted = Counter()  # outcomes of routes that were removed, and may begin at 0 again
        self._witnesses = [kind(self.clock, self.config.endpoints) for kind in witnesses if is_observed]
        observers = (self.ledger, *(each.observer for each in self._witnesses)) if is_observed else ()
        self.features = built(self.config, self.clock)
        additions = additions.plus(additions_of(self.features))
        self.router = Router(
            self.config,
            dict(self.transports),
            self.clock,
            random=lambda: 0.5,
            later=lambda after_s, call: None if journal is None else self.due.append(call),
            journal=journal,
            additions=additions._replace(observers=(*additions.observers, *observers) if is_observed else ()),
        )
        self.router.custody.late_flush_s = 0

    def other_transport(self, name: str, **options: Any) -> MemoryTransport:
        """A transport for the next reload. What has left through an earlier one of that name stays in ``sent``."""
        transport, before = self._transport(name, **options), self.transports.get(name)
        if before is not None and (
            transport.unconfirmed_s or not before.unconfirmed_s
        ):  # else it is sent again, and counts then
            transport.sent = before.sent
        self.transports[name] = transport
        return transport

    def _transport(self, name: str, **options: Any) -> MemoryTransport:
        context = TransportContext(name, self.config.authority, events=self._events(name), now_ms=self.clock.wall_ms)
        return MemoryTransport(context, with_constants(MemoryOptions, bus=f"{self._run}-{name}", **options))

    def _events(self, name: str) -> "FlowEvents":
        return FlowEvents(self, name)

    async def __aenter__(self) -> "RouterHarness":
        await self.router.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for transport in self.transports.values():
            await transport.stop()

    def arrive(self, endpoint: str, *messages: UMessage) -> list[MemoryReceived]:
        """Have messages arrive at an endpoint in one batch; what the router was given is returned."""
        batch = [MemoryReceived(message) for message in messages]
        self.transports[endpoint].inject(*batch)
        self.check_books()
        return batch

    def refuse(self, endpoint: str, message: UMessage, payload_bytes: int) -> MemoryReceived:
        """Have a message arrive that is too large for the transport, which knows the beginning of its payload."""
        received, events = MemoryReceived(message), self.transports[endpoint].context.events
        events.packets_received(1)
        events.messages_refused([Refused(received, UCode.RESOURCE_EXHAUSTED, "too large", payload_bytes)])
        self.check_books()
        return received

    def sent(self, endpoint: str) -> list[UMessage]:
        """What has left through an endpoint, dead letters aside."""
        return [m for m in self.transports[endpoint].sent if m.attributes.source != DEAD_LETTERS]

    def dead_letters(self, endpoint: str) -> list[pb.DeadLetter]:
        """The dead letters that have left through an endpoint."""
        letters = [m for m in self.transports[endpoint].sent if m.attributes.source == DEAD_LETTERS]
        return [pb.DeadLetter.FromString(letter.payload or b"") for letter in letters]

    def pass_time(self, ms: int) -> None:
        """Advance both clocks and let the router tick."""
        self.clock.advance(ms)
        self.router.tick()
        self.check_books()

    def outcomes(self, route: str) -> dict[str, int]:
        """Outcome → count of a route, over all codes and ingresses."""
        found: dict[str, int] = {}
        for account in self.router.accounts():
            if account.name == route:
                for (outcome, _), number in account.stats.outcomes.items():
                    found[outcome.value] = found.get(outcome.value, 0) + number
        return found

    def queued(self, route: str) -> int:
        return sum(account.queued for account in self.router.accounts() if account.name == route)

    def check_books(self) -> None:
        """In = outcomes + queued, for every route, at any time. Every outcome is observed, every delivery has a message.

        The account of a route that was removed is gone, what the ledger counted is not.
        """
        ledger = self.ledger.counted
        for witness in self._witnesses:
            witness.check(ledger)
        for endpoint in self.router.endpoint_accounts():
            stats = endpoint.stats
            elsewhere = sum(stats.malformed.values()) + sum(stats.unwanted.values())
            assert stats.packets == stats.received + elsewhere, (endpoint.name, stats.packets, stats.received)
        counted: Counted = Counter()
        for account in self.router.accounts():
            assert account.stats.accepted == account.stats.settled + account.queued, account
            for (outcome, code), number in account.stats.outcomes.items():
                counted[account.name, account.source, account.target, outcome.value, code.name] += number
        names = {(account.name, account.source, account.target) for account in self.router.accounts()}
        assert {key: number for key, number in (ledger - self.ended).items() if key[:3] in names} == counted
        for egress in self.router.egresses.values():
            lanes = [lane for queue in egress.queues for lane in queue.lanes.values()]
            assert egress.in_flight == sum(lane.in_flight for lane in lanes), egress.name
        delivered: Counter[str] = Counter()
        for (_, _, target, result, _), number in ledger.items():
            delivered[target] += number if result == "delivered" else 0
        for name, transport in self.transports.items():
            if not transport.unconfirmed_s:  # else a message may leave more often than it is delivered
                assert delivered[name] == len(transport.sent), name

    def witness(self, kind: type[_Witness]) -> _Witness:
        """The witness of a class."""
        return next(each for each in self._witnesses if isinstance(each, kind))

    def speed(self, payload: bytes = b"", source: UUri = SPEED, **options: Any) -> UMessage:
        return publish(self.clock.ms, source, payload, Options(**options))

    def notify(self, payload: bytes = b"", sink: UUri = CLOUD_APP, source: UUri = SPEED, **options: Any) -> UMessage:
        return notification(self.clock.ms, source, sink, payload, Options(**options))

    def ask(
        self, source: UUri = CLOUD_APP, method: UUri = CLIMATE, ttl: int = 1000, payload: bytes = b"", **options: Any
    ) -> UMessage:
        return request(self.clock.ms, source, method, ttl, payload, Options(**options))


def bad_request(message: UMessage) -> UMessage:
    """The same Request without the priority that it needs."""
    old = message.attributes
    return replace(
        message, attributes=Attributes(UMessageType.REQUEST, old.source, old.sink, priority=UPriority.CS0, ttl=old.ttl)
    )
