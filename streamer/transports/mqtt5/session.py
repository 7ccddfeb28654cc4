"""The state of one MQTT session, without I/O: messages sent and not confirmed, messages received and not acknowledged.

The rules of MQTT 5.0 that the session keeps:

- [MQTT-4.4.0-1] an unacknowledged PUBLISH is sent again only after a reconnect, with DUP and its old packet id, and only
  if the broker still has the session.
- [MQTT-4.6.0-1] PUBLISHes are sent again in the order in which they were first sent.
- [MQTT-4.6.0-2] PUBACKs go out in the order of the PUBLISHes: a later acknowledgement waits for the earlier ones.
- [MQTT-3.3.4-7], [MQTT-3.3.4-9] there are never more unacknowledged PUBLISHes than the receiver's Receive Maximum.
- [MQTT-2.2.1-3] a packet id that is in use is not used again.

`culprit` finds the message because of which the broker ends connections, or that it never confirms. That message is given
up, although [MQTT-4.4.0-1] demands that it is sent again: it would block all others. After a connection that was ended
because of an overdue message, expired messages are not sent again either, and [MQTT-4.6.0-1] is kept within each flow only.

The caller writes what `take_outgoing` and `take_acknowledgements` return.
"""

import struct
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, takewhile
from typing import Final

from streamer.transports.base import Done, Parcel, Received
from streamer.transports.errors import LinkLostError, MayHaveArrivedError, PermanentError, SendError
from streamer.transports.mqtt5.culprit import Search
from streamer.transports.mqtt5.pressure import Pressure
from streamer.transports.mqtt5.wire import puback_error
from streamer.transports.results import ResultRuns
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode

Encode = Callable[[UMessage, int, bool], bytes]
"""Message, packet id, duplicate → PUBLISH. Raises ValueError for a message that cannot be addressed or written."""

Sent = tuple[Parcel, Done]
"""A parcel, and the function to which its result is reported."""

MAX_PACKET_ID: Final = 65_535
MAX_UNCONFIRMED: Final = 50_000
"""The largest window: it leaves packet ids for subscriptions."""

_MAX_REQUESTS: Final = 100
"""SUBSCRIBEs and UNSUBSCRIBEs without an answer."""

_OLDEST: Final = 16  # how many of the oldest messages are noted when a later one is confirmed
_ENDS = "the broker ends the connection each time that it gets this message"
_CONFIRMS_NOT = "the broker never confirms this message, while it confirms others; it may have arrived"

_PUBACK: Final = 0x4002_0000  # the whole packet with its packet id: success has no reason code


class Skipped:
    """A PUBLISH that is not delivered, but acknowledged in order. ``is_due``: its PUBACK may be written."""

    __slots__ = ("is_due", "packet_id", "size")

    def __init__(self, packet_id: int) -> None:
        self.packet_id = packet_id
        self.size = 0
        self.is_due = True


class MqttReceived(Received):
    """A message received with QoS 1. `acknowledge` leads to its PUBACK, if the connection is still the same."""

    source_retransmits = True

    __slots__ = ("_epoch", "_session", "is_due", "packet_id", "size")

    def __init__(self, message: UMessage, redelivered: bool, packet_id: int, session: "Session", wire_bytes: int) -> None:
        Received.__init__(self, message, redelivered, wire_bytes)  # `super` costs more
        self.packet_id = packet_id
        self.size = message.size
        self.is_due = False
        self._session = session
        self._epoch = session.epoch

    def acknowledge(self) -> None:
        self.is_due = True
        session = self._session
        unacknowledged = session.unacknowledged
        # PUBACKs are written from the head on. On a new connection (another epoch) the broker redelivers the message.
        if self._epoch == session.epoch and unacknowledged and unacknowledged[0] is self:
            session.on_acknowledgeable()


class OneConnectionReceived(MqttReceived):
    """A message of a session that ends with its connection: the broker does not redeliver it after that."""

    source_retransmits = False

    __slots__ = ()


