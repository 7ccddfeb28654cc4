"""Receiving from Zenoh: one subscription per filter, and for a message that several of them bring, the choice of one.

Runs on the event loop, and declares on the control thread.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import zenoh

from streamer.transports.base import Received, Refused, TransportContext
from streamer.transports.errors import TOO_LARGE, MalformedPacketError, Unwanted
from streamer.transports.listeners import Filter, FilterIndex, ListenerRegistry, filter_matches, forget, is_topic
from streamer.transports.zenoh.callback_subscription import CallbackSubscription
from streamer.transports.zenoh.control import ControlThread
from streamer.transports.zenoh.fifo_subscription import FifoSubscription
from streamer.transports.zenoh.frequent_keys import FrequentKeys
from streamer.transports.zenoh.receipts import Receipted, Receipts
from streamer.transports.zenoh.strays import Strays
from streamer.transports.zenoh.subscription import Gate, KeySubscription, OpenKeys
from streamer.transports.zenoh.wire import SampleDecoder, key_filter, narrowed, wildcards_in
from streamer.uprotocol.by_source import BySource
from streamer.uprotocol.message import Attributes, UMessage, UMessageType
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import ANY_UE_ID, UUri

logger = logging.getLogger("ustreamer.zenoh")

_QUIET_S = 0.05
_CATCH_UP_S = 1.0

THREADS_AT_MOST = 32
"""How many topics have a thread, which costs half as much per message as a callback, and 10 KiB."""


class Intake:
    """The subscriptions of one session, each with room for ``buffer`` samples."""

    def __init__(
        self, context: TransportContext, registry: ListenerRegistry, receipts: Receipts, buffer: int, decoder: SampleDecoder
    ) -> None:
        self._context = context
        self._registry = registry
        self._receipts = receipts
        self._buffer = buffer
        self._decoder = decoder
        self._message_of = decoder.message_of
        self._loop: asyncio.AbstractEventLoop
        self._control: ControlThread
        self._strays: Strays
        self._session: zenoh.Session | None = None
        self._keys: OpenKeys  # with the session; used on the control thread
        self._frequent: FrequentKeys | None = None  # kept until the session is closed, for what is still on its way
        self._gate = Gate()
        self._is_ending = False
        self._batches = 0
        self._opened = 0
        self._subscriptions: FilterIndex[tuple[KeySubscription, ...]] = FilterIndex()
        self._with_thread: set[KeySubscription] = set()  # topics' subscriptions, while they have a thread
        self._closing: set[KeySubscription] = set()
        self._all_closed = asyncio.Event()
        self._canonical: BySource[Attributes, KeySubscription | None] = BySource()

    def open(self, loop: asyncio.AbstractEventLoop, control: ControlThread, session: zenoh.Session) -> None:
        """The session is open: subscribe to every filter that has a listener."""
        self._loop = loop
        self._strays = Strays(loop, self._found_strays)
        self._control = control
        if self._is_ending:
            return
        self._session = session
        self._keys = OpenKeys(session)
        self._frequent = FrequentKeys(session, control)
        for source, sink in self._registry.filters():
            self.open_filter(source, sink)

    async def end(self) -> None:
        """Take what is on its way, then unsubscribe from everything, for good.

        What a sender has put lies in the buffers of subscriptions and of the link. Whatever comes from the link after its
        subscription has ended is lost to Zenoh. So this goes on until nothing has come for a moment, under load not for
        long.
        """
        self._is_ending = True
        self.resume()
        if self._session is None:
            return
        deadline_s = self._loop.time() + _CATCH_UP_S
        so_far = -1
        while so_far != self._batches and self._loop.time() < deadline_s:
            so_far = self._batches
            await asyncio.sleep(_QUIET_S)
        await self.close()

    async def close(self) -> None:
        """Undeclare all subscriptions, and wait until everything that has arrived is delivered."""
        self._session = None
        for source, sink in self._subscriptions.filters():
            self.close_filter(source, sink)
        if not self._gate.is_open:  # the router has no room for what has arrived
            self.abandon()
        while self._closing:
            self._all_closed.clear()
            await self._all_closed.wait()

    def abandon(self) -> None:
        """Discard what closing subscriptions still bring."""
        for subscription in self._closing:
            subscription.abandon()

    def open_filter(self, source: UUri, sink: UUri | None) -> None:
        """Subscribe, unless that was done already or there is no session."""
        session = self._session
        if session is None or (source, sink) in self._subscriptions:
            return
        parts = tuple(self._declare(session, part) for part in narrowed(source, sink))
        self._subscriptions.add((source, sink), parts)
        forget(self._canonical, (source, sink))

    def _declare(self, session: zenoh.Session, part: Filter) -> KeySubscription:
        is_one_of_many = is_topic(part) and len(self._with_thread) >= THREADS_AT_MOST
        is_quiet = is_one_of_many or self._is_for_a_service(part)
        arguments = (self._loop, part, self._take, self._ended, self._gate)
        subscription: KeySubscription
        if is_quiet:
            subscription = CallbackSubscription(*arguments, self._strays)
        else:
            subscription = FifoSubscription(*arguments, self._control.post)
            if is_topic(part):
                self._with_thread.add(subscription)
        self._opened += 1
        subscription.opened = self._opened
        keys, key = self._keys, key_filter(*part, self._context.authority)

        def declare_blocking() -> None:
            keys.opening(key)
            subscription.declare(session, key, self._buffer)

        self._control.post(declare_blocking)
        return subscription

    def _is_for_a_service(self, part: Filter) -> bool:
        """Whether a filter is for what one uEntity is asked, or a streamer: little, compared with what others are sent."""
        _, sink = part
        return sink is not None and (sink.ue_id != ANY_UE_ID or sink.authority in ("", self._context.authority))

    def close_filter(self, source: UUri, sink: UUri | None) -> None:
        """Unsubscribe; what has arrived is still delivered."""
        parts = self._subscriptions.pop((source, sink)) or ()
        forget(self._canonical, (source, sink))
        for subscription in parts:
            subscription.closing = True
            self._closing.add(subscription)
            self._control.post(partial(self._undeclare_blocking, subscription, self._keys))

    def _undeclare_blocking(self, subscription: KeySubscription, keys: OpenKeys) -> None:
        """For the control thread."""
        try:
            keys.closing(key_filter(*subscription.filter, self._context.authority))
        finally:
            subscription.undeclare()

    def pause(self) -> None:
        """Take nothing from any subscription. At the end there is no pause: what has arrived has to go somewhere."""
        if not self._is_ending:
            self._gate.close()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._gate.open()

    def _take(self, subscription: KeySubscription, samples: Sequence[zenoh.Sample]) -> None:
        """Deliver one batch. A message that comes through several subscriptions is taken from the canonical one."""
        self._batches += 1
        events = self._context.events
        events.packets_received(len(samples))
        if self._frequent is not None:
            self._frequent.look(samples)
        copies = 0
        batch: list[Received] = []
        refused: list[Refused] = []
        canonical, serves, message_of = self._canonical, self._receipts.serves, self._message_of
        for sample in samples:
            error: MalformedPacketError | None = None
            payload_bytes = 0
            try:
                message = message_of(sample)
            except MalformedPacketError as exc:
                error = exc
                part = self._part_of(sample, exc)
                if part is None:
                    events.packet_malformed(exc)
                    continue
                message, payload_bytes = part
            attributes = message.attributes
            shared = attributes.shared
            try:
                chosen = canonical[shared]
            except KeyError:
                chosen = self._choose(shared)
            # The chosen one is the oldest. So if it is younger than one that is closing, what that one still has was chosen
            # until a moment ago. If a message is delivered twice because of that, both copies have the same id.
            if chosen is subscription or (
                chosen is not None and subscription.closing and chosen.opened > subscription.opened
            ):
                sink = attributes.sink
                if sink is not None and sink.authority in serves:
                    received: Received = Receipted(message, self._receipts)
                else:
                    received = Received(message)
                if error is None:
                    batch.append(received)
                else:
                    refused.append(Refused(received, UCode.RESOURCE_EXHAUSTED, f"too large: {error}", payload_bytes))
            elif chosen is None:
                events.packets_unwanted(Unwanted.NO_LISTENER, 1, attributes)
            else:
                copies += 1
        if copies:
            events.packets_unwanted(Unwanted.COPY, copies)
        if batch:
            self._registry.deliver(batch)
        if refused:
            events.messages_refused(refused)

    def _found_strays(self, number: int, key: str) -> None:
        """So many samples came on keys like this one."""
        self._context.events.packets_received(number)
        self._context.events.packet_malformed(wildcards_in(key), number)

    def _part_of(self, sample: zenoh.Sample, error: MalformedPacketError) -> tuple[UMessage, int] | None:
        """What can be read of a sample that is only too large, and the length of its payload."""
        if error.reason not in TOO_LARGE:
            return None
        try:
            return self._decoder.part_of(sample)
        except MalformedPacketError:
            return None

    def _choose(self, attributes: Attributes) -> KeySubscription | None:
        """The first subscription whose filter matches the key. Zenoh's `*` can match more than the filter does."""
        on_key = attributes  # where a Publish has no sink, whatever a streamer has set
        if attributes.type is UMessageType.PUBLISH and attributes.sink is not None:
            on_key = replace(attributes, sink=None)
        matching = (part for parts in self._subscriptions.matching(on_key) for part in parts)
        chosen = next((part for part in matching if filter_matches(*part.filter, on_key)), None)
        self._canonical.remember(attributes.source, attributes, chosen)
        return chosen

    def _ended(self, subscription: KeySubscription) -> None:
        """Nothing more comes from a subscription."""
        if subscription.discarded:
            logger.warning(
                "zenoh_samples_discarded endpoint=%s count=%d: receiving was paused until the end",
                self._context.name,
                subscription.discarded,
            )
            self._context.events.packets_received(subscription.discarded)
            self._context.events.packets_unwanted(Unwanted.STOPPED, subscription.discarded)
        self._with_thread.discard(subscription)
        self._closing.discard(subscription)
        if not self._closing:
            self._all_closed.set()
