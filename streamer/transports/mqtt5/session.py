"""The state of one MQTT session, without I/O: messages sent and not confirmed, messages received and not acknowledged.

The rules that it keeps (MQTT 5.0):

- [MQTT-4.4.0-1] an unacknowledged PUBLISH is sent again only after a reconnect, with DUP and its old packet id, and only
  if the broker still has the session.
- [MQTT-4.6.0-1] they are sent again in the order in which they were first sent.
- [MQTT-4.6.0-2] PUBACKs go out in the order of the PUBLISHes: a later acknowledgement waits for the earlier ones.
- [MQTT-3.3.4-7], [MQTT-3.3.4-9] there are never more unacknowledged PUBLISHes than the receiver's Receive Maximum.
- [MQTT-2.2.1-3] a packet id that is in use is not used again.

Which message the broker ends connections over, or never confirms, is found by `culprit`. That one is given up, although
[MQTT-4.4.0-1] wants it sent again: nothing else would get through. After a connection that was ended because of an overdue
message, what has expired is not sent again either, and [MQTT-4.6.0-1] is kept within each flow only.

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
"""A parcel, and the function that is told its result."""

MAX_PACKET_ID: Final = 65_535
MAX_UNCONFIRMED: Final = 50_000
"""The largest window: it leaves packet ids for subscriptions."""

_MAX_REQUESTS: Final = 100
"""SUBSCRIBEs and UNSUBSCRIBEs without an answer."""

_OLDEST: Final = 16  # of the messages that are passed over: how many are noted
_ENDS = "the broker ends the connection each time that it gets this message"
_CONFIRMS_NOT = "the broker never confirms this message, while it confirms others; it may have arrived"

_PUBACK: Final = 0x4002_0000  # the whole packet with its packet id: success has no reason code


class Skipped:
    """A PUBLISH that is not delivered, to be acknowledged in its turn. ``is_due``: its PUBACK may go out."""

    __slots__ = ("is_due", "packet_id", "size")

    def __init__(self, packet_id: int) -> None:
        self.packet_id = packet_id
        self.size = 0
        self.is_due = True


class MqttReceived(Received):
    """A message that came with QoS 1. `acknowledge` leads to its PUBACK, if the connection is still the same."""

    source_retransmits = True

    __slots__ = ("_epoch", "_session", "is_due", "packet_id", "size")

    def __init__(self, message: UMessage, redelivered: bool, packet_id: int, session: "Session") -> None:
        Received.__init__(self, message, redelivered)  # `super` costs more
        self.packet_id = packet_id
        self.size = message.size
        self.is_due = False
        self._session = session
        self._epoch = session.epoch

    def acknowledge(self) -> None:
        self.is_due = True
        session = self._session
        unacknowledged = session.unacknowledged
        # Only the head can be acknowledged. On a new connection (another epoch) the broker sends the message again.
        if self._epoch == session.epoch and unacknowledged and unacknowledged[0] is self:
            session.on_acknowledgeable()


class OneConnectionReceived(MqttReceived):
    """One of a session that ends with its connection: the broker does not send it again after that."""

    source_retransmits = False

    __slots__ = ()


class Session:
    """Both directions of one session. ``window`` is our own limit for unconfirmed messages, `MAX_UNCONFIRMED` at most;
    ``is_persistent``: the broker keeps the session while we are away.
    """

    def __init__(
        self,
        window: int,
        encode: Encode,
        on_acknowledgeable: Callable[[], None],
        is_persistent: bool = True,
        receive_maximum: int = MAX_PACKET_ID,
    ) -> None:
        """``on_acknowledgeable`` is called when `take_acknowledgements` has something to return.

        ``receive_maximum`` is what we tell the broker.
        """
        self._receive_maximum = receive_maximum
        self.pressure = Pressure(receive_maximum)
        self.is_persistent = is_persistent  # whether the broker keeps what is unacknowledged when the connection ends
        self.is_connected = False
        self.is_writable = True  # False: the socket's buffer is full, so nothing more is sent
        self.epoch = 0
        self._window = window
        self._quota = self._window  # the send quota: the smaller of our window and the broker's receive maximum
        self.limit = self._quota  # 1 during a search
        self.search = Search()
        self._culprit: tuple[Sent, str] | None = None  # and what the broker does
        self._order: deque[int] = deque()  # packet ids of `_unconfirmed`: the first of many is found at once
        self._passed_over: set[int] = set()  # packet ids of the oldest messages when a later one was confirmed
        self.has_timed_out = False  # the connection is being ended because the oldest message was not confirmed in time,
        self._was_timed_out = False
        self.is_alive = False  # although the broker has sent something meanwhile
        self.max_packet_bytes: int | None = None
        self.unacknowledged: deque[MqttReceived | Skipped] = deque()  # received, without a PUBACK yet; oldest first
        self.unacknowledged_bytes = 0  # memory that the messages of `unacknowledged` take
        self.acknowledged = 0  # how many ever were
        self.on_acknowledgeable = on_acknowledgeable
        self._encode = encode
        self._unconfirmed: dict[int, Sent] = {}  # in the order of sending
        self._resend: deque[tuple[int, Sent]] = deque()  # sent on the last connection, not yet on this one
        self._in_use: set[int] = set()  # packet ids of `_resend` and `_requests`
        self._unsent: deque[Sent] = deque()  # submitted, and never sent
        self._outgoing: list[bytes] = []
        self._results = ResultRuns()
        self._requests: dict[int, list[str]] = {}
        self._late_requests: dict[int, list[str]] = {}  # that were given up; their answers may still come
        self._last_id = 0

    # -- connection -------------------------------------------------------------------------------------------------

    def connected(self, session_present: bool, receive_maximum: int, max_packet_bytes: int | None) -> None:
        """A CONNACK came. With a session, everything unconfirmed is sent again; without one, it is given back.

        But not during a search: in another order, others would be taken for the suspects.
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
        """The connection is lost. What is unconfirmed waits for the next one, but for a culprit.

        ``ended_after_s``: how long it lived, if it was the broker that ended it.
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
        # What was not yet sent again comes after what was: it is younger.
        self._resend.extendleft(reversed(self._unconfirmed.items()))
        self._in_use.update(self._unconfirmed)
        self._unconfirmed.clear()

    def report_culprit(self) -> bool:
        """Whether `disconnected` has found one: it fails. Not before the link counts as down, or others would follow it."""
        if self._culprit is None:
            return False
        ((parcel, done), text), self._culprit = self._culprit, None
        done((parcel,), PermanentError(UCode.INTERNAL, text))
        return True

    def give_back_expired(self, now_ms: int) -> None:
        """Give back what has expired, before a new connection: what was never sent, and the rest after a time-out.

        After any other end of a connection the rest is sent again, as MQTT wants it: it may only lack its confirmation.
        """
        expired: list[Sent] = []
        resend: deque[tuple[int, Sent]] = deque()
        unsent: deque[Sent] = deque()
        suspects = self.search.suspects  # they come first
        position = 0
        for packet_id, sent in self._resend:
            if self._was_timed_out and sent[0].message.is_expired(now_ms):
                self._in_use.discard(packet_id)
                expired.append(sent)
                self.search.suspects -= position < suspects
            else:
                resend.append((packet_id, sent))
            position += 1
        for sent in self._unsent:
            if sent[0].message.is_expired(now_ms):
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
        """Put the flows of overdue messages behind the others, so that it shows whether the broker confirms those."""
        flows = {_flow(sent) for _, sent in self._resend if self.search.is_overdue(sent[0].message.id)}
        self._resend = deque(sorted(self._resend, key=lambda item: _flow(item[1]) in flows))  # sorting keeps their order

    def resume_search(self) -> None:
        """The connection has stood for a while with nothing sent: go on with the search."""
        self.search.is_suspended = False
        self.drain()

    def _send_anew(self) -> None:
        """The broker knows nothing of what was sent to it: that is new, and comes before the rest."""
        self._unsent.extendleft(reversed([sent for _, sent in self._resend]))
        self._resend.clear()
        self._in_use = set(self._requests)

    def lose_all(self) -> None:
        """Give back everything unconfirmed, which the broker may have passed on, and unsent, in the order of sending."""
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
        """How many messages were sent on this connection and are not confirmed."""
        return len(self._unconfirmed)

    @property
    def head(self) -> Sent | None:
        """The oldest unconfirmed message, None if there is none. As long as it is the same, nothing moves."""
        return next(iter(self._unconfirmed.values()), None)

    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        """Send in order, as far as the quota allows; the rest waits. Call `take_outgoing` afterwards."""
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
        """Send what waits, as far as the quota allows: first what is sent again, then what was never sent."""
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
        """A PUBACK came. Its result is told by `report_results`, after the last packet of the same read."""
        sent = self._unconfirmed.pop(packet_id, None)
        if sent is not None:  # otherwise it is the broker's mistake, and harmless
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
        """A message was confirmed before others that were sent earlier. Note the oldest of those."""
        order, unconfirmed = self._order, self._unconfirmed
        earlier = takewhile(packet_id.__ne__, islice(order, 2 * _OLDEST))
        self._passed_over.update(each for each in earlier if each in unconfirmed)
        if len(order) > len(unconfirmed) + _OLDEST:  # what was confirmed in between is still there
            self._order = deque(unconfirmed)

    def _forget_passed(self, packet_id: int) -> None:
        """A message was confirmed on a connection on which some were passed over: it is none of them any more."""
        self._passed_over.discard(packet_id)
        order, unconfirmed = self._order, self._unconfirmed
        while order and order[0] not in unconfirmed:
            order.popleft()

    def report_results(self) -> None:
        """Tell the results that PUBACKs brought, and send what had to wait."""
        if self._unsent or self._resend:
            self.drain()
        self._results.report()

    @property
    def has_outgoing(self) -> bool:
        """Whether `take_outgoing` returns anything."""
        return len(self._outgoing) > 0

    def take_outgoing(self) -> list[bytes]:
        """The packets to write now, in order."""
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
        """The packet id for a SUBSCRIBE or UNSUBSCRIBE of these filters, if `may_request`. `answered` frees it."""
        packet_id = self._next_id()
        self._requests[packet_id] = list(patterns)
        self._in_use.add(packet_id)
        return packet_id

    def answered(self, packet_id: int) -> list[str] | None:
        """A SUBACK or UNSUBACK came: the filters that it is about, None if nothing was requested."""
        patterns = self._requests.pop(packet_id, None) or self._late_requests.pop(packet_id, None)
        if patterns is not None:
            self._in_use.discard(packet_id)
        return patterns

    def give_up_requests(self) -> list[str]:
        """Wait no more for the answers that are outstanding; the filters that they are about. `answered` still takes them.

        Those that were given up before are forgotten.
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
        """The filters of the request whose answer has been outstanding for longest. For comparing which one it is."""
        return next(iter(self._requests.values()), None)

    # -- receiving --------------------------------------------------------------------------------------------------

    def receive(self, message: UMessage, redelivered: bool, packet_id: int) -> MqttReceived:
        """A message came with QoS 1."""
        if self.is_persistent:
            received = MqttReceived(message, redelivered, packet_id, self)
        else:
            received = OneConnectionReceived(message, redelivered, packet_id, self)
        self.unacknowledged.append(received)
        self.unacknowledged_bytes += received.size
        return received

    def skip(self, packet_id: int) -> None:
        """A PUBLISH that is not a uProtocol message came with QoS 1: acknowledge it in its turn."""
        self.unacknowledged.append(Skipped(packet_id))
        if len(self.unacknowledged) == 1:
            self.on_acknowledgeable()

    def take_acknowledgements(self) -> bytes:
        """The PUBACKs to write now: those before which everything is acknowledged."""
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
    """Report these as lost with the link, in this order."""
    results = ResultRuns()
    for parcel, done in lost:
        results.add(done, parcel, error)
    results.report()