class Session:
    """Both directions of one session. ``window`` is our own limit for unconfirmed messages, `MAX_UNCONFIRMED` at most;
    ``is_persistent``: the broker keeps the session after the end of a connection.
    """

    def __init__(
        self,
        window: int,
        encode: Encode,
        on_acknowledgeable: Callable[[], None],
        is_persistent: bool = True,
        receive_maximum: int = MAX_PACKET_ID,
    ) -> None:
        """``on_acknowledgeable`` is called when `take_acknowledgements` has PUBACKs to return.

        ``receive_maximum`` is the one in our CONNECT.
        """
        self._receive_maximum = receive_maximum
        self.pressure = Pressure(receive_maximum)
        self.is_persistent = is_persistent  # whether the broker keeps unacknowledged messages when the connection ends
        self.is_connected = False
        self.is_writable = True  # False: the socket's buffer is full, so no message is sent
        self.epoch = 0
        self._window = window
        self._quota = self._window  # the send quota: the smaller of our window and the broker's receive maximum
        self.limit = self._quota  # 1 during a search
        self.search = Search()
        self._culprit: tuple[Sent, str] | None = None  # the culprit, and the text of its error
        self._order: deque[int] = deque()  # packet ids of `_unconfirmed` in order, to find the first one quickly
        self._passed_over: set[int] = set()  # packet ids of the oldest messages when a later one was confirmed
        self.has_timed_out = False  # the connection is being ended because the oldest message was not confirmed in time
        self._was_timed_out = False
        self.is_alive = False  # with `has_timed_out`: the broker has sent packets meanwhile
        self.max_packet_bytes: int | None = None
        self.unacknowledged: deque[MqttReceived | Skipped] = deque()  # received, without a PUBACK yet; oldest first
        self.unacknowledged_bytes = 0  # memory of the messages in `unacknowledged`
        self.acknowledged = 0  # the number of PUBACKs returned so far
        self.on_acknowledgeable = on_acknowledgeable
        self._encode = encode
        self._unconfirmed: dict[int, Sent] = {}  # in the order of sending
        self._resend: deque[tuple[int, Sent]] = deque()  # sent on the last connection, not yet on this one
        self._in_use: set[int] = set()  # packet ids of `_resend` and `_requests`
        self._unsent: deque[Sent] = deque()  # submitted, and never sent
        self._outgoing: list[bytes] = []
        self._results = ResultRuns()
        self._requests: dict[int, list[str]] = {}
        self._late_requests: dict[int, list[str]] = {}  # requests that were given up; their answers may still come
        self._last_id = 0

    # -- connection -------------------------------------------------------------------------------------------------

    def connected(self, session_present: bool, receive_maximum: int, max_packet_bytes: int | None) -> None:
        """Begin a connection after a CONNACK.

        If the broker has the session, unconfirmed messages are sent again. If not, they are reported as lost, except during
        a search, when they are sent again as well: in another order, other messages would be taken for the suspects.
        """
        self._quota = min(self._window, receive_maximum)
        self.limit = self.search.connected(self._quota)
        self.max_packet_bytes = max_packet_bytes
        if self._has_overdue():
            self._put_overdue_last()
        if session_present:
            self.is_connected = True
            self.drain()
        elif self.search.suspects or self._has_overdue():
            self._send_anew()
            self.is_connected = True
            self.drain()
        else:
            self.lose_all()
            self.is_connected = True

    def disconnected(self, ended_after_s: float | None = None) -> None:
        """End the connection. Unconfirmed messages wait for the next one, except for a culprit.

        ``ended_after_s``: how long the connection lived, if the broker ended it; else None.
        """
        if ended_after_s is not None:
            sent = [parcel.message.id for parcel, _ in self._unconfirmed.values()]
            if self.search.ended(sent, len(self._resend), ended_after_s):
                self._culprit = self._unconfirmed.pop(next(iter(self._unconfirmed))), _ENDS
        elif self.has_timed_out and self._unconfirmed:
            sent = [parcel.message.id for parcel, _ in self._unconfirmed.values()]
            passed_over = [
                each for packet_id, each in zip(self._unconfirmed, sent, strict=True) if packet_id in self._passed_over
            ]
            if self.search.timed_out(sent[0], passed_over, self.is_alive):
                self._culprit = self._unconfirmed.pop(next(iter(self._unconfirmed))), _CONFIRMS_NOT
        self._was_timed_out |= self.has_timed_out
        self.has_timed_out = False
        self._passed_over.clear()
        self._order.clear()
        self.is_connected = False
        self.is_writable = True
        self.pressure = Pressure(self._receive_maximum)
        self.epoch += 1
        self.unacknowledged.clear()
        self.unacknowledged_bytes = 0
        self._in_use.difference_update(self._requests, self._late_requests)
        self._requests.clear()
        self._late_requests.clear()
        self._outgoing.clear()
        # Messages that were not sent again yet come after those that were, because they are younger.
        self._resend.extendleft(reversed(self._unconfirmed.items()))
        self._in_use.update(self._unconfirmed)
        self._unconfirmed.clear()

    def report_culprit(self) -> bool:
        """Report the culprit of `disconnected`, if any, as failed. Return whether there was one. Call this when DOWN."""
        if self._culprit is None:
            return False
        ((parcel, done), text), self._culprit = self._culprit, None
        done((parcel,), PermanentError(UCode.INTERNAL, text))
        return True

    def give_back_expired(self, now_ms: int, now_s: float) -> None:
        """Report expired messages as lost before a new connection: the unsent ones, and after a time-out also sent ones.

        After any other end of a connection, sent messages are sent again, as MQTT demands.
        """
        expired: list[Sent] = []
        resend: deque[tuple[int, Sent]] = deque()
        unsent: deque[Sent] = deque()
        suspects = self.search.suspects  # these are the first messages
        position = 0
        for packet_id, sent in self._resend:
            if self._was_timed_out and sent[0].message.is_expired(now_ms, now_s - sent[0].since_s):
                self._in_use.discard(packet_id)
                expired.append(sent)
                self.search.suspects -= position < suspects
            else:
                resend.append((packet_id, sent))
            position += 1
        for sent in self._unsent:
            if sent[0].message.is_expired(now_ms, now_s - sent[0].since_s):
                expired.append(sent)
                self.search.suspects -= position < suspects
            else:
                unsent.append(sent)
            position += 1
        self._was_timed_out = False
        if expired:
            self._resend, self._unsent = resend, unsent
            _lose(expired, LinkLostError())

    def _has_overdue(self) -> bool:
        return any(self.search.is_overdue(parcel.message.id) for _, (parcel, _) in self._resend)

    def _put_overdue_last(self) -> None:
        """Move the flows of overdue messages behind the others, to find out whether the broker confirms those."""
        flows = {_flow(sent) for _, sent in self._resend if self.search.is_overdue(sent[0].message.id)}
        self._resend = deque(sorted(self._resend, key=lambda item: _flow(item[1]) in flows))  # sorting keeps their order

    def resume_search(self) -> None:
        """Send the next suspect: the connection has stood without traffic for long enough."""
        self.search.is_suspended = False
        self.drain()

    def _send_anew(self) -> None:
        """Count sent messages as unsent, ahead of the others, because the broker has lost the session."""
        self._unsent.extendleft(reversed([sent for _, sent in self._resend]))
        self._resend.clear()
        self._in_use = set(self._requests)

    def lose_all(self) -> None:
        """Report all unconfirmed messages (as possibly arrived) and all unsent ones as lost, in the order of sending."""
        sent = list(self._unconfirmed.values())
        sent += [each for _, each in self._resend]
        unsent = list(self._unsent)
        self._unconfirmed.clear()
        self._order.clear()
        self._resend.clear()
        self._in_use = set(self._requests)
        self._unsent.clear()
        _lose(sent, MayHaveArrivedError())
        _lose(unsent, LinkLostError())

    # -- sending ----------------------------------------------------------------------------------------------------

    @property
    def unconfirmed(self) -> int:
        """The number of messages that were sent on this connection and are not confirmed."""
        return len(self._unconfirmed)

    @property
    def is_idle(self) -> bool:
        """Whether no message or request waits for an answer, in either direction, or to be sent."""
        waiting = self._unconfirmed or self._resend or self._unsent or self._requests or self.unacknowledged
        return not waiting

    @property
    def head(self) -> Sent | None:
        """The oldest unconfirmed message, None if there is none. It changes as long as the broker confirms messages."""
        return next(iter(self._unconfirmed.values()), None)

    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        """Send parcels in order, as far as the quota allows; the others wait. The caller then calls `take_outgoing`."""
        if self._unsent or self._resend or not self.is_writable or self.search.is_suspended:
            self._unsent.extend([(parcel, done) for parcel in parcels])
            return
        unconfirmed = self._unconfirmed
        free = self.limit - len(unconfirmed)
        refused: list[tuple[Parcel, SendError]] = []
        for index, parcel in enumerate(parcels):
            if free <= 0:
                self._unsent.extend([(later, done) for later in parcels[index:]])
                break
            packet_id = self._next_id()
            error = self._write(packet_id, (parcel, done), False)
            if error is None:
                free -= 1
            else:
                refused.append((parcel, error))
        for parcel, error in refused:
            done((parcel,), error)

    def drain(self) -> None:
        """Send waiting messages, as far as the quota allows: first those that are sent again, then unsent ones."""
        if not self.is_connected or not self.is_writable or self.search.is_suspended:
            return
        refused: list[tuple[Parcel, Done, SendError]] = []
        while self._resend and len(self._unconfirmed) < self.limit:
            packet_id, (parcel, done) = self._resend.popleft()
            self._in_use.discard(packet_id)
            error = self._write(packet_id, (parcel, done), True)
            if error is not None:
                refused.append((parcel, done, error))
        while self._unsent and not self._resend and len(self._unconfirmed) < self.limit:
            parcel, done = self._unsent.popleft()
            error = self._write(self._next_id(), (parcel, done), False)
            if error is not None:
                refused.append((parcel, done, error))
        for parcel, done, error in refused:
            done((parcel,), error)

    def on_puback(self, packet_id: int, reason: int) -> None:
        """Record the result of a PUBACK. The caller calls `report_results` after the last packet of the same read."""
        sent = self._unconfirmed.pop(packet_id, None)
        if sent is not None:  # else the broker's PUBACK is wrong, and harmless
            if self._order[0] == packet_id:
                self._order.popleft()
            else:
                self._pass_over(packet_id)
            if self._passed_over:
                self._forget_passed(packet_id)
            self._results.add(sent[1], sent[0], puback_error(reason) if reason else None)
            search = self.search
            search.is_fruitful = True
            if search.suspects:
                self.limit = search.confirmed(self._quota)

    def _pass_over(self, packet_id: int) -> None:
        """Note the oldest messages that were sent before a confirmed one and are unconfirmed."""
        order, unconfirmed = self._order, self._unconfirmed
        earlier = takewhile(packet_id.__ne__, islice(order, 2 * _OLDEST))
        self._passed_over.update(each for each in earlier if each in unconfirmed)
        if len(order) > len(unconfirmed) + _OLDEST:  # it still has the ids of confirmed messages
            self._order = deque(unconfirmed)

    def _forget_passed(self, packet_id: int) -> None:
        """Remove a confirmed message from those that were passed over."""
        self._passed_over.discard(packet_id)
        order, unconfirmed = self._order, self._unconfirmed
        while order and order[0] not in unconfirmed:
            order.popleft()

    def report_results(self) -> None:
        """Report the results of PUBACKs, and send messages that had to wait."""
        if self._unsent or self._resend:
            self.drain()
        self._results.report()

    @property
    def has_outgoing(self) -> bool:
        """Whether `take_outgoing` has packets to return."""
        return len(self._outgoing) > 0

    def take_outgoing(self) -> list[bytes]:
        """Return the packets to write now, in order. The caller writes them."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def _write(self, packet_id: int, sent: Sent, duplicate: bool) -> SendError | None:
        try:
            data = self._encode(sent[0].message, packet_id, duplicate)
        except (ValueError, OverflowError) as exc:
            return PermanentError(UCode.INVALID_ARGUMENT, str(exc))
        if self.max_packet_bytes is not None and len(data) > self.max_packet_bytes:
            detail = f"a packet of {len(data)} bytes; the broker takes {self.max_packet_bytes}"
            return PermanentError(UCode.RESOURCE_EXHAUSTED, detail)
        self._unconfirmed[packet_id] = sent
        self._order.append(packet_id)
        self._outgoing.append(data)
        sent[0].wire_bytes += len(data)
        return None

    def _next_id(self) -> int:
        packet_id = self._last_id
        for _ in range(MAX_PACKET_ID):
            packet_id = packet_id + 1 if packet_id < MAX_PACKET_ID else 1
            if packet_id not in self._unconfirmed and packet_id not in self._in_use:
                self._last_id = packet_id
                return packet_id
        raise AssertionError("every packet id is in use: the window and the requests leave some")

    # -- subscriptions ----------------------------------------------------------------------------------------------

    def request(self, patterns: Sequence[str]) -> int:
        """Return a packet id for a SUBSCRIBE or UNSUBSCRIBE of these filters, if `may_request`. `answered` frees it."""
        packet_id = self._next_id()
        self._requests[packet_id] = list(patterns)
        self._in_use.add(packet_id)
        return packet_id

    def answered(self, packet_id: int) -> list[str] | None:
        """Free the packet id of a SUBACK or UNSUBACK. Return the filters of its request; None if there was none."""
        patterns = self._requests.pop(packet_id, None) or self._late_requests.pop(packet_id, None)
        if patterns is not None:
            self._in_use.discard(packet_id)
        return patterns

    def give_up_requests(self) -> list[str]:
        """Stop waiting for outstanding answers, and return the filters of their requests.

        `answered` still accepts these answers, but no longer those of requests that were given up before.
        """
        self._in_use.difference_update(self._late_requests)
        self._late_requests, self._requests = self._requests, {}
        return [pattern for patterns in self._late_requests.values() for pattern in patterns]

    @property
    def may_request(self) -> bool:
        """Whether few enough answers are outstanding for another `request`."""
        return len(self._requests) < _MAX_REQUESTS

    @property
    def has_requests(self) -> bool:
        """Whether an answer is outstanding."""
        return bool(self._requests)

    @property
    def oldest_request(self) -> Sequence[str] | None:
        """The filters of the oldest unanswered request, to be compared by identity."""
        return next(iter(self._requests.values()), None)

    # -- receiving --------------------------------------------------------------------------------------------------

    def receive(self, message: UMessage, redelivered: bool, packet_id: int, wire_bytes: int = 0) -> MqttReceived:
        """Record a message that came with QoS 1, in a packet of ``wire_bytes``, and return it as a `Received`."""
        if self.is_persistent:
            received = MqttReceived(message, redelivered, packet_id, self, wire_bytes)
        else:
            received = OneConnectionReceived(message, redelivered, packet_id, self, wire_bytes)
        self.unacknowledged.append(received)
        self.unacknowledged_bytes += received.size
        return received

    def skip(self, packet_id: int) -> None:
        """Record a PUBLISH with QoS 1 that is not a uProtocol message, to be acknowledged in order."""
        self.unacknowledged.append(Skipped(packet_id))
        if len(self.unacknowledged) == 1:
            self.on_acknowledgeable()

    def take_acknowledgements(self) -> bytes:
        """Return the PUBACKs that can be written now, up to the first unacknowledged message. The caller writes them."""
        unacknowledged = self.unacknowledged
        packets: list[int] = []
        size = 0
        while unacknowledged and unacknowledged[0].is_due:
            oldest = unacknowledged.popleft()
            size += oldest.size
            packets.append(_PUBACK | oldest.packet_id)
        self.unacknowledged_bytes -= size
        self.acknowledged += len(packets)
        return struct.pack(f">{len(packets)}I", *packets)


def _flow(sent: Sent) -> tuple[object, object]:
    attributes = sent[0].message.attributes
    return attributes.source, attributes.sink


def _lose(lost: Sequence[Sent], error: LinkLostError) -> None:
    """Report parcels as lost with the link, in this order."""
    results = ResultRuns()
    for parcel, done in lost:
        results.add(done, parcel, error)
    results.report()
