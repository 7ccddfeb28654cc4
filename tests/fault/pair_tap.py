"""What passes on the link of a pair, read at a `tests.fault.proxy.Proxy`: it is signed, not encrypted.

It knows what the standby has been told of each message, and whether it has a copy of everything that waits.
"""

from collections.abc import Iterable

from google.protobuf.message import DecodeError

from streamer.journal.codec import unpack
from streamer.uprotocol.proto import pair_v1_pb2 as pb
from tests.fault.proxy import BACK, FORWARD, Direction

_HANDSHAKE_BYTES = 43 + 16
_TAG_BYTES = 16
_HEAD_BYTES = 4 + _TAG_BYTES
_ID_BYTES = 16


class PairTap:
    """What goes over the link, of the connection that was opened last."""

    def __init__(self) -> None:
        self._named: set[bytes] = set()
        self._rows: dict[int, bytes] = {}
        self.bytes: dict[Direction, int] = {FORWARD: 0, BACK: 0}
        self.recorded: dict[Direction, bytes] = {}
        """What each has said on this connection, from the greeting on, up to `MOST_RECORDED`."""
        self.frames: dict[Direction, bytes] = {}
        """The frame that each has sent last, sealed."""
        self.is_whole = False
        """The standby has said that it has stored everything that waited when the connection began."""
        self._link = 0
        self._buffers: dict[Direction, bytes] = {}
        self._is_greeted: dict[Direction, bool] = {}
        self._last_of_all: dict[Direction, int] = {}

    @property
    def named(self) -> set[bytes]:
        """Ids of messages that were named as settled, over all connections, and that wait in no row of the standby."""
        return self._named - set(self._rows.values())

    def opened(self, link: int) -> None:
        self._link = link
        self._buffers = dict.fromkeys(Direction, b"")
        self._is_greeted = dict.fromkeys(Direction, False)
        self._last_of_all = {}
        self.recorded = dict.fromkeys(Direction, b"")
        self.is_whole = False

    def passed(self, link: int, direction: Direction, data: bytes) -> None:
        self.bytes[direction] += len(data)
        if link != self._link:
            return
        if len(self.recorded[direction]) < MOST_RECORDED:
            self.recorded[direction] += data
        buffer = self._buffers[direction] + data
        if not self._is_greeted[direction]:
            if len(buffer) < _HANDSHAKE_BYTES:
                self._buffers[direction] = buffer
                return
            buffer = buffer[_HANDSHAKE_BYTES:]
            self._is_greeted[direction] = True
        position = 0
        while len(buffer) >= position + _HEAD_BYTES:
            length = int.from_bytes(buffer[position : position + 4], "big")
            end = position + _HEAD_BYTES + length + _TAG_BYTES
            if len(buffer) < end:
                break
            self.frames[direction] = buffer[position:end]
            self._see(buffer[position + _HEAD_BYTES : end - _TAG_BYTES], direction)
            position = end
        self._buffers[direction] = buffer[position:]

    def _see(self, payload: bytes, direction: Direction) -> None:
        try:
            frame = pb.Frame.FromString(payload)
        except DecodeError:  # what a test has forged
            return
        if frame.HasField("batch"):
            if frame.batch.is_snapshot_begin:
                self._rows.clear()
            self._rows.update((row.number, unpack(row.body).id) for row in frame.batch.rows)
            for number in frame.batch.rows_done:
                self._rows.pop(number, None)
        match frame.WhichOneof("content"):
            case "settled":
                for flow in frame.settled.flows:
                    if flow.counts_as_seen:
                        ids = flow.ids
                        self._named.update(ids[start : start + _ID_BYTES] for start in range(0, len(ids), _ID_BYTES))
            case "batch" if frame.batch.is_snapshot_begin:
                self.is_whole = False
                self._last_of_all.pop(direction, None)
            case "batch" if frame.batch.is_snapshot_end:
                self._last_of_all[direction] = frame.batch.number
            case "stored":
                asked = self._last_of_all.get(FORWARD if direction is BACK else BACK)
                self.is_whole = self.is_whole or (asked is not None and frame.stored.number >= asked)


MOST_RECORDED = 1 << 16


class IdTap:
    """Records what one of the two sends on Zenoh, once told to: which messages are among that."""

    def __init__(self) -> None:
        self.is_recording = False
        self._bytes = bytearray()

    def opened(self, link: int) -> None:
        """Nothing has passed yet."""

    def passed(self, link: int, direction: Direction, data: bytes) -> None:
        if self.is_recording and direction is FORWARD:
            self._bytes += data

    def found(self, ids: Iterable[bytes]) -> list[bytes]:
        """Those ids whose second half is there, as protobuf writes a fixed64."""
        sent = bytes(self._bytes)
        return [each for each in ids if each[:7:-1] in sent]
