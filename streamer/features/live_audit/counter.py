"""Counts messages by class and minute of their ids: what each endpoint took in, and what became of it.

A message adds its id to the bytes of a `Cell`; `MessageCounter.closed` makes sums of them. A message that comes later opens
its minute again: that makes another row, which adds up with the earlier ones. What has no room, and ids more than a day
away from the clock, are only counted, as *others*.
"""

from collections.abc import Callable, Sequence
from typing import Final

from streamer.delivery.inbound.step import InboundStep
from streamer.delivery.lanes.lane import MAY_HAVE_ARRIVED, RESTORED, Delivery, Lane
from streamer.delivery.observers import OutcomeObserver
from streamer.features.live_audit import sums
from streamer.features.live_audit.sums import ID_BYTES, MINUTE_MS, FlowClass, Row, Sum
from streamer.routing.outcome import Failure, Outcome
from streamer.routing.table import FlowKey
from streamer.uprotocol.message import Attributes, UMessage, authority_only
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, USTREAMER

ROWS: Final = 0x8003  # the resource of core.ustreamer that rows come from; they are not counted, or they would never end
MAX_MINUTES: Final = 20_000  # open minutes of classes
MAX_OF_SOURCE: Final = 2_000  # those of one source authority
_MAX_REMEMBERED: Final = 10_000
_EVER: Final = b"\xff" * 17
_NOT_OURS: Final = (Outcome.UNWANTED, Outcome.LOCAL)
_KINDS: Final = {name: number for number, name in enumerate(sums.KINDS)}


class Cell:
    """The ids of one class, minute, endpoint and kind: those from ``low`` up to ``high``; an empty ``high``: closed."""

    __slots__ = ("changed_s", "folded", "high", "ids", "low", "messages")

    def __init__(self, low: bytes, high: bytes, now_s: float = 0.0) -> None:
        self.low = low
        self.high = high
        self.changed_s = now_s
        self.ids = bytearray()
        self.messages = 0
        self.folded = 0


