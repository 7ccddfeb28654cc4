"""Sends metrics and spans to a collector, on a thread of its own.

Metrics are cumulative: the next export makes up for one that failed. Spans wait in a bounded queue. Those of a failed export
are sent again until the collector accepts or finally refuses them.
"""

import asyncio
import logging
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.trace.export import SpanExportResult
from prometheus_client.core import CounterMetricFamily
from prometheus_client.core import Metric as Family

from streamer.features.otel.config import OtelConfig
from streamer.features.otel.convert import metrics_data, resource_of, spans_of
from streamer.features.otel.session import CollectorAnswer, CollectorSession
from streamer.features.otel.spans import SpanRecord, Spans
from streamer.files import read_file

logger = logging.getLogger("ustreamer.otel")
logging.getLogger("opentelemetry").propagate = False  # failures are logged here, once
logging.getLogger("opentelemetry").addHandler(logging.NullHandler())

_EXPORT_EVERY_S = 5.0
"""The interval at which spans are sent and failed exports are repeated."""

_LONGEST_PAUSE_S = 300.0
"""The longest pause that a collector may request."""

_SPANS_PER_EXPORT = 512
_COLLECT_S = 10.0
_LAST_S = 2.0  # time limit of each export at the stop
_STOP_S = 5.0

_NOT_ENCODED = CollectorAnswer(400, "the export could not be encoded")

Collect = Callable[[], Coroutine[Any, Any, Iterable[Family]]]
"""Copies all metrics on the event loop. Its result may be read on any thread."""

_Exporter = OTLPMetricExporter | OTLPSpanExporter


