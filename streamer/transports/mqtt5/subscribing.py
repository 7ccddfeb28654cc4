"""Subscribes to the needed filters at the broker: sends SUBSCRIBE and UNSUBSCRIBE, and handles the broker's answers.

Only so many of them are without an answer at a time. The next goes out with each answer. An answer that does not come in
time ends the connection. If one does not come on the next connection either, that goes on without it: messages can be sent,
and the broker is asked again.
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

_AT_MOST_ONCE = 0x00  # granted with QoS 0 (MQTT 5, 3.9.3): less than what was asked for
_CANNOT_SHARE = 0x9E  # shared subscriptions are not supported
_UNANSWERED = "it does not answer the SUBSCRIBE"


class Subscribing:
    """The subscriptions of one session. ``name`` is the endpoint's; ``write`` sends a packet if there is a connection.

    ``refused`` counts the filters that the broker did not take.
    """

    def __init__(self, name: str, session: Session, write: Callable[[bytes], None]) -> None:
        self.refused = 0
        self._name = name
        self._session = session
        self._write = write
        self._subscriptions = Subscriptions()
        self._waiting: OrderedDict[str, bool] = OrderedDict()  # filters that are not yet asked for. True: to subscribe
        self._awaited: set[str] = set()  # filters whose confirmation makes us UP
        self._can_share = True  # the broker has shared subscriptions
        self._has_wildcards = True  # and such with wildcards
        self._is_first = True  # no session of this process is brought up to date yet
        self._is_leaving = False  # nothing more is subscribed to
        self._is_unanswered = False  # a connection was ended because an answer did not come, and since then one never did

    def problems(self) -> list[str]:
        """A sentence for each filter that the broker refused."""
        return self._subscriptions.problems()

    def open(self, patterns: Sequence[str]) -> None:
        """One more user for each of these filters."""
        opened = [pattern for pattern in patterns if self._subscriptions.open(pattern)]
        if self._session.is_connected:
            self._subscribe(opened)

    def close(self, patterns: Sequence[str]) -> None:
        """One user less."""
        closed = [pattern for pattern in patterns if self._subscriptions.close(pattern)]
        if self._session.is_connected:
            self._unsubscribe(closed)

    def connected(self, session_present: bool, can_share: bool, has_wildcards: bool) -> bool:
        """A CONNACK came. True if nothing has to be waited for, else `confirmed` says when that is so."""
        self._can_share, self._has_wildcards = can_share, has_wildcards
        # Also if the broker has the session: filters may have changed meanwhile, and subscribing twice is harmless.
        needed, unneeded = self._subscriptions.needed(), self._subscriptions.unneeded()
        if session_present:
            self._subscribe(needed)
            self._unsubscribe(unneeded)
            if self._is_first and can_share:
                self._unsubscribe(self._subscriptions.unshared())
        else:
            self._subscriptions.removed(unneeded)
            self._subscribe(needed, self._awaited)
        return not self._awaited

    def disconnected(self) -> None:
        """The connection is lost."""
        self._waiting.clear()
        self._awaited.clear()

    def leave(self) -> None:
        """Unsubscribe from everything, and subscribe to nothing more."""
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
        """Wait no more for the answers that are outstanding. True if nothing else has to be waited for."""
        patterns, needed = dict.fromkeys(self._session.give_up_requests()), set(self._subscriptions.needed())
        for pattern in patterns:
            is_wanted = pattern in needed and not self._is_leaving
            if is_wanted and not self._subscriptions.is_refused(pattern):
                self._refuse(pattern, _UNANSWERED)
            self._wait(pattern, is_wanted)
        return self._answered(list(patterns))

    def confirmed(self, packet: mqtt5.SubAckPacket) -> bool:
        """A SUBACK came. True if it was the last that had to be waited for."""
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
        """An UNSUBACK came. True if it was the last answer that had to be waited for."""
        patterns = self._session.answered(packet.packet_id) or []
        self._subscriptions.removed(patterns)
        return self._answered(patterns)

    def _answered(self, patterns: Sequence[str]) -> bool:
        self._go_on()
        if not self._session.has_requests:
            self._is_first = self._is_unanswered = False
        was_awaited = len(self._awaited) > 0
        self._awaited.difference_update(patterns)
        return was_awaited and not self._awaited

    def _subscribe(self, patterns: Sequence[str], awaited: set[str] | None = None) -> None:
        """Ask for these filters. Those that the broker can be asked for are added to ``awaited``."""
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
        """Why the broker cannot be asked for a filter; empty if it can."""
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
        self._waiting[pattern] = is_wanted  # instead of what was to be asked before
        self._waiting.move_to_end(pattern)

    def _go_on(self) -> None:
        """Send what waits, as far as the broker's answers to earlier packets have come."""
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
        """The first filters that wait, as far as they are to be asked for alike and fit into one packet."""
        alike = (pattern for pattern, _ in takewhile(lambda item: item[1] is is_wanted, self._waiting.items()))
        batch = next(batches(alike, self._session.max_packet_bytes))
        for pattern in batch:
            del self._waiting[pattern]
        return batch

    def _refuse(self, pattern: str, reason: str) -> None:
        self.refused += 1
        self._subscriptions.refused(pattern, reason)
        logger.warning("subscription_refused endpoint=%s filter=%r reason=%s", self._name, pattern, reason)
