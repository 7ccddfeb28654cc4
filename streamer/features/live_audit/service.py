"""The service of the live audit: closes minutes, sends their rows or compares them, and reports what was found."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final

from streamer.clock import Clock
from streamer.features.host.rpc import Method
from streamer.features.host.service import Service
from streamer.features.live_audit.comparison import LOST, QUIET_S, AuditFinding, RowComparison
from streamer.features.live_audit.config import LiveAuditConfig
from streamer.features.live_audit.counter import ROWS, MessageCounter
from streamer.features.live_audit.rows import Part, facing, packed
from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import Options, UPayloadFormat, notification
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import DAY_MS
from streamer.uprotocol.well_known import USTREAMER

MAX_WAITING: Final = 20_000  # rows that are still to be sent; beyond that a number is left out, which tells the receiver
FINDINGS: Final = 1000  # the latest ones, which the page shows
_TICK_S = 5.0  # seldom: many ids are added up at once
_OPTIONS = Options(ttl=DAY_MS, payload_format=UPayloadFormat.PROTOBUF)

logger = logging.getLogger("ustreamer.live_audit")


class LiveAudit(Service):
    """The live audit of one streamer. ``comparison`` None: another one compares. ``homes``: where an authority lives."""

    def __init__(
        self,
        local: LocalTransport,
        options: LiveAuditConfig,
        counter: MessageCounter,
        comparison: RowComparison | None,
        homes: Callable[[str], Collection[str]],
        clock: Clock,
    ) -> None:
        self.options = options
        self.counter = counter
        self.comparison = comparison
        self.findings: deque[AuditFinding] = deque(maxlen=FINDINGS)
        self.unread: deque[AuditFinding] = deque(maxlen=FINDINGS)
        self._local = local
        self._homes = homes
        self._clock = clock
        self._run = clock.wall_ms()
        self._number = 0
        self._waiting: list[Part] = []
        self._sent_s = 0.0

    def methods(self) -> Mapping[int, Method]:
        return {ROWS: Method(pb.AuditRows, self._heard)}

    async def run(self) -> None:
        while True:
            self.run_once()
            await asyncio.sleep(_TICK_S)

    def run_once(self) -> None:
        """Close minutes, send their rows if that is due, and judge."""
        now_s, to = self._clock.monotonic_s(), self.options.to
        rows = self.counter.closed(now_s, QUIET_S)
        if self.comparison is not None:
            self.comparison.ours(rows, now_s)
            for found in self.comparison.judge(now_s):
                self.findings.append(found)
                self.unread.append(found)
                fields = " ".join(f"{name}=%s" for name in found.shown())
                level = logging.ERROR if found.verdict == LOST else logging.INFO
                logger.log(level, f"live_audit_{found.verdict} {fields}", *found.shown().values())
        elif to is not None:
            towards = self._homes(to)
            self._waiting += [facing(row, towards) for row in rows]
            if len(self._waiting) > MAX_WAITING:
                self._number += 1
                self._waiting = []
            if self._waiting and now_s - self._sent_s >= self.options.every_s:
                self._sent_s = now_s
                for said in packed(self._run, self._number, self._waiting):
                    self._number = said.number + 1
                    source = USTREAMER.at(self._local.context.authority, ROWS)
                    payload = said.SerializeToString()
                    self._local.emit([notification(self._clock.wall_ms(), source, USTREAMER.at(to), payload, _OPTIONS)])
                self._waiting = []

    async def _heard(self, caller: UUri, rows: pb.AuditRows) -> pb.AuditRows:
        if self.comparison is not None and caller[1:3] == USTREAMER:
            with contextlib.suppress(IndexError):  # not one of our rows
                times = self._clock.monotonic_s(), self._clock.wall_ms()
                self.comparison.heard(caller.authority, self._homes(caller.authority), rows, *times)
        return rows