class Push:
    """Sends to one collector until `stop`. Its counters may be read at any time."""

    def __init__(self, options: OtelConfig, authority: str, collect: Collect, spans: Spans | None, since_ns: int) -> None:
        """``since_ns``: the start of the metrics' counters."""
        self.options = options
        self.exports: dict[tuple[str, str], int] = {
            (signal, result): 0
            for signal, is_on in (("metrics", options.metrics), ("spans", options.spans is not None))
            if is_on
            for result in ("ok", "failed")
        }
        self.spans_sent = 0
        self._spans_refused = 0
        self._resource = resource_of(authority, options.attributes)
        self._collect = collect
        self._spans = spans
        self._since_ns = since_ns
        self._pending: list[SpanRecord] = []
        self._failing: set[str] = set()
        self._headers: dict[str, str] = {}
        self._not_before_s = 0.0  # end of the pause that the collector has requested
        self._loop: asyncio.AbstractEventLoop | None = None
        self._exporter: _Exporter | None = None  # the one that is sending
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otel", daemon=True)

    @property
    def spans_dropped(self) -> int:
        """Return the number of spans without room in the queue, or refused by the collector."""
        return self._spans_refused + (0 if self._spans is None else self._spans.dropped)

    def families(self) -> Iterable[Family]:
        """Return the metrics about the push itself."""
        exports = CounterMetricFamily(
            "ustreamer_otel_exports", "Exports to the collector of OpenTelemetry.", labels=("signal", "result")
        )
        for labels, number in self.exports.items():
            exports.add_metric(labels, number)
        yield exports
        yield CounterMetricFamily("ustreamer_otel_sent_spans", "Spans that the collector has taken.", self.spans_sent)
        dropped = "Spans for which there was no room, or that the collector does not take."
        yield CounterMetricFamily("ustreamer_otel_dropped_spans", dropped, self.spans_dropped)

    def start(self) -> None:
        """Start the thread. It has the metrics copied on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Send the queued data once, within some seconds, and end the thread. Blocks; the loop has to run meanwhile."""
        exporter = self._exporter
        self._ending.set()
        if exporter is not None:
            exporter.shutdown()  # ends its wait before a repeated request
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        period_s = min(_EXPORT_EVERY_S, self.options.interval_s)
        due_s = time.monotonic() + period_s  # the first export soon: after a start, somebody checks that it arrives
        while True:
            is_ending = self._ending.wait(min(period_s, max(0.0, due_s - time.monotonic())))
            now_s = time.monotonic()
            try:
                if (is_ending or now_s >= self._not_before_s) and self._read_headers():
                    self._send_spans()
                    if self.options.metrics and (is_ending or now_s >= due_s or "metrics" in self._failing):
                        self._send_metrics()
            except Exception:  # a bug must not end the thread
                logger.exception("otel_failed")
            if now_s >= due_s:
                due_s = now_s + self.options.interval_s
            if is_ending:
                if self._spans is not None:
                    self._spans.put_back(self._pending)  # a reload may have named another collector
                return

    def _read_headers(self) -> bool:
        """Read the headers from their file, which may have changed. False: it cannot be used."""
        path = self.options.headers_file
        try:
            self._headers = {} if path is None else read_headers(path)
        except (OSError, ValueError) as exc:
            self._note("headers", f"{path}: {exc.strerror if isinstance(exc, OSError) else exc}")
            return False
        self._note("headers", "")
        return True

    def _send_metrics(self) -> None:
        assert self._loop is not None
        copying = asyncio.run_coroutine_threadsafe(self._collect(), self._loop)
        try:
            families = copying.result(_COLLECT_S)
        except TimeoutError:
            copying.cancel()
            self._count("metrics", CollectorAnswer(None, "the event loop is busy"))
            return
        now_ns = time.time_ns()
        self._since_ns = min(self._since_ns, now_ns)  # the clock may have been set back
        data = metrics_data(families, self._resource, self._since_ns, now_ns)
        session = CollectorSession()
        exporter = self._exporter = OTLPMetricExporter(f"{self.options.endpoint}/v1/metrics", **self._how(session))
        is_ok = exporter.export(data) is MetricExportResult.SUCCESS
        self._count("metrics", self._ended(session, is_ok))

    def _send_spans(self) -> None:
        while self._spans is not None and (self._pending or len(self._spans)):
            self._pending = self._pending or self._spans.take(_SPANS_PER_EXPORT)
            answer = self._export_spans(self._pending)
            self._count("spans", answer)
            if answer is None:
                self.spans_sent += len(self._pending)
            elif answer.is_final:
                self._spans_refused += len(self._pending)
            else:
                return
            self._pending = []

    def _export_spans(self, records: list[SpanRecord]) -> CollectorAnswer | None:
        """Export spans. Returns why that failed; None: the collector has accepted them."""
        try:
            spans = spans_of(records, self._resource)
        except Exception:  # a bug: repeating would fail for ever
            logger.exception("otel_spans_not_encoded spans=%d", len(records))
            return _NOT_ENCODED
        session = CollectorSession()
        exporter = self._exporter = OTLPSpanExporter(f"{self.options.endpoint}/v1/traces", **self._how(session))
        return self._ended(session, exporter.export(spans) is SpanExportResult.SUCCESS)

    def _how(self, session: CollectorSession) -> dict[str, Any]:
        """Return the arguments of both exporters. Certificates are read each time."""
        tls, last_s = self.options.tls, _LAST_S if self._ending.is_set() else self.options.timeout_s
        return {
            "certificate_file": _authorities() if tls.ca_file is None else str(tls.ca_file),
            "client_certificate_file": None if tls.cert_file is None else str(tls.cert_file),
            "client_key_file": None if tls.key_file is None else str(tls.key_file),
            "headers": self._headers,
            "timeout": min(last_s, self.options.timeout_s),
            "compression": Compression.Gzip,
            "session": session,
        }

    def _ended(self, session: CollectorSession, is_ok: bool) -> CollectorAnswer | None:
        self._exporter = None
        session.close()
        return None if is_ok else session.answer or _NOT_ENCODED

    def _count(self, signal: str, refusal: CollectorAnswer | None) -> None:
        self.exports[signal, "ok" if refusal is None else "failed"] += 1
        pause_s = 0.0 if refusal is None else min(refusal.retry_after_s, _LONGEST_PAUSE_S)
        self._not_before_s = max(self._not_before_s, time.monotonic() + pause_s)
        self._note(signal, "" if refusal is None else refusal.reason)

    def _note(self, what: str, problem: str) -> None:
        """Log that something has begun to fail, or works again."""
        if problem and what not in self._failing:
            self._failing.add(what)
            logger.error(
                "otel_export_failing signal=%s endpoint=%s reason=%s consequence=%s",
                what,
                self.options.endpoint,
                problem,
                "the export is repeated; metrics lose nothing, spans wait in a bounded queue",
                extra={"state": (f"otel {what}", "failing")},
            )
        elif not problem and what in self._failing:
            self._failing.discard(what)
            logger.info(
                "otel_export_works signal=%s endpoint=%s",
                what,
                self.options.endpoint,
                extra={"state": (f"otel {what}", "works")},
            )


def read_headers(path: Path) -> dict[str, str]:
    """Return the headers in a file, lines ``Name: value``. Raises OSError, and ValueError that quotes no header."""
    headers = {}
    for number, line in enumerate(read_file(path).decode("ascii", "replace").splitlines(), 1):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not line.strip() or line.startswith("#"):
            continue
        if not colon or not value or not name.replace("-", "").isalnum() or not line.isprintable() or not line.isascii():
            raise ValueError(f"line {number}: expected a header such as Authorization: Bearer …")
        headers[name] = value
    return headers


def _authorities() -> str | None:
    """Return the path of the system's CA certificates; None: use those of the exporters."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath
