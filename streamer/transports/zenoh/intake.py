"""Receives from Zenoh: one subscription per filter; if several bring the same message, all but one copy are dropped.

The number of topics with a subscription of their own is bounded (`topics`). Messages on other topics come through a wide
subscription; its samples on topics that are not open are dropped by their key, before they are decoded. While a topic is
open, the same subscription brings its messages.

Runs on the event loop, and declares on the control thread.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import zenoh

from streamer.transports.base import Received, Refused, TransportContext
from streamer.transports.errors import TOO_LARGE, MalformedPacketError, Unwanted
from streamer.transports.listeners import Filter, FilterIndex, ListenerRegistry, filter_matches, is_topic
from streamer.transports.zenoh.callback_subscription import CallbackSubscription
from streamer.transports.zenoh.control import ControlThread
from streamer.transports.zenoh.fifo_subscription import FifoSubscription
from streamer.transports.zenoh.frequent_keys import FrequentKeys
from streamer.transports.zenoh.receipts import Receipted, Receipts
from streamer.transports.zenoh.subscription import Gate, KeySubscription, OpenKeys
from streamer.transports.zenoh.topics import Topics
from streamer.transports.zenoh.wildcard_samples import WildcardSamples
from streamer.transports.zenoh.wire import SampleDecoder, key_filter, narrowed, wildcards_in
from streamer.uprotocol.message import Attributes, UMessage, UMessageType
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import ANY_UE_ID, UUri

logger = logging.getLogger("ustreamer.zenoh")

_QUIET_S = 0.05
_CATCH_UP_S = 1.0

NO_SUBSCRIPTIONS: Final = {"subscriptions": 0, "wide_subscriptions": 0, "keys": 0}

MAX_THREADS = 32
"""The most topics with a thread, and the most wide subscriptions with one. A thread takes 10 KiB, and half as much time per
message as a callback.
"""


class Intake:
    """Opens and closes the subscriptions of one session, each with room for ``buffer`` samples, and delivers messages.

    ``filters`` are subscribed to at once.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        control: ControlThread,
        session: zenoh.Session,
        context: TransportContext,
        registry: ListenerRegistry,
        receipts: Receipts,
        gate: Gate,
        buffer: int,
        decoder: SampleDecoder,
        filters: Collection[Filter],
    ) -> None:
        self._loop = loop
        self._control = control
        self._session = session
        self._context = context
        self._registry = registry
        self._receipts = receipts
        self._buffer = buffer
        self._decoder = decoder
        self._wildcard_samples = WildcardSamples(loop, self._count_wildcard_samples)
        self._keys = OpenKeys(session)  # used on the control thread
        self._frequent = FrequentKeys(session, control)  # used until the session is closed, also for samples in transit
        self._gate = gate
        self._is_closed = False
        self._batches = 0
        self._opened = 0
        self._subscription_count = 0  # subscriptions in Zenoh
        self._subscriptions: FilterIndex[tuple[KeySubscription, ...]] = FilterIndex()
        self._topics = Topics(of[0] for of in filters if is_topic(of))
        self._wide: dict[UUri, KeySubscription] = {}  # wide subscriptions by source filter
        self._keys_declared: set[str] = set()  # of this session
        self._closed_topics: set[UUri] = set()  # closed topics that are still delivered, see `_close_topic`
        self._with_thread: set[KeySubscription] = set()  # topics' subscriptions, while they have a thread
        self._closing: set[KeySubscription] = set()
        self._all_closed = asyncio.Event()
        self._flows = context.flows
        for source, sink in filters:
            self.open_filter(source, sink)

    async def end(self) -> None:
        """Deliver the messages in transit, then unsubscribe from everything, for good.

        Messages that a sender has put wait in the buffers of subscriptions and of the link. Zenoh drops those that come
        from the link after their subscription has ended. So this waits until no message has come for `_QUIET_S`, for
        `_CATCH_UP_S` at most. The gate must be open.
        """
        deadline_s = self._loop.time() + _CATCH_UP_S
        so_far = -1
        while so_far != self._batches and self._loop.time() < deadline_s:
            so_far = self._batches
            await asyncio.sleep(_QUIET_S)
        await self.close()

    async def close(self) -> None:
        """Undeclare all subscriptions, and wait until all messages that have arrived are delivered."""
        self._is_closed = True
        for source, sink in self._subscriptions.filters():
            self.close_filter(source, sink)
        if not self._gate.is_open:  # the router has no room for the messages that have arrived
            self.abandon()
        while self._closing:
            self._all_closed.clear()
            await self._all_closed.wait()

    def abandon(self) -> None:
        """Discard the samples that closing subscriptions still bring."""
        for subscription in self._closing:
            subscription.abandon()

    def open_filter(self, source: UUri, sink: UUri | None) -> None:
        """Subscribe to a filter, unless that was done already or the intake is closed."""
        if self._is_closed:
            return
        if (source, sink) in self._subscriptions:
            if source in self._closed_topics:
                self._closed_topics.discard(source)
                self._topics.open(source)
            return
        parts: tuple[KeySubscription, ...]
        if is_topic((source, sink)):
            parts = (self._open_topic(source),)
        else:
            parts = tuple(self._declare(part) for part in narrowed(source, sink))
        self._subscriptions.add((source, sink), parts)
        self._flows.changed(source)

    def _open_topic(self, topic: UUri) -> KeySubscription:
        """Return the subscription that brings a topic; declare it if necessary."""
        of = self._topics.open(topic)
        if of == topic:
            return self._declare((topic, None))
        wide = self._wide.get(of)
        if wide is None:
            wide = self._wide[of] = self._declare((of, None), is_wide=True)
        self._opened += 1
        assert wide.topics is not None
        wide.topics[self._key(topic)] = self._opened
        return wide

    def _key(self, topic: UUri) -> str:
        return key_filter(topic, None, self._context.authority)

    def _declare(self, part: Filter, is_wide: bool = False) -> KeySubscription:
        is_for_topics = is_wide or is_topic(part)
        threads = 2 * MAX_THREADS if is_wide else MAX_THREADS
        is_one_of_many = is_for_topics and len(self._with_thread) >= threads
        is_quiet = is_one_of_many or self._is_for_a_service(part)
        arguments = (self._loop, part, self._take, self._ended, self._gate)
        subscription: KeySubscription
        if is_quiet:
            subscription = CallbackSubscription(*arguments, self._wildcard_samples, is_wide)
        else:
            subscription = FifoSubscription(*arguments, is_wide)
            if is_for_topics:
                self._with_thread.add(subscription)
        self._opened += 1
        subscription.opened = self._opened
        key = key_filter(*part, self._context.authority)
        self._keys_declared.add(key)
        self._subscription_count += 1

        def declare_blocking() -> None:
            self._keys.opening(key)
            subscription.declare(self._session, key, self._buffer)

        self._control.post(declare_blocking)
        return subscription

    def _is_for_a_service(self, part: Filter) -> bool:
        """Return whether a filter is for messages to one uEntity or to this streamer, which are few."""
        _, sink = part
        return sink is not None and (sink.ue_id != ANY_UE_ID or sink.authority in ("", self._context.authority))

    def close_filter(self, source: UUri, sink: UUri | None) -> None:
        """Unsubscribe from a filter. Messages that have arrived are still delivered."""
        parts = self._subscriptions.get((source, sink)) or ()
        if parts and is_topic((source, sink)) and not self._close_topic(source, parts[0]):
            return
        self._subscriptions.pop((source, sink))
        self._flows.changed(source)
        for subscription in parts:
            subscription.closing = True
            self._closing.add(subscription)
            self._control.post(partial(self._undeclare_blocking, subscription))
        for topic in [topic for topic in self._closed_topics if not self._has_another_filter(topic)]:
            self._forget_topic(topic)

    def _close_topic(self, topic: UUri, subscription: KeySubscription) -> bool:
        """Close a topic. Return whether the caller has to close its subscription, too.

        If another filter matches the topic, its messages are still taken from the wide subscription while that is open: the
        messages that came through the other subscription until now were dropped as copies.
        """
        of = subscription.filter[0]
        if topic in self._closed_topics:
            return False
        is_last = self._topics.close(topic, of)
        if subscription.topics is None:
            return True
        if is_last:
            del self._wide[of]
            for left in [left for left in self._closed_topics if self._key(left) in subscription.topics]:
                self._closed_topics.discard(left)
                self._subscriptions.pop((left, None))
                self._flows.changed(left)
            return True
        self._closed_topics.add(topic)
        if not self._has_another_filter(topic):
            self._forget_topic(topic)
        return False

    def _has_another_filter(self, topic: UUri) -> bool:
        return len(self._subscriptions.matching(Attributes(UMessageType.PUBLISH, topic))) > 1

    def _forget_topic(self, topic: UUri) -> None:
        """Drop further messages of a closed topic that a wide subscription brings."""
        self._closed_topics.discard(topic)
        (subscription,) = self._subscriptions.pop((topic, None)) or ()
        self._flows.changed(topic)
        assert subscription.topics is not None
        del subscription.topics[self._key(topic)]

    def _undeclare_blocking(self, subscription: KeySubscription) -> None:
        """Undeclare a subscription. For the control thread."""
        try:
            self._keys.closing(key_filter(*subscription.filter, self._context.authority))
        finally:
            subscription.undeclare()

    def figures(self) -> Mapping[str, float]:
        """Return the numbers of subscriptions, of wide ones, and of declared keys, for `UTransport.figures`."""
        return {
            "subscriptions": self._subscription_count,
            "wide_subscriptions": len(self._wide),
            "keys": len(self._keys_declared),
        }

    def _take(self, subscription: KeySubscription, samples: Sequence[zenoh.Sample]) -> None:
        """Deliver one batch of samples. Drop copies: messages whose canonical subscription is another one."""
        self._batches += 1
        events = self._context.events
        events.packets_received(len(samples))
        self._frequent.look(samples)
        if subscription.topics is not None:
            samples = self._on_open_topics(samples, subscription.topics)
        copies = 0
        batch: list[Received] = []
        refused: list[Refused] = []
        flows, serves, decoder = self._flows, self._receipts.serves, self._decoder
        for sample in samples:
            error: MalformedPacketError | None = None
            payload_bytes = 0
            try:
                message = decoder.message_of(sample)
            except MalformedPacketError as exc:
                error = exc
                part = self._known_part_of(sample, exc)
                if part is None:
                    events.packet_malformed(exc)
                    continue
                message, payload_bytes = part
            attributes = message.attributes
            flow = attributes.shared
            if flow.flows is not flows:
                flow = flows.of(flow)
            canonical: _Canonical | None = flow.canonical
            if canonical is None or canonical.intake is not self:
                canonical = flow.canonical = _Canonical(self, self._choose(flow))
            chosen = canonical.subscription
            # The oldest matching subscription is chosen. If it is younger than this one, which is closing, this one was the
            # chosen one until a moment ago. If a message is delivered twice because of that, both copies have the same id.
            if chosen is subscription or (
                chosen is not None and subscription.closing and _is_younger(chosen, subscription, sample)
            ):
                sink = attributes.sink
                if sink is not None and sink.authority in serves:
                    received: Received = Receipted(message, self._receipts, decoder.last_bytes)
                else:
                    received = Received(message, False, decoder.last_bytes)
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

    def _on_open_topics(self, samples: Sequence[zenoh.Sample], topics: Mapping[str, int]) -> Sequence[zenoh.Sample]:
        """Return the samples on open topics of a wide subscription, and those on keys with wildcards (malformed)."""
        asked_for = [sample for sample in samples if (key := str(sample.key_expr)) in topics or "*" in key]
        if len(asked_for) < len(samples):
            self._context.events.packets_unwanted(Unwanted.OTHER_TOPIC, len(samples) - len(asked_for))
        return asked_for

    def _count_wildcard_samples(self, number: int, key: str) -> None:
        """Count ``number`` samples on keys with wildcards, such as ``key``, as malformed."""
        self._context.events.packets_received(number)
        self._context.events.packet_malformed(wildcards_in(key), number)

    def _known_part_of(self, sample: zenoh.Sample, error: MalformedPacketError) -> tuple[UMessage, int] | None:
        """Return the readable part of a sample that is only too large, with the length of its payload; else None."""
        if error.reason not in TOO_LARGE:
            return None
        try:
            return self._decoder.part_of(sample)
        except MalformedPacketError:
            return None

    def _choose(self, attributes: Attributes) -> KeySubscription | None:
        """Return the first subscription whose filter matches the key. Zenoh's `*` can match more than the filter does."""
        on_key = attributes  # on a key, a Publish has no sink, even if a streamer has set one
        if attributes.type is UMessageType.PUBLISH and attributes.sink is not None:
            on_key = replace(attributes, sink=None)
        matching = (part for parts in self._subscriptions.matching(on_key) for part in parts)
        return next((part for part in matching if filter_matches(*part.filter, on_key)), None)

    def _ended(self, subscription: KeySubscription) -> None:
        """Count a subscription as closed: it brings no more samples. Report the samples that it discarded."""
        if subscription.discarded:
            logger.warning(
                "zenoh_samples_discarded endpoint=%s count=%d: receiving was paused until the end",
                self._context.name,
                subscription.discarded,
            )
            self._context.events.packets_received(subscription.discarded)
            self._context.events.packets_unwanted(Unwanted.STOPPED, subscription.discarded)
        self._subscription_count -= 1
        self._with_thread.discard(subscription)
        self._closing.discard(subscription)
        if not self._closing:
            self._all_closed.set()


class _Canonical:
    """The subscription whose copies of a flow's messages an intake takes; None if no filter matches the flow."""

    __slots__ = ("intake", "subscription")

    def __init__(self, intake: Intake, subscription: KeySubscription | None) -> None:
        self.intake = intake
        self.subscription = subscription


def _is_younger(one: KeySubscription, other: KeySubscription, sample: zenoh.Sample) -> bool:
    """Return whether one subscription was opened after another one, for the key of this sample."""
    key = str(sample.key_expr)
    return one.opened_for(key) > other.opened_for(key)
