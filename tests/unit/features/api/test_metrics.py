"""The exposition, read as Prometheus would read it."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from streamer.delivery.lifecycle.reload import Reload
from streamer.delivery.stats import LATENCY_BOUNDS, RouteStats
from streamer.features.api.metrics import _ROUTES_PER_ITERATION, CONTENT_TYPE, Exposition
from streamer.features.api.readiness import unready
from streamer.journal.journal import Journal
from streamer.transports.base import ByteCounts, LinkFailure, LinkState, Report
from streamer.transports.memory import MemoryTransport
from tests.flow.harness import RouterHarness, configuration
from tests.unit.features.api.scrape import Scrape, played
from tests.unit.journal.harness import BOUNDS

NAMES = {
    # name: (type, labels)
    "ustreamer_accepted_messages_total": ("counter", {"route", "ingress", "egress"}),
    "ustreamer_config_last_reload_successful": ("gauge", set()),
    "ustreamer_config_last_reload_success_timestamp_seconds": ("gauge", set()),
    "ustreamer_config_hash": ("gauge", set()),
    "ustreamer_outcomes_total": ("counter", {"route", "ingress", "egress", "outcome", "code"}),
    "ustreamer_queue_messages": ("gauge", {"route", "ingress", "egress"}),
    "ustreamer_unconfirmed_messages": ("gauge", {"route", "ingress", "egress"}),
    "ustreamer_queue_bytes": ("gauge", {"route", "ingress", "egress"}),
    "ustreamer_queue_oldest_age_seconds": ("gauge", {"route", "ingress", "egress"}),
    "ustreamer_route_wire_bytes_total": ("counter", {"route", "ingress", "egress", "direction"}),
    "ustreamer_route_payload_bytes_total": ("counter", {"route", "ingress", "egress", "direction"}),
    "ustreamer_endpoint_wire_bytes_total": ("counter", {"endpoint", "transport", "direction"}),
    "ustreamer_endpoint_payload_bytes_total": ("counter", {"endpoint", "transport", "direction"}),
    "ustreamer_retries_total": ("counter", {"route", "ingress", "egress"}),
    "ustreamer_rate_limited_total": ("counter", {"route", "ingress", "egress"}),
    "ustreamer_dead_letters_total": ("counter", {"route", "code"}),
    "ustreamer_reports_suppressed_total": ("counter", {"endpoint"}),
    "ustreamer_end_to_end_latency_seconds": ("histogram", {"route", "ingress", "egress"}),
    "ustreamer_in_daemon_latency_seconds": ("histogram", {"route", "ingress", "egress"}),
    "ustreamer_received_packets_total": ("counter", {"endpoint", "transport"}),
    "ustreamer_received_messages_total": ("counter", {"endpoint", "transport"}),
    "ustreamer_malformed_packets_total": ("counter", {"endpoint", "transport", "reason"}),
    "ustreamer_unwanted_packets_total": ("counter", {"endpoint", "transport", "reason"}),
    "ustreamer_backlog_messages": ("gauge", {"endpoint", "transport"}),
    "ustreamer_in_flight_messages": ("gauge", {"endpoint", "transport"}),
    "ustreamer_endpoint_up": ("gauge", {"endpoint", "transport"}),
    "ustreamer_endpoint_alone": ("gauge", {"endpoint", "transport"}),
    "ustreamer_endpoint_state_since_timestamp_seconds": ("gauge", {"endpoint", "transport"}),
    "ustreamer_endpoint_connection_info": ("gauge", {"endpoint", "transport", "address"}),
    "ustreamer_endpoint_problems": ("gauge", {"endpoint", "transport"}),
    "ustreamer_transport_figure": ("gauge", {"endpoint", "transport", "figure"}),
    "ustreamer_link_errors_total": ("counter", {"endpoint", "transport", "reason"}),
    "ustreamer_last_link_error_timestamp_seconds": ("gauge", {"endpoint", "transport", "reason"}),
    "ustreamer_reconnects_total": ("counter", {"endpoint", "transport"}),
    "ustreamer_unconfirmed_bytes": ("gauge", set()),
    "ustreamer_unconfirmed_max_bytes": ("gauge", set()),
    "ustreamer_clock_set_back_total": ("counter", set()),
    "ustreamer_source_clock_behind_seconds": ("gauge", {"endpoint", "authority"}),
    "ustreamer_source_oldest_message_seconds": ("gauge", {"endpoint", "authority"}),
    "ustreamer_pause_rules": ("gauge", set()),
    "ustreamer_interest_topics": ("gauge", set()),
    "ustreamer_refused_topics": ("gauge", set()),
    "ustreamer_usubscription_entries": ("gauge", {"kind"}),
    "ustreamer_paused_lanes": ("gauge", {"route", "ingress", "egress"}),
    "ustreamer_paused_messages": ("gauge", {"route", "ingress", "egress"}),
    "ustreamer_build_info": ("gauge", {"version", "form", "authority"}),
    "ustreamer_remembered_ids": ("gauge", set()),
    "ustreamer_event_loop_lag_seconds": ("histogram", set()),
    "ustreamer_reloads_total": ("counter", {"result"}),
}


async def test_every_family_has_its_name_type_help_and_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = await played()
    harness.router.ingresses["vehicle"].stats.malformed["marker"] = 3
    harness.router.transports["vehicle"].link_failed(LinkFailure.REFUSED, "connection refused")
    report = Report((), ("b:1883",), ("b:1883",), {"keys": 3}, ByteCounts(7, 8))
    monkeypatch.setattr(MemoryTransport, "report", lambda transport: report)
    stats = next(account for account in harness.router.accounts() if account.has_moved).stats
    stats.limited = stats.sent_wire_bytes = 1
    ours = {}
    for family in Scrape(harness).families:
        if not family.name.startswith(("process_", "python_")):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            ours[name] = (family.type, labels)
            assert family.documentation.endswith(".")
    assert ours == NAMES


WITHOUT_UNIT = {"ustreamer_config_last_reload_successful", "ustreamer_config_hash"}
"""The names that Prometheus and Alertmanager use for theirs."""


async def test_names_carry_our_prefix_and_their_unit() -> None:
    units = (
        "_messages",
        "_bytes",
        "_seconds",
        "_info",
        "_ids",
        "_up",
        "_alone",
        "_problems",
        "_rules",
        "_lanes",
        "_topics",
        "_entries",
        "_figure",  # whatever it is by its name
        "_total",
    )
    for family in Scrape(await played()).families:
        if family.name.startswith(("process_", "python_")):
            continue
        for sample in family.samples:
            assert sample.name.startswith("ustreamer_")
            if family.type == "counter":
                assert sample.name.endswith("_total")
            elif family.type == "gauge":
                assert sample.name.endswith(units[:-1]) or sample.name in WITHOUT_UNIT
            else:
                assert family.name.endswith("_seconds")


async def test_what_never_moved_is_left_out_but_for_the_two_that_say_so() -> None:
    async with RouterHarness() as harness:
        harness.arrive("vehicle", harness.speed())
        scrape = Scrape(harness)
        idle = {name for name, labels in scrape.samples if ("route", "cloud-vehicle") in labels}
        moved = {name for name, labels in scrape.samples if ("route", "vehicle-cloud") in labels}
        assert idle == {"ustreamer_accepted_messages_total", "ustreamer_queue_messages"}
        assert moved >= idle | {
            "ustreamer_outcomes_total",
            "ustreamer_queue_bytes",
            "ustreamer_in_daemon_latency_seconds_sum",
        }
        assert "ustreamer_retries_total" not in moved


def crowded(endpoints: int) -> RouterHarness:
    """A router with so many endpoints, each with a route to the next, and nothing else configured."""
    names = [f"e{number}" for number in range(endpoints)]
    return RouterHarness(
        configuration(
            endpoints={name: {"transport": "memory", "authorities": [name]} for name in names},
            routes=[{"from": name, "to": far} for name, far in pairwise(names)],
            dead_letter={"endpoints": ["origin"]},
        )
    )


async def test_no_turn_of_the_event_loop_copies_more_than_some_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = crowded(60)
    turns: list[int] = [0]
    copy = RouteStats.copy

    def counted(stats: RouteStats) -> RouteStats:
        turns[-1] += 1
        return copy(stats)

    monkeypatch.setattr(RouteStats, "copy", counted)
    exposition = Exposition(harness.router)
    scraping = asyncio.create_task(exposition.scrape())
    while not scraping.done():
        turns.append(0)
        await asyncio.sleep(0)
    assert sum(turns) == len(list(harness.router.accounts()))
    assert max(turns) == _ROUTES_PER_ITERATION
    Scrape(harness, exposition).check_books()


async def test_a_reload_during_a_scrape_disturbs_nothing() -> None:
    harness = crowded(60)
    await harness.router.start()
    scraping = asyncio.create_task(Exposition(harness.router).scrape())
    await asyncio.sleep(0)
    fewer = harness.config.model_copy(update={"routes": harness.config.routes[:1]})
    await Reload(harness.router, fewer).run()
    assert b'route="e0-e1"' in await scraping


async def test_who_asks_during_a_scrape_gets_the_same_text() -> None:
    async with RouterHarness() as harness:
        exposition = Exposition(harness.router)
        first, second = await asyncio.gather(exposition.scrape(), exposition.scrape())
        assert first is second
        assert await exposition.scrape() is not first


async def test_who_goes_away_during_a_scrape_ends_it_for_nobody_else() -> None:
    async with RouterHarness() as harness:
        exposition = Exposition(harness.router)
        gone, patient = (asyncio.create_task(exposition.scrape()) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        assert b"ustreamer_accepted_messages_total" in await patient


async def test_every_route_balances_at_every_scrape() -> None:
    harness = await played()
    scrape = Scrape(harness)
    scrape.check_books()
    assert scrape.sum("ustreamer_queue_messages", route="vehicle-cloud") == 2
    harness.transports["cloud"].release_withheld()
    after = Scrape(harness)
    after.check_books()
    assert after.sum("ustreamer_queue_messages", route="vehicle-cloud") == 0


async def test_counters_have_the_values_of_what_happened() -> None:
    harness = await played()
    scrape = Scrape(harness)
    up = {"route": "vehicle-cloud", "ingress": "vehicle", "egress": "cloud"}
    assert scrape.sum("ustreamer_outcomes_total", **up, outcome="delivered", code="OK") == 2
    assert scrape.sum("ustreamer_outcomes_total", **up, outcome="dead_lettered", code="PERMISSION_DENIED") == 1
    assert scrape.sum("ustreamer_outcomes_total", **up, outcome="dead_lettered", code="RESOURCE_EXHAUSTED") == 1
    assert scrape.sum("ustreamer_retries_total", **up) == 1
    assert scrape.sum("ustreamer_dead_letters_total", route="vehicle-cloud", code="PERMISSION_DENIED") == 1
    assert scrape.sum("ustreamer_dead_letters_total", route="none", code="UNAUTHENTICATED") == 1
    assert scrape.sum("ustreamer_outcomes_total", route="none", ingress="vehicle", outcome="duplicate", code="OK") == 1
    assert scrape.sum("ustreamer_outcomes_total", route="none", ingress="cloud", outcome="unwanted") == 1
    assert scrape.sum("ustreamer_received_messages_total", endpoint="vehicle", transport="memory") == 7
    assert scrape.sum("ustreamer_received_messages_total", endpoint="cloud") == 3
    assert scrape.sum("ustreamer_in_flight_messages", endpoint="cloud") == 2
    assert scrape.sum("ustreamer_queue_bytes", **up) > 1000


async def test_age_of_the_oldest_waiting_message_grows_and_goes() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", harness.speed())
        harness.pass_time(2500)
        assert Scrape(harness).sum("ustreamer_queue_oldest_age_seconds", route="vehicle-cloud") == pytest.approx(2.5)
        assert Scrape(harness).sum("ustreamer_endpoint_up", endpoint="cloud") == 0
        assert Scrape(harness).sum("ustreamer_endpoint_up", endpoint="vehicle") == 1
        harness.transports["cloud"].restore_link()
        assert Scrape(harness).sum("ustreamer_queue_oldest_age_seconds", route="vehicle-cloud") == 0


async def test_problems_of_an_endpoint_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RouterHarness() as harness:
        monkeypatch.setattr(harness.transports["cloud"], "report", lambda: Report(["one", "two"]))
        assert Scrape(harness).sum("ustreamer_endpoint_problems", endpoint="cloud", transport="memory") == 2
        assert Scrape(harness).sum("ustreamer_endpoint_problems", endpoint="vehicle") == 0


async def test_an_endpoint_without_a_peer_is_not_up() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].set_state(LinkState.ALONE)
        assert Scrape(harness).sum("ustreamer_endpoint_up", endpoint="cloud") == 0


@pytest.mark.parametrize(
    ("wait_ms", "first"), [(0, 0.0005), (100, 0.1), (101, 0.25), (60_000, 60.0), (60_001, float("inf"))]
)
async def test_latency_falls_into_the_first_bucket_that_holds_it(wait_ms: int, first: float) -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].is_withholding = True
        message = harness.speed()
        harness.clock.ms += 0
        harness.arrive("vehicle", message)
        harness.clock.ms += wait_ms
        harness.clock.s = 100.0 + wait_ms / 1000
        harness.transports["cloud"].release_withheld()
        scrape = Scrape(harness)
        up = {"route": "vehicle-cloud", "ingress": "vehicle", "egress": "cloud"}
        name = "ustreamer_end_to_end_latency_seconds"
        buckets = {
            float(dict(labels)["le"]): value
            for (sample, labels), value in scrape.samples.items()
            if sample == f"{name}_bucket" and up.items() <= dict(labels).items()
        }
        assert sorted(buckets) == [*LATENCY_BOUNDS, float("inf")]
        assert buckets == {bound: float(bound >= first) for bound in buckets}
        assert scrape.sum(f"{name}_count", **up) == 1
        assert scrape.sum(f"{name}_sum", **up) == pytest.approx(wait_ms / 1000)


async def test_message_from_the_future_counts_as_no_latency() -> None:
    async with RouterHarness() as harness:
        message = harness.speed()
        harness.clock.ms -= 5000
        harness.arrive("vehicle", message)
        assert Scrape(harness).sum("ustreamer_end_to_end_latency_seconds_sum", route="vehicle-cloud") == 0


async def test_no_series_appears_twice_when_a_route_goes_and_comes_back() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", harness.speed())
        everything = harness.config
        await Reload(harness.router, everything.model_copy(update={"routes": everything.routes[1:]})).run()
        Scrape(harness).check_books()
        await Reload(harness.router, everything).run()
        harness.arrive("vehicle", harness.speed())
        scrape = Scrape(harness)
        scrape.check_books()
        assert scrape.sum("ustreamer_accepted_messages_total", route="vehicle-cloud") == 2


async def test_reloads_and_lag_are_exposed() -> None:
    async with RouterHarness() as harness:
        exposition = Exposition(harness.router)
        for _ in range(2):
            exposition.count_reload("refused")
        exposition.lag.observe(0.25)
        scrape = Scrape(harness, exposition)
        assert scrape.sum("ustreamer_reloads_total", result="refused") == 2
        assert scrape.sum("ustreamer_reloads_total", result="ok") == 0
        assert scrape.sum("ustreamer_event_loop_lag_seconds_sum") == 0.25
        assert scrape.sum("ustreamer_event_loop_lag_seconds_bucket", le="0.1") == 0
        assert scrape.sum("ustreamer_event_loop_lag_seconds_bucket", le="0.25") == 1
        assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")


async def test_the_journal_has_metrics_if_there_is_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db", 1 << 20, BOUNDS, lambda call, *args: None)
    assert journal.start(lambda: None).wait(10)
    try:
        async with RouterHarness(journal=journal) as harness:
            scrape = Scrape(harness)
            assert scrape.sum("ustreamer_journal_up") == 1
            assert scrape.sum("ustreamer_journal_max_bytes") == 1 << 20
            assert scrape.sum("ustreamer_journal_commits_total") == scrape.sum("ustreamer_journal_bytes") == 0
    finally:
        journal.stop(10)


async def test_a_journal_that_cannot_be_used_makes_the_streamer_unready(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("no directory")
    journal = Journal(tmp_path / "occupied" / "j.db", 1 << 20, BOUNDS, lambda call, *args: None)
    assert journal.start(lambda: None).wait(10)
    try:
        async with RouterHarness(journal=journal) as harness:
            assert Scrape(harness).sum("ustreamer_journal_up") == 0
            (reason,) = unready(harness.router)
            assert reason.startswith("journal: ")
    finally:
        journal.stop(10)


async def test_two_expositions_in_one_process_do_not_collide() -> None:
    async with RouterHarness() as one, RouterHarness() as other:
        assert await asyncio.to_thread(Exposition(one.router).text)
        assert await asyncio.to_thread(Exposition(other.router).text)
