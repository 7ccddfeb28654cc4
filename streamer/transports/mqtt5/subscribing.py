"""Subscribes to the needed filters at the broker: sends SUBSCRIBE and UNSUBSCRIBE, and handles the broker's answers.

The number of unanswered requests is bounded; each answer lets the next request go out. A missing answer ends the connection.
If an answer is missing on the next connection as well, that continues without it, so that at least messages can be sent, and
the request is repeated.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import takewhile, zip_longest

import mqtt5

from streamer.transports.mqtt5.frames import named
from streamer.transports.mqtt5.session import Session
from streamer.transports.mqtt5.subscriptions import (
    NO_SHARING,
    NO_WILDCARDS,
    Subscriptions,
    batches,
    has_wildcard,
    is_shared,
    is_too_long,
    subscribe_to,
)
from streamer.transports.mqtt5.wire import FAILURE

logger = logging.getLogger("ustreamer.mqtt5")

_AT_MOST_ONCE = 0x00  # granted with QoS 0 (MQTT 5, 3.9.3), less than requested
_CANNOT_SHARE = 0x9E  # shared subscriptions are not supported
_UNANSWERED = "it does not answer the SUBSCRIBE"


class Subscribing:
    """The subscriptions at one of ``brokers``. ``name`` is the endpoint's.

    ``write`` sends a packet if there is a connection. ``refused`` counts the filters that the broker refused.
    """

    def __init__(self, name: str, session: Session, write: Callable[[bytes], None], brokers: int = 1) -> None:
        self.refused = 0
        self._name = name
        self._session = session
        self._write = write
        self._subscriptions = Subscriptions(brokers)
        self._waiting: OrderedDict[str, bool] = OrderedDict()  # filters to request. True: SUBSCRIBE, False: UNSUBSCRIBE
        self._awaited: set[str] = set()  # filters whose answers have to come before the link is UP
        self._can_share = True  # the broker has shared subscriptions
        self._has_wildcards = True  # the broker has subscriptions with wildcards
        self._up_to_date: set[int] = set()  # brokers at which a session of this process has had the right subscriptions
        self._is_leaving = False  # no filter is subscribed to any more
        self._is_unanswered = False  # a connection was ended because of a missing answer, and not all have come since

    def problems(self) -> list[str]:
        """Return a sentence for each filter that the broker refused."""
        return self._subscriptions.problems()

    def open(self, patterns: Sequence[str]) -> None:
        """Add a user to each of these filters, and subscribe to new filters."""
        opened = [pattern for pattern in patterns if self._subscriptions.open(pattern)]
        if self._session.is_connected:
            self._subscribe(opened)

    def close(self, patterns: Sequence[str]) -> None:
        """Remove a user from each of these filters, and unsubscribe from those without users."""
        closed = [pattern for pattern in patterns if self._subscriptions.close(pattern)]
        if self._session.is_connected:
            self._unsubscribe(closed)

    def connected(self, session_present: bool, can_share: bool, has_wildcards: bool, broker: int = 0) -> bool:
        """Update the session's subscriptions after the CONNACK of a broker, which is given by its number.

        Return True if no answer has to come before the link is UP.
        """
        is_same, self._subscriptions.broker = broker == self._subscriptions.broker, broker
        self._can_share, self._has_wildcards = can_share, has_wildcards
        # Also if the broker has the session: filters may have changed meanwhile, and subscribing twice is harmless.
        needed, unneeded = self._subscriptions.needed(), self._subscriptions.unneeded()
        if session_present:
            self._subscribe(needed, None if is_same else self._awaited)  # another broker's may be of long ago
            self._unsubscribe(unneeded)
            if broker not in self._up_to_date and can_share:
                self._unsubscribe(self._subscriptions.unshared())
        else:
            self._subscriptions.removed(unneeded)
            self._subscribe(needed, self._awaited)
        return not self._awaited

    def disconnected(self) -> None:
        """Drop requests that were not sent, because the connection is lost."""
        self._waiting.clear()
        self._awaited.clear()

    def leave(self) -> None:
        """Unsubscribe from all filters, and subscribe to no others."""
        self._is_leaving = True
        if self._session.is_connected:
            self._unsubscribe(self._subscriptions.needed())

    def continues_unanswered(self) -> bool:
        """Return whether the connection continues although an answer has not come in time; else the caller has to end it.

        If so, the caller calls `give_up_unanswered`.
        """
        was_unanswered, self._is_unanswered = self._is_unanswered, True
        return was_unanswered

    def give_up_unanswered(self) -> bool:
        """Stop waiting for outstanding answers, and repeat the requests. Return True if the link is UP with that."""
        patterns, needed = dict.fromkeys(self._session.give_up_requests()), set(self._subscriptions.needed())
        for pattern in patterns:
            is_wanted = pattern in needed and not self._is_leaving
            if is_wanted and not self._subscriptions.is_refused(pattern):
                self._refuse(pattern, _UNANSWERED)
            self._wait(pattern, is_wanted)
        return self._answered(list(patterns))

    def confirmed(self, packet: mqtt5.SubAckPacket) -> bool:
        """Handle a SUBACK. Return True if it was the last answer for which the link waited."""
        patterns = self._session.answered(packet.packet_id) or []
        for pattern, reason in zip_longest(patterns, packet.reason_codes[: len(patterns)]):
            if reason is None:
                self._refuse(pattern, "the broker's SUBACK has no answer for it")
            elif int(reason) >= FAILURE:
                self._refuse(pattern, named(reason) + (f": {NO_SHARING}" if int(reason) == _CANNOT_SHARE else ""))
            elif int(reason) == _AT_MOST_ONCE:
                self._refuse(pattern, "it grants QoS 0 only, so it sends each message once and waits for no acknowledgement")
            else:
                self._subscriptions.granted(pattern)
        return self._answered(patterns)

    def removed(self, packet: mqtt5.UnsubAckPacket) -> bool:
        """Handle an UNSUBACK. Return True if it was the last answer for which the link waited."""
        patterns = self._session.answered(packet.packet_id) or []
        self._subscriptions.removed(patterns)
        return self._answered(patterns)

    def _answered(self, patterns: Sequence[str]) -> bool:
        self._go_on()
        if not self._session.has_requests:
            self._up_to_date.add(self._subscriptions.broker)
            self._is_unanswered = False
        was_awaited = len(self._awaited) > 0
        self._awaited.difference_update(patterns)
        return was_awaited and not self._awaited

    def _subscribe(self, patterns: Sequence[str], awaited: set[str] | None = None) -> None:
        """Request these filters, and add them to ``awaited``, except for those that the broker cannot be asked for."""
        if self._is_leaving:
            return
        for pattern in patterns:
            if why_not := self._why_not(pattern):
                self._refuse(pattern, why_not)
            else:
                self._wait(pattern, True)
                if awaited is not None:
                    awaited.add(pattern)
        self._go_on()

    def _why_not(self, pattern: str) -> str:
        """Return why a filter cannot be requested from this broker; empty if it can."""
        most = self._session.max_packet_bytes
        if not self._can_share and is_shared(pattern):
            return NO_SHARING
        if not self._has_wildcards and has_wildcard(pattern):
            return NO_WILDCARDS
        if is_too_long(pattern, most):
            return f"it takes packets of at most {most} bytes, and a SUBSCRIBE for this filter is longer"
        return ""

    def _unsubscribe(self, patterns: Sequence[str]) -> None:
        for pattern in patterns:
            if not is_too_long(pattern, self._session.max_packet_bytes):
                self._wait(pattern, False)
        self._go_on()

    def _wait(self, pattern: str, is_wanted: bool) -> None:
        self._waiting[pattern] = is_wanted  # replaces an earlier request for the filter
        self._waiting.move_to_end(pattern)

    def _go_on(self) -> None:
        """Send waiting requests, as many as may be unanswered."""
        session, waiting = self._session, self._waiting
        while waiting and session.may_request:
            is_wanted = next(iter(waiting.values()))
            batch = self._take_batch(is_wanted)
            packet_id = session.request(batch)
            if is_wanted:
                self._write(mqtt5.SubscribePacket(packet_id, [subscribe_to(pattern) for pattern in batch]).write())
            else:
                self._write(mqtt5.UnsubscribePacket(packet_id, list(batch)).write())

    def _take_batch(self, is_wanted: bool) -> Sequence[str]:
        """Take the first waiting filters that need the same kind of request and fit into one packet."""
        alike = (pattern for pattern, _ in takewhile(lambda item: item[1] is is_wanted, self._waiting.items()))
        batch = next(batches(alike, self._session.max_packet_bytes))
        for pattern in batch:
            del self._waiting[pattern]
        return batch

    def _refuse(self, pattern: str, reason: str) -> None:
        self.refused += 1
        self._subscriptions.refused(pattern, reason)
        logger.warning("subscription_refused endpoint=%s filter=%r reason=%s", self._name, pattern, reason)
