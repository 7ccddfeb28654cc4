"""Prometheus metrics: converted from the router's counters at each scrape, so that counting costs next to nothing.

The counters of every route balance at every scrape: ``ustreamer_accepted_messages_total = sum(ustreamer_outcomes_total) +
ustreamer_queue_messages``. So do those of every endpoint: ``ustreamer_received_packets_total =
ustreamer_received_messages_total + sum(ustreamer_malformed_packets_total) + sum(ustreamer_unwanted_packets_total)``.

A scrape has two parts. The event loop copies the counters, some routes per iteration. A thread formats the text from the
copies, which takes 30 µs a line. Series that never changed are left out, except for these two of each route.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Literal

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily as Total
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from streamer import __version__
from streamer.delivery.router import Router
from streamer.delivery.stats import LATENCY_BOUNDS, EndpointAccount, Histogram, RouteAccount, RouterAccount
from streamer.journal.journal import Journal, JournalState
from streamer.transports.base import LinkState
from streamer.uprotocol.form import FORM

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ROUTE = ("route", "ingress", "egress")

ReloadResult = Literal["ok", "refused"]
MakeFamilies = Callable[[], Iterable[Metric]]
"""Makes the metrics of one feature, with the present values."""

_ROUTES_PER_ITERATION = 50
"""The most routes whose counters are copied in one iteration of the event loop."""


class Exposition:
    """The content of `/metrics`."""

    def __init__(self, router: Router, features: Sequence[MakeFamilies] = ()) -> None:
        """``features`` each make metrics of one."""
        self._features = features
        self._router = router
        self.lag = Histogram()
        """How late ticks of the event loop were."""
        self._reloads: dict[ReloadResult, int] = {"ok": 0, "refused": 0}
        self._last_reload: ReloadResult = "ok"
        self._config_since_s = 0.0
        self._config_fingerprint = 0
        self._process = (ProcessCollector(registry=None), PlatformCollector(registry=None))
        self._scrape: asyncio.Task[bytes] | None = None

    async def scrape(self) -> bytes:
        """Return all metrics in the Prometheus text format. Concurrent callers share one text."""
        if self._scrape is None:
            self._scrape = asyncio.create_task(self._render(), name="scrape")
            self._scrape.add_done_callback(self._scraped)
        return await asyncio.shield(self._scrape)

    def _scraped(self, scrape: "asyncio.Task[bytes]") -> None:
        self._scrape = None

    async def families(self) -> Iterable[Metric]:
        """Return all metrics, copied in several iterations of the event loop. Iterate once, on any thread."""
        return self._all(await self._copied())

    async def _render(self) -> bytes:
        return await asyncio.to_thread(self._text_of, await self.families())

    def _snapshot(self) -> Iterator[RouteAccount]:
        """Yield copies of the accounts of all routes. The counters of each copy balance."""
        for account in self._router.accounts():
            yield replace(account, stats=account.stats.copy())

    async def _copied(self) -> list[RouteAccount]:
        accounts: list[RouteAccount] = []
        each = self._snapshot()
        while some := list(islice(each, _ROUTES_PER_ITERATION)):
            accounts += some
            await asyncio.sleep(0)
        return accounts

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format. Blocks: for callers that are not on a busy event loop."""
        return self._text_of(self._all(list(self._snapshot())))

    def _all(self, accounts: list[RouteAccount]) -> Iterable[Metric]:
        """Return all families lazily: those of routes from these copies, the others with the present values."""
        of_process = (family for collector in self._process for family in collector.collect())
        return chain(list(self._others(accounts)), self._routes(accounts), self._latencies(accounts), of_process)

    def _text_of(self, families: Iterable[Metric]) -> bytes:
        registry = CollectorRegistry()
        registry.register(_Fixed(families))
        return generate_latest(registry)

    def count_reload(self, result: ReloadResult) -> None:
        """Count a reload of the configuration file with its result."""
        self._reloads[result] += 1
        self._last_reload = result

    def config_used(self, fingerprint: str, now_s: float) -> None:
        """Expose the fingerprint (hexadecimal) of the configuration in use since ``now_s`` (Unix seconds)."""
        self._config_fingerprint = int(fingerprint, 16)
        self._config_since_s = now_s

    def _others(self, routes: list[RouteAccount]) -> Iterable[Metric]:
        router = self._router.account()
        yield from self._dead_letters(routes, router)
        yield from self._endpoints(self._router.endpoint_accounts())
        text = "How far the clock of a source is behind, by the youngest messages of its uEntities; negative: ahead."
        clocks = Gauge("ustreamer_source_clock_behind_seconds", text, labels=("endpoint", "authority"))
        text = "The greatest age that a message of a source had when it arrived."
        oldest = Gauge("ustreamer_source_oldest_message_seconds", text, labels=("endpoint", "authority"))
        behind_s: dict[tuple[str, str], float] = {}
        oldest_s: dict[tuple[str, str], float] = {}
        for endpoint, clock in self._router.source_clocks():
            source = endpoint, clock.authority
            behind_s[source] = max(behind_s.get(source, 0.0), clock.behind_s, key=abs)
            oldest_s[source] = max(oldest_s.get(source, -math.inf), clock.oldest_s)
        for source, value_s in behind_s.items():
            clocks.add_metric(source, value_s)
            oldest.add_metric(source, oldest_s[source])
        yield from (clocks, oldest)
        text = "How often our own wall clock was set back by a second or more."
        yield Total("ustreamer_clock_set_back", text, self._router.set_backs)
        yield from self._paused(routes, router)
        yield from self._subscriptions(router)
        text = "Version and authority of the daemon, and whether it is compiled."
        build = Gauge("ustreamer_build_info", text, labels=("version", "form", "authority"))
        build.add_metric((__version__, FORM, self._router.table.authority), 1)
        yield build
        yield Gauge("ustreamer_remembered_ids", "Message ids that are kept to recognise duplicates.", router.remembered_ids)
        lag = HistogramMetricFamily("ustreamer_event_loop_lag_seconds", "How late the ticks of the event loop were.")
        _add(lag, (), self.lag)
        yield lag
        if router.token_problem is not None:
            text = "1 while what the token verifier needs to know, such as public keys, can be read."
            yield Gauge("ustreamer_token_verifier_up", text, int(not router.token_problem))
        if self._router.journal is not None and self._router.standby() is None:  # there, the other one writes it
            yield from self._journal(self._router.journal, router)
        for families in self._features:
            yield from families()
        reloads = Total("ustreamer_reloads", "Reloads of the configuration file.", labels=("result",))
        for result, number in self._reloads.items():
            reloads.add_metric((result,), number)
        yield reloads
        text = "1 if the last reload was accepted, or there was none; 0 if it was refused."
        yield Gauge("ustreamer_config_last_reload_successful", text, self._last_reload == "ok")
        text = "Since when the configuration is in use: the start, or the last reload that was accepted."
        yield Gauge("ustreamer_config_last_reload_success_timestamp_seconds", text, self._config_since_s)
        text = "A number that is the same on streamers whose configurations mean the same."
        yield Gauge("ustreamer_config_hash", text, self._config_fingerprint)

    def _routes(self, accounts: list[RouteAccount]) -> Iterable[Metric]:
        text = "Messages that the route has accepted; route none: messages without a route."
        accepted = Total("ustreamer_accepted_messages", text, labels=_ROUTE)
        outcomes = Total("ustreamer_outcomes", "Messages by outcome and status code.", labels=(*_ROUTE, "outcome", "code"))
        messages = Gauge("ustreamer_queue_messages", "Messages without an outcome yet, in flight or not.", labels=_ROUTE)
        text = "Queued messages that were sent to a network that does not confirm (Zenoh)."
        unconfirmed = Gauge("ustreamer_unconfirmed_messages", text, labels=_ROUTE)
        size = Gauge("ustreamer_queue_bytes", "Memory that the queued messages take.", labels=_ROUTE)
        age = Gauge(
            "ustreamer_queue_oldest_age_seconds", "Age of the message that has waited longest to be sent.", labels=_ROUTE
        )
        retries = Total("ustreamer_retries", "Refused sends that were repeated.", labels=_ROUTE)
        text = "Times that a route, or a source authority on it, had to wait for its rate."
        limited = Total("ustreamer_rate_limited", text, labels=_ROUTE)
        text = "Packets of the route's messages: PUBLISH packets of MQTT; payload and attachment of Zenoh."
        wire = Total("ustreamer_route_wire_bytes", text, labels=(*_ROUTE, "direction"))
        payload = Total("ustreamer_route_payload_bytes", "Payload of the route's messages.", labels=(*_ROUTE, "direction"))
        for account in accounts:
            labels = (account.name, account.source, account.target)
            accepted.add_metric(labels, account.stats.accepted)
            messages.add_metric(labels, account.queued)
            if not account.has_moved:
                continue
            for (outcome, code), number in account.stats.outcomes.items():
                outcomes.add_metric((*labels, outcome.value, code.name), number)
            unconfirmed.add_metric(labels, account.unconfirmed)
            size.add_metric(labels, account.bytes)
            age.add_metric(labels, account.oldest_age_s)
            if account.stats.retries:
                retries.add_metric(labels, account.stats.retries)
            if account.stats.limited:
                limited.add_metric(labels, account.stats.limited)
            for family, bytes_ in ((wire, account.stats.wire_bytes), (payload, account.stats.payload_bytes)):
                for direction, number in bytes_._asdict().items():
                    if number:
                        family.add_metric((*labels, direction), number)
        yield from (accepted, outcomes, messages, unconfirmed, size, age, retries, limited, wire, payload)

    def _dead_letters(self, routes: list[RouteAccount], router: RouterAccount) -> Iterable[Metric]:
        letters = Total(
            "ustreamer_dead_letters", "Failures that became dead letters, reported or not.", labels=("route", "code")
        )
        made: Counter[tuple[str, str]] = Counter()  # several routes can have one name, such as ``none``
        for account in routes:
            made.update({(account.name, code.name): number for code, number in account.stats.dead_letters.items()})
        for labels, number in made.items():
            letters.add_metric(labels, number)
        yield letters
        text = "Failures of messages without a route that were not reported because there were too many."
        suppressed = Total("ustreamer_reports_suppressed", text, labels=("endpoint",))
        for endpoint, number in router.reports_suppressed.items():
            suppressed.add_metric((endpoint,), number)
        yield suppressed

    def _subscriptions(self, router: RouterAccount) -> Iterable[Metric]:
        yield Gauge("ustreamer_interest_topics", "Topics with at least one interested authority.", router.interest_topics)
        yield Gauge(
            "ustreamer_refused_topics", "Of these: topics that a transport has no room to listen to.", router.refused_topics
        )

    def _paused(self, routes: list[RouteAccount], router: RouterAccount) -> Iterable[Metric]:
        yield Gauge("ustreamer_pause_rules", "Rules that pause topics.", router.pause_rules)
        lanes = Gauge("ustreamer_paused_lanes", "Flows that are paused.", labels=_ROUTE)
        messages = Gauge("ustreamer_paused_messages", "Messages that wait in paused flows.", labels=_ROUTE)
        for account in routes:
            if account.paused_lanes is not None and account.has_moved:
                labels = (account.name, account.source, account.target)
                lanes.add_metric(labels, account.paused_lanes)
                messages.add_metric(labels, account.paused_messages)
        yield from (lanes, messages)

    def _journal(self, journal: Journal, router: RouterAccount) -> Iterable[Metric]:
        text = "1 while what is handed to the journal gets onto the disk."
        yield Gauge("ustreamer_journal_up", text, int(journal.state is JournalState.OK))
        yield Gauge("ustreamer_journal_bytes", "Bytes of messages and dead letters in the journal.", journal.bytes)
        yield Gauge("ustreamer_journal_max_bytes", "Bound of the journal.", journal.max_bytes)
        yield Gauge("ustreamer_journal_wal_bytes", "Size of the journal's write-ahead log.", journal.wal_bytes)
        yield Gauge("ustreamer_journal_last_commit_seconds", "How long the last transaction took.", journal.last_commit_s)
        yield Gauge(
            "ustreamer_journal_spilled_messages", "Queued messages whose payload is only in the journal.", router.spilled
        )
        yield Total("ustreamer_journal_commits", "Transactions of the journal.", journal.commits)
        yield Total("ustreamer_journal_written_messages", "Messages that waited, written one by one.", journal.rows_written)
        text = "Transactions and attempts to open the file that failed and were repeated."
        yield Total("ustreamer_journal_failures", text, journal.failures)
        yield Total(
            "ustreamer_journal_files_set_aside", "Damaged journal files that were set aside.", journal.files_set_aside
        )
        yield Total("ustreamer_journal_entries_corrupt", "Entries that could no longer be read.", journal.entries_corrupt)
        text = "Dead letters that were deleted because the store is bounded."
        yield Total("ustreamer_journal_dead_letters_evicted", text, journal.letters_evicted)
        text = "Dead letters that were dropped because too many waited to be written."
        yield Total("ustreamer_journal_dead_letters_dropped", text, self._router.custody.letters_dropped)
        yield Total("ustreamer_journal_dead_letters_redriven", "Dead letters that were redriven.", router.redriven)

    def _latencies(self, accounts: list[RouteAccount]) -> Iterable[Metric]:
        end_to_end = HistogramMetricFamily(
            "ustreamer_end_to_end_latency_seconds", "From the message's id to the confirmation or the put.", labels=_ROUTE
        )
        in_daemon = HistogramMetricFamily(
            "ustreamer_in_daemon_latency_seconds", "From reception to the confirmation or the put.", labels=_ROUTE
        )
        for account in accounts:
            if account.target and any(account.stats.in_daemon.counts):
                labels = (account.name, account.source, account.target)
                _add(end_to_end, labels, account.stats.end_to_end)
                _add(in_daemon, labels, account.stats.in_daemon)
        yield from (end_to_end, in_daemon)

    def _endpoints(self, endpoints: list[EndpointAccount]) -> Iterable[Metric]:
        labels = ("endpoint", "transport")
        received = Total("ustreamer_received_messages", "Messages that the endpoint handed over.", labels=labels)
        packets = Total("ustreamer_received_packets", "Packets and samples that arrived at the endpoint.", labels=labels)
        malformed = Total(
            "ustreamer_malformed_packets", "Packets that were not uProtocol messages.", labels=(*labels, "reason")
        )
        unwanted = Total(
            "ustreamer_unwanted_packets", "Intact packets that the streamer does not want.", labels=(*labels, "reason")
        )
        backlog = Gauge(
            "ustreamer_backlog_messages", "Messages not acknowledged, waiting for room in a full queue.", labels=labels
        )
        in_flight = Gauge("ustreamer_in_flight_messages", "Handed over and not answered yet.", labels=labels)
        up = Gauge("ustreamer_endpoint_up", "1 while messages can be sent.", labels=labels)
        alone = Gauge(
            "ustreamer_endpoint_alone", "1 while it is connected and no other node is there: it is ready.", labels=labels
        )
        since = Gauge(
            "ustreamer_endpoint_state_since_timestamp_seconds", "Since when the endpoint is up, or is not.", labels=labels
        )
        text = "1 for the configured address to which the endpoint is connected."
        connected_to = Gauge("ustreamer_endpoint_connection_info", text, labels=(*labels, "address"))
        text = "Problems of the endpoint other than a lost link, such as refused subscriptions."
        problems = Gauge("ustreamer_endpoint_problems", text, labels=labels)
        reconnects = Total("ustreamer_reconnects", "Connections after the first.", labels=labels)
        errors = Total(
            "ustreamer_link_errors", "Failed attempts to connect, and links that have ended.", labels=(*labels, "reason")
        )
        text = "When the last of these happened, and its reason."
        last_error = Gauge("ustreamer_last_link_error_timestamp_seconds", text, labels=(*labels, "reason"))
        text = "Messages that were sent to a network that does not confirm, and not counted as delivered yet."
        unconfirmed = Gauge("ustreamer_unconfirmed_bytes", text, labels=labels)
        room = Gauge("ustreamer_unconfirmed_max_bytes", "Bound of these: nothing is sent beyond it.", labels=labels)
        figures = Gauge(
            "ustreamer_transport_figure", "What the transport measures of itself, by name.", labels=(*labels, "figure")
        )
        text = "Bytes that TCP has carried for the endpoint, with TLS, and with what was sent again."
        wire = Total("ustreamer_endpoint_wire_bytes", text, labels=(*labels, "direction"))
        payload = Total(
            "ustreamer_endpoint_payload_bytes", "Payload of the endpoint's messages.", labels=(*labels, "direction")
        )
        for account in endpoints:
            values = (account.name, account.transport)
            for direction, number in account.payload_bytes._asdict().items():
                payload.add_metric((*values, direction), number)
            if account.wire_bytes is not None:
                for direction, number in account.wire_bytes._asdict().items():
                    wire.add_metric((*values, direction), number)
            packets.add_metric(values, account.stats.packets)
            received.add_metric(values, account.stats.received)
            for reason, number in account.stats.malformed.items():
                malformed.add_metric((*values, reason), number)
            for reason, number in account.stats.unwanted.items():
                unwanted.add_metric((*values, reason), number)
            backlog.add_metric(values, account.backlog)
            in_flight.add_metric(values, account.in_flight)
            up.add_metric(values, int(account.link.state is LinkState.UP))
            alone.add_metric(values, int(account.link.state is LinkState.ALONE))
            since.add_metric(values, account.link.since_ms / 1000)
            for address in account.link.addresses:  # others, such as those of Zenoh peers, would be labels without bound
                if address in account.link.connected_to:
                    connected_to.add_metric((*values, address), 1)
            problems.add_metric(values, len(account.problems))
            reconnects.add_metric(values, account.stats.reconnects)
            for failure, number in account.errors.items():
                errors.add_metric((*values, failure.value), number)
            if (error := account.link.last_error) is not None:
                last_error.add_metric((*values, error.reason.value), error.at_ms / 1000)
            if account.unconfirmed_max_bytes is not None:
                unconfirmed.add_metric(values, account.unconfirmed_bytes)
                room.add_metric(values, account.unconfirmed_max_bytes)
            for figure, value in account.figures.items():
                figures.add_metric((*values, figure), value)
        yield from (
            wire,
            payload,
            packets,
            received,
            malformed,
            unwanted,
            backlog,
            in_flight,
            up,
            alone,
            since,
            connected_to,
            problems,
            reconnects,
            errors,
            last_error,
            figures,
            unconfirmed,
            room,
        )


def _add(family: HistogramMetricFamily, labels: tuple[str, ...], histogram: Histogram) -> None:
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*(str(b) for b in LATENCY_BOUNDS), "+Inf"), histogram.counts, strict=True):
        total += count
        buckets.append((bound, total))
    family.add_metric(labels, buckets, histogram.sum)


class _Fixed(Collector):
    """A collector of given families."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