class MessageCounter(OutcomeObserver):
    """The open minutes of one streamer. ``fold`` returns the XOR of encrypted ids (`sums.IdCipher.fold`).

    ``minutes`` has the cells of each class and minute by endpoint and kind.
    """

    def __init__(self, fold: Callable[[bytearray], int]) -> None:
        self.others = 0
        self.minutes: dict[tuple[FlowClass, int], dict[tuple[str, int], Cell]] = {}
        self._fold = fold
        self._of_source: dict[str, int] = {}
        self._of_lane: dict[Lane, Cell] = {}
        self._uncounted = Cell(b"", _EVER)
        self._others = Cell(b"", _EVER)

    def delivered(self, deliveries: Sequence[Delivery], now_s: float, now_ms: int) -> None:
        """Count deliveries that the destination has confirmed."""
        of_lane = self._of_lane
        for delivery in deliveries:
            lane = delivery.lane
            message_id = delivery.message.id
            cell = of_lane.get(lane)
            if cell is None or not cell.low <= message_id < cell.high:
                cell = self.cell(lane.queue.target, sums.DELIVERED, lane.key, message_id, now_s, now_ms)
                of_lane[lane] = cell
            cell.ids += message_id

    def sent(self, delivery: Delivery, now_s: float, now_ms: int) -> bytes:
        """Count a delivery that nothing confirms, the first time that it is sent."""
        if not (delivery.history & RESTORED and delivery.history & MAY_HAVE_ARRIVED):
            self.delivered((delivery,), now_s, now_ms)
        return b""

    def failed(self, delivery: Delivery, failure: Failure, now_s: float, now_ms: int) -> None:
        """Count a delivery that has failed."""
        kind = sums.OTHER if delivery.history & MAY_HAVE_ARRIVED else _KINDS.get(failure.outcome.value, sums.OTHER)
        self._add(delivery.message, delivery.lane.queue.target, kind, now_s, now_ms)

    def never_queued(
        self, message: UMessage, names: tuple[str, str, str], failure: Failure, now_s: float, now_ms: int
    ) -> None:
        """Count a message that never became a delivery, at the endpoint that it was for, or else that it came from."""
        if failure.outcome not in _NOT_OURS:
            self._add(message, names[2] or names[1], _KINDS.get(failure.outcome.value, sums.OTHER), now_s, now_ms)

    def _add(self, message: UMessage, endpoint: str, kind: int, now_s: float, now_ms: int) -> None:
        key = message.attributes.source, message.attributes.sink
        cell = self.cell(endpoint, kind, key, message.id, now_s, now_ms)
        cell.ids += message.id

    def cell(self, endpoint: str, kind: int, key: FlowKey, message_id: bytes, now_s: float, now_ms: int) -> Cell:
        """Return the cell for a message. ``key``: its source and sink."""
        source, sink = key
        if endpoint == LOCAL_ENDPOINT or (source.resource == ROWS and source[1:3] == USTREAMER):
            return self._uncounted
        minute = int.from_bytes(message_id[:6], "big") // MINUTE_MS
        if abs(minute - now_ms // MINUTE_MS) > sums.DAY_MINUTES:
            self.others += 1
            return Cell(b"", b"")  # for this one only: the next message may have a right id
        flow = class_of(source, sink)
        found = self.minutes.get((flow, minute))
        if found is None:
            of_source = self._of_source.get(flow.source, 0)
            if len(self.minutes) >= MAX_MINUTES or of_source >= MAX_OF_SOURCE:
                return self._others
            self._of_source[flow.source] = of_source + 1
            found = self.minutes[flow, minute] = {}
        cell = found.get((endpoint, kind))
        if cell is None:
            low, high = (minute * MINUTE_MS).to_bytes(6, "big"), ((minute + 1) * MINUTE_MS).to_bytes(6, "big")
            cell = found[endpoint, kind] = Cell(low, high, now_s)
        return cell

    def closed(self, now_s: float, quiet_s: float) -> list[Row]:
        """Take out the minutes to which nothing was added for ``quiet_s``, as rows. Called regularly."""
        self.others += len(self._others.ids) // ID_BYTES
        self._others.high = b""  # there may be room now
        self._others = Cell(b"", _EVER)
        self._uncounted.ids = bytearray()
        rows: list[Row] = []
        for (flow, minute), cells in list(self.minutes.items()):
            for cell in cells.values():
                if cell.ids:
                    cell.messages += len(cell.ids) // ID_BYTES
                    cell.folded ^= self._fold(cell.ids)
                    cell.ids = bytearray()
                    cell.changed_s = now_s
            if now_s - max([cell.changed_s for cell in cells.values()]) >= quiet_s:
                del self.minutes[flow, minute]
                self._of_source[flow.source] -= 1
                rows.append((flow, minute, {key: Sum(cell.messages, cell.folded) for key, cell in cells.items()}))
                for cell in cells.values():
                    cell.high = b""
        if rows or len(self._of_lane) > _MAX_REMEMBERED:
            self._of_lane = {}  # nobody needs the cells of closed minutes, nor lanes that are gone
            self._of_source = {source: number for source, number in self._of_source.items() if number}
        return rows


class CountingStep(InboundStep):
    """Counts what one ingress takes in."""

    notes_accepted = True

    def __init__(self, endpoint: str, counter: MessageCounter) -> None:
        self._endpoint = endpoint
        self._counter = counter
        self._of_flow: dict[Attributes, Cell] = {}

    def accepted(self, message: UMessage, now_ms: int, now_s: float) -> None:
        flow, message_id = message.attributes.shared, message.id
        cell = self._of_flow.get(flow)
        if cell is None or not cell.low <= message_id < cell.high:
            if len(self._of_flow) >= _MAX_REMEMBERED:
                self._of_flow = {}
            cell = self._counter.cell(self._endpoint, sums.TAKEN_IN, (flow.source, flow.sink), message_id, now_s, now_ms)
            self._of_flow[flow] = cell
        cell.ids += message_id


def class_of(source: UUri, sink: UUri | None) -> FlowClass:
    """Return the class of the messages with these addresses."""
    if sink is None or authority_only(sink):
        return FlowClass(source.authority, "" if sink is None else sink.authority, *source[1:])
    return FlowClass(source.authority, sink.authority)
