"""Traces of messages, written as the daemon writes them. No tests."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streamer.features.traces.compact import batches, compact_spool
from streamer.features.traces.event import EVENT_SCHEMA
from streamer.features.traces.layout import Folders
from streamer.features.traces.record import SCHEMA, Buffer, to_columns
from streamer.features.traces.recorder import Recorder
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import Received
from streamer.uprotocol.message import Attributes, UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id
from tests.unit.delivery.messages import route_queue
from tests.unit.features.traces.folders import NAME, NOW_US

DENIED = Failure(Outcome.REJECTED, UCode.PERMISSION_DENIED, "no")


class Recorded:
    """A folder of traces that the product's own recorder and compaction have written, of messages that came in lately."""

    def __init__(self, folder: Path, streamer: str = NAME, now_us: int = NOW_US, route: str = "up") -> None:
        self.buffers: list[Buffer] = []
        self.folders = Folders(folder, streamer)
        self._now_us = now_us
        self._queue = route_queue(route)
        self._recorder = Recorder({}, self._take, lambda: now_us - 60_000_000)

    def _take(self, buffer: Buffer) -> bool:
        self.buffers.append(buffer)
        return True

    def deliver(self, attributes: Attributes, count: int, to: UUri | None, payload: bytes = b"0123456789") -> None:
        """Record messages that were delivered, to the sink that their route gave them."""
        for _ in range(count):
            message = UMessage(new_id(self._now_us // 1000), attributes, payload)
            lane = self._queue.lane((attributes.source, to))
            delivery = self._queue.push(Received(message), message, lane, 1.0, (self._now_us - 59_000_000) // 1000)
            delivery.sent_s = 1.5
            self._recorder.delivered([delivery], 2.0, 0)

    def refuse(self, attributes: Attributes, count: int, failure: Failure = DENIED, route: str = "none") -> None:
        """Record messages that never were in a queue."""
        for _ in range(count):
            message = UMessage(new_id(self._now_us // 1000), attributes, b"")
            self._recorder.never_queued(message, (route, "vehicle", ""), failure, 1.0, (self._now_us - 59_000_000) // 1000)

    def compact(self) -> None:
        self._recorder.hand_on()
        self.folders.create()
        with pa.OSFile(str(self.folders.spool / "1-1.arrows"), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as writer:
            for each in self.buffers:
                writer.write_batch(to_columns(each, 1))
        assert compact_spool(self.folders, 1 << 30).problems == []


def events_below(folder: Path, streamer: str) -> list[tuple[str, str | None]]:
    """Return events and their endpoints in order, also those of a killed daemon, which are still in the spool."""
    files = Folders(folder, streamer)
    found = [row for file in files.parquet_files() for row in pq.ParquetFile(file).read().to_pylist()]
    found += [row for file in files.left_open() for batch in batches(file, EVENT_SCHEMA) for row in batch.to_pylist()]
    return [(row["event"], row["endpoint"]) for row in sorted(found, key=lambda row: (row["run_ts"], row["seq"]))]
