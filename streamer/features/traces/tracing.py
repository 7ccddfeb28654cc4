"""Tracing as the daemon sees it: a recorder for the router, the spool behind it, and compaction from time to time."""

import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from streamer.features.traces.config import TraceConfig
from streamer.features.traces.event import CONFIGURED, DOWN, STARTED, STOPPED, UP, Event
from streamer.features.traces.layout import Compaction, Deleted, Folders
from streamer.features.traces.record import Buffer
from streamer.features.traces.recorder import Recorder
from streamer.features.traces.spool import SpoolWriter

logger = logging.getLogger("ustreamer.trace")

_RETRY_S = 60.0  # until a failed compaction is repeated
_COMPACTION_S = 3600.0  # after which a compaction that hangs is killed
_STOP_S = 10.0  # how long the daemon waits for the last compaction when it stops


class Tracing:
    """Traces of one streamer. ``transports``: the kind of transport of each endpoint, by name; a reload changes them.

    ``cohort``: of `streamer.config.shown.cohort`.
    """

    def __init__(self, config: TraceConfig, streamer: str, transports: dict[str, str], cohort: str = "") -> None:
        self.path = config.path
        self.folders = Folders(config.path, streamer)
        self.compacted = Compaction()
        self.failures = 0
        self._streamer = streamer
        self._transports = transports
        self._cohort = cohort
        self._events = 0
        self._max_bytes = config.max_bytes
        self._due = threading.Event()
        self._ending = threading.Event()
        self._is_given_up = False
        self._is_started = False
        self._is_active = False
        self._process: subprocess.Popen[bytes] | None = None
        self._spool = SpoolWriter(
            self.folders, _now_us(), config.rotate_s, config.file_bytes, config.max_bytes, self._due.set
        )
        self.recorder = Recorder(transports, self._take, _offset_us, cohort)
        self._thread = threading.Thread(target=self._compact_when_due, name="trace-compaction", daemon=True)

    @property
    def written(self) -> int:
        """Records on disk: in the spool or in Parquet files."""
        return self._spool.written

    @property
    def dropped(self) -> int:
        """Records that were not written: gaps in ``seq``."""
        return self.recorder.dropped + self._spool.dropped

    @property
    def deleted(self) -> Deleted:
        """The files deleted to keep to the bound."""
        compacted, spool = self.compacted, self._spool.deleted
        return Deleted(compacted.deleted_files + spool.files, compacted.deleted_bytes + spool.bytes)

    @property
    def problem(self) -> str:
        """Why records are being dropped now; empty if they are not."""
        return self._spool.problem

    def families(self) -> Iterable[Metric]:
        """Yield the metrics about the traces."""
        compacted, deleted = self.compacted, self.deleted
        yield GaugeMetricFamily("ustreamer_trace_up", "1 while trace records can be written.", int(not self.problem))
        yield GaugeMetricFamily(
            "ustreamer_trace_bytes", "Disk space of the traces, as of the last compaction.", compacted.bytes
        )
        for name, text, value in (
            ("ustreamer_trace_written_records", "Trace records that are on disk.", self.written),
            ("ustreamer_trace_dropped_records", "Trace records that could not be written: gaps in seq.", self.dropped),
            ("ustreamer_trace_parquet_files", "Parquet files that were completed.", compacted.files),
            ("ustreamer_trace_parquet_records", "Records in these files.", compacted.records),
            ("ustreamer_trace_torn_files", "Spool files that ended in the middle of a batch.", compacted.torn),
            ("ustreamer_trace_bad_files", "Spool files that could not be compacted and were set aside.", compacted.bad),
            ("ustreamer_trace_deleted_files", "Files that were deleted because traces are bounded.", deleted.files),
            ("ustreamer_trace_deleted_bytes", "Size of those files.", deleted.bytes),
            ("ustreamer_trace_compaction_failures", "Compactions that failed and are repeated.", self.failures),
        ):
            yield CounterMetricFamily(name, text, value)

    def start(self) -> None:
        """Start both threads. What an earlier run has left is compacted first."""
        self._is_started = True
        self._spool.start()
        self._thread.start()

    def begin(self, links: Mapping[str, bool]) -> None:
        """Write events from now on, if that has not begun. On standby links carry nothing. ``links``: whether each is up."""
        if self._is_active:
            return
        self._is_active = True
        self._tell(STARTED)
        for endpoint, is_up in links.items():
            self.link_changed(endpoint, is_up, "" if is_up else STARTED)

    def link_changed(self, endpoint: str, is_up: bool, reason: str) -> None:
        """An endpoint is up or down now. ``reason``: why it is down."""
        self._tell(UP if is_up else DOWN, endpoint, reason)

    def configured(self, cohort: str) -> None:
        """A reload has put another configuration into use."""
        self._cohort = cohort
        self.recorder.use(cohort)
        self._tell(CONFIGURED)

    def use(self, config: TraceConfig) -> None:
        """Other bounds hold from now on. The folder is the same."""
        self._max_bytes = config.max_bytes
        self._spool.use(config.rotate_s, config.file_bytes, config.max_bytes)

    def stop(self) -> None:
        """Write and compact what there is, within some seconds. The next start does the rest. Blocks."""
        if not self._is_started:
            return
        self.recorder.hand_on()
        self._tell(STOPPED)
        end_s = time.monotonic() + _STOP_S
        if not self._spool.stop(_STOP_S):
            logger.error("trace_not_closed folder=%s reason=%s", self.folders.path, self.problem or "the disk is slow")
        self._ending.set()
        self._due.set()
        self._thread.join(max(0.0, end_s - time.monotonic()))
        if self._thread.is_alive():
            self._is_given_up = True
            if self._process is not None:
                self._process.kill()

    def _tell(self, event: str, endpoint: str = "", reason: str = "") -> None:
        if self._is_active:
            transport = self._transports.get(endpoint, "")
            self._spool.tell(Event(_now_us(), self._events, event, endpoint, transport, reason, self._cohort))
            self._events += 1

    def _take(self, buffer: Buffer) -> bool:
        return self._spool.take(buffer)

    def _compact_when_due(self) -> None:
        is_retrying = False
        while True:
            self._due.wait(_RETRY_S if is_retrying else None)
            self._due.clear()
            is_ending = self._ending.is_set()
            if self._is_given_up:
                return
            is_retrying = not self._compact()
            if is_ending:
                return

    def _compact(self) -> bool:
        """Have a process compact what is closed. Returns whether it left nothing."""
        arguments = [str(self.folders.path), self._streamer, str(self._max_bytes)]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "streamer.features.traces.compact", *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,  # the log is ours to write
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in a terminal is for the daemon, which lets this process finish
            )
            with self._process as process:
                if self._is_given_up:  # since just now: nobody has ended this one
                    process.kill()
                try:
                    output, errors = process.communicate(timeout=_COMPACTION_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise
            if not output:
                raise OSError(_ended(process.returncode, errors))
            done = Compaction(**json.loads(output.splitlines()[-1]))
        except (OSError, subprocess.TimeoutExpired, ValueError, TypeError) as exc:
            done = Compaction(problems=[f"the compaction process failed: {exc}"])
        for problem in done.problems:
            self.failures += 1
            logger.error("trace_compaction_failed folder=%s problem=%s", self.folders.path, problem)
        if done.torn:
            logger.info("trace_torn files=%d consequence=%s", done.torn, "the last second before a kill is not recorded")
        if done.bad:
            reason, consequence = "; ".join(done.reasons), "they are set aside as .arrows.bad"
            logger.error("trace_files_bad files=%d reason=%s consequence=%s", done.bad, reason, consequence)
        if done.deleted_files:
            logger.info("trace_deleted files=%d bytes=%d reason=%s", done.deleted_files, done.deleted_bytes, "max_bytes")
        if done.ahead > self.compacted.ahead:
            consequence = "they are deleted before all others; the clock was wrong when they were written, or is now"
            logger.warning("trace_files_ahead files=%d consequence=%s", done.ahead, consequence)
        self.compacted = self.compacted.followed_by(done)
        return not done.problems


def _ended(code: int, errors: bytes) -> str:
    """How a process ended that did not say what it has done."""
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    said = errors.decode(errors="replace").strip().splitlines()
    return f"it ended with code {code}" + (f": {said[-1]}" if said else "")


def _now_us() -> int:
    return time.time_ns() // 1000


def _offset_us() -> int:
    return (time.time_ns() - time.monotonic_ns()) // 1000
