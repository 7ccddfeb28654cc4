"""Subscribes to the needed filters at the broker: sends SUBSCRIBE and UNSUBSCRIBE, and handles the broker's answers."""

import logging
from collections.abc import Callable, Sequence
from itertools import zip_longest

import mqtt5

from streamer.transports.mqtt5.frames import named
from streamer.transports.mqtt5.session import Session
from streamer.transports.mqtt5.subscriptions import (
    NO_SHARING,
    Subscriptions,
    batches,
    is_shared,
    is_too_long,
    subscribe_to,
)
from streamer.transports.mqtt5.wire import FAILURE

logger = logging.getLogger("ustreamer.mqtt5")

_CANNOT_SHARE = 0x9E  # shared subscriptions are not supported


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
        self._awaited: set[int] = set()  # packet ids of the SUBSCRIBEs whose confirmation makes us UP
        self._can_share = True  # the broker has shared subscriptions
        self._is_first = True  # the next session is the first of this process
        self._is_leaving = False  # nothing more is subscribed to

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

    def connected(self, session_present: bool, can_share: bool) -> bool:
        """A CONNACK came. True if nothing has to be waited for, else `confirmed` says when that is so."""
        self._can_share = can_share
        # Also if the broker has the session: filters may have changed meanwhile, and subscribing twice is harmless.
        self._awaited = self._subscribe(self._subscriptions.needed())
        if session_present:
            self._unsubscribe(self._subscriptions.unneeded())
            if self._is_first and can_share:
                self._unsubscribe(self._subscriptions.unshared())
            self._awaited = set()
        else:
            self._subscriptions.removed(self._subscriptions.unneeded())
        self._is_first = False
        return not self._awaited

    def disconnected(self) -> None:
        """The connection is lost."""
        self._awaited.clear()

    def leave(self) -> None:
        """Unsubscribe from everything, and subscribe to nothing more."""
        self._is_leaving = True
        if self._session.is_connected:
            self._unsubscribe(self._subscriptions.needed())

    def confirmed(self, packet: mqtt5.SubAckPacket) -> bool:
        """A SUBACK came. True if it was the last that had to be waited for."""
        patterns = self._session.answered(packet.packet_id) or ()
        for pattern, reason in zip_longest(patterns, packet.reason_codes[: len(patterns)]):
            if reason is None:
                self._refuse(pattern, "the broker's SUBACK has no answer for it")
            elif int(reason) >= FAILURE:
                self._refuse(pattern, named(reason) + (f": {NO_SHARING}" if int(reason) == _CANNOT_SHARE else ""))
            else:
                self._subscriptions.granted(pattern)
        if packet.packet_id not in self._awaited:
            return False
        self._awaited.discard(packet.packet_id)
        return not self._awaited

    def removed(self, packet: mqtt5.UnsubAckPacket) -> None:
        """An UNSUBACK came."""
        self._subscriptions.removed(self._session.answered(packet.packet_id) or ())

    def _subscribe(self, patterns: Sequence[str]) -> set[int]:
        if self._is_leaving:
            return set()
        if not self._can_share:
            for pattern in filter(is_shared, patterns):
                self._refuse(pattern, NO_SHARING)
            patterns = [pattern for pattern in patterns if not is_shared(pattern)]
        most = self._session.max_packet_bytes
        for pattern in patterns:
            if is_too_long(pattern, most):
                self._refuse(pattern, f"it takes packets of at most {most} bytes, and a SUBSCRIBE for this filter is longer")
        packet_ids = set()
        for batch in batches(patterns, most):
            packet_id = self._session.request(batch)
            packet_ids.add(packet_id)
            self._write(mqtt5.SubscribePacket(packet_id, [subscribe_to(pattern) for pattern in batch]).write())
        return packet_ids

    def _unsubscribe(self, patterns: Sequence[str]) -> None:
        for batch in batches(patterns, self._session.max_packet_bytes):
            self._write(mqtt5.UnsubscribePacket(self._session.request(batch), list(batch)).write())

    def _refuse(self, pattern: str, reason: str) -> None:
        self.refused += 1
        self._subscriptions.refused(pattern, reason)
        logger.warning("subscription_refused endpoint=%s filter=%r reason=%s", self._name, pattern, reason)
