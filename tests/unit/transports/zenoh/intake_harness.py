"""An `Intake` whose samples and messages the test makes."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import zenoh

from streamer.transports.base import ListenerOptions, TransportContext
from streamer.transports.listeners import Filter, ListenerRegistry
from streamer.transports.zenoh.intake import Intake
from streamer.transports.zenoh.receipts import Receipts
from streamer.transports.zenoh.subscription import Gate, KeySubscription
from streamer.transports.zenoh.wire import SampleDecoder, encode_attachment, key_for
from streamer.uprotocol.message import UMessage, request
from streamer.uprotocol.uri import UUri, everything_at
from tests.listeners import RecordingListener
from tests.transport_events import EventLog

NOW_MS = 1_700_000_000_000
TOPIC = UUri("veh1", 0xA, 1, 0x8000)
OTHER_TOPIC = UUri("veh1", 0xA, 1, 0x8001)
APP = UUri("cloud", 0xC, 1, 0)
METHOD = UUri("veh1", 0xB, 1, 7)
ANYONE = everything_at("*")

ASK = request(NOW_MS, APP, METHOD, 1000)


def no_receipts() -> Receipts:
    """Receipts that are off."""
    nothing: Any = object()
    own = ("vehicle", "gateway.veh1", (), ())
    return Receipts(nothing, nothing, nothing, nothing, *own, 1.0, lambda number: None, lambda away: None)


class FakeControl:
    """Declares nothing."""

    def post(self, call: Callable[[], None]) -> None:
        pass


class IntakeHarness:
    """An intake with a session that brings what the test says, and one listener."""

    def __init__(self) -> None:
        self.events = EventLog()
        self.context = TransportContext("vehicle", "gateway.veh1", events=self.events)
        self.registry = ListenerRegistry(ListenerOptions(max_listeners=3000), self.events, self.context.flows)
        self.listener = RecordingListener()
        self.open_session()

    def open_session(self) -> None:
        """Have the intake of a new session, which opens the filters that are listened to."""
        nothing: Any = object()
        control: Any = FakeControl()
        decoder = SampleDecoder("gateway.veh1", 8192, 1024, self.context.flows)
        on = (nothing, control, nothing, self.context, self.registry, no_receipts(), Gate())
        self.intake = Intake(*on, 10, decoder, self.registry.filters())

    def listen(self, of: Filter) -> None:
        self.registry.add(*of, self.listener)
        self.intake.open_filter(*of)

    def leave(self, of: Filter) -> None:
        self.registry.remove(*of, self.listener)
        self.intake.close_filter(*of)

    @property
    def subscriptions(self) -> list[KeySubscription]:
        """Those that are open, in the order in which they were opened."""
        return [part for parts in self.intake._subscriptions.values() for part in parts]

    def bring(self, subscription: KeySubscription, message: UMessage) -> int:
        """How often a message that comes through a subscription is delivered."""
        before = len(self.listener.messages)
        blob = SimpleNamespace(to_bytes=lambda: message.payload or b"")
        attachment = SimpleNamespace(to_bytes=lambda: encode_attachment(message))
        key = key_for(message.attributes, "")
        kind = zenoh.SampleKind.PUT
        sample: Any = SimpleNamespace(kind=kind, payload=blob, attachment=attachment, key_expr=key, priority=1)
        self.intake._take(subscription, [sample])
        return len(self.listener.messages) - before
