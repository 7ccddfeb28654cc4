"""The HTTP port, asked over HTTP."""

import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamer.config.metrics import MetricsConfig
from streamer.features.api.metrics import CONTENT_TYPE, Exposition
from streamer.features.api.readiness import alone, link_of, summary, unready
from streamer.features.api.server import AdminServer
from streamer.journal.moments import as_moment
from streamer.transports.base import LinkFailure, LinkState, Report
from tests.clock import START_MS
from tests.flow.harness import RouterHarness
from tests.ports import free_port


@pytest.fixture
async def harness() -> AsyncIterator[RouterHarness]:
    """A router that is not started yet."""
    harness = RouterHarness()
    yield harness
    for transport in harness.transports.values():
        await transport.stop()


@pytest.fixture
async def http(harness: RouterHarness) -> AsyncIterator[aiohttp.ClientSession]:
    port = free_port()
    server = AdminServer(harness.router, Exposition(harness.router), MetricsConfig(listen=f"127.0.0.1:{port}"))
    await server.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session
    await server.stop()


async def test_metrics_are_served_in_the_prometheus_format(harness: RouterHarness, http: aiohttp.ClientSession) -> None:
    await harness.router.start()
    harness.arrive("vehicle", harness.speed())
    async with http.get("/metrics") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == CONTENT_TYPE
        families = {family.name: family for family in text_string_to_metric_families(await answer.text())}
    delivered = [s.value for s in families["ustreamer_outcomes"].samples if s.labels["outcome"] == "delivered"]
    assert delivered == [1]


async def test_metrics_are_compressed_for_who_takes_that(http: aiohttp.ClientSession) -> None:
    async with http.get("/metrics", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert "ustreamer_accepted_messages_total" in await answer.text()
    async with http.get("/metrics", headers={"Accept-Encoding": "identity"}) as answer:
        assert "Content-Encoding" not in answer.headers


async def test_health_says_ok_even_when_nothing_is_connected(http: aiohttp.ClientSession) -> None:
    async with http.get("/healthz") as answer:
        assert (answer.status, await answer.text()) == (200, "ok\n")


async def test_readiness_gives_its_reasons_until_every_endpoint_is_connected(
    harness: RouterHarness, http: aiohttp.ClientSession
) -> None:
    async with http.get("/readyz") as answer:
        assert answer.status == 503
        told = await answer.json()
        assert (told["ready"], told["notes"]) == (False, [])
        since = as_moment(START_MS)
        assert told["reasons"] == [
            f"endpoint vehicle (memory) is not connected since {since}",
            f"endpoint cloud (memory) is not connected since {since}",
        ]
        unknown: dict[str, object] = {
            "addresses": [],
            "connected_to": [],
            "first_error": None,
            "last_error": None,
            "next_attempt": None,
        }
        assert told["endpoints"] == [
            {
                "name": name,
                "transport": "memory",
                "state": "down",
                "since": since,
                "why": f"is not connected since {since}",
                **unknown,
            }
            for name in ("vehicle", "cloud")
        ]
    await harness.router.start()
    async with http.get("/readyz") as answer:
        assert answer.status == 200
        told = await answer.json()
        assert (told["ready"], told["reasons"], told["notes"]) == (True, [], [])
    harness.clock.advance(1000)
    harness.transports["cloud"].lose_link()
    async with http.get("/readyz") as answer:
        assert answer.status == 503
        since = as_moment(START_MS + 1000)
        assert (await answer.json())["reasons"] == [f"endpoint cloud (memory) is not connected since {since}"]


async def test_peer_without_another_peer_yet_is_ready_and_not_all_endpoints_are_connected(harness: RouterHarness) -> None:
    await harness.router.start()
    assert summary(harness.router) == "all endpoints connected"
    harness.transports["vehicle"].set_state(LinkState.ALONE)
    assert unready(harness.router) == []
    text = f"endpoint vehicle (memory) is alone: no other node is connected to it since {as_moment(START_MS)}"
    assert alone(harness.router) == [text]
    assert summary(harness.router) == text


async def test_why_an_endpoint_is_not_connected_is_forgotten_for_readiness_once_it_is(harness: RouterHarness) -> None:
    vehicle = harness.transports["vehicle"]
    vehicle.link_failed(LinkFailure.REFUSED, "connection refused", "veh.example:1883")
    text = f"endpoint vehicle (memory) is not connected since {as_moment(START_MS)}: veh.example:1883: connection refused"
    assert unready(harness.router)[0] == text
    vehicle.link_failed(LinkFailure.TIMEOUT, "no connection", "veh.example:1883")
    assert unready(harness.router)[0] == f"{text}; now veh.example:1883: no connection"
    await harness.router.start()
    assert unready(harness.router) == []
    (account, _) = harness.router.endpoint_accounts()
    told = link_of(account.link)
    assert (told["state"], told["last_error"]["reason"], told["next_attempt"]) == ("up", "timeout", None)
    assert (told["first_error"], told["why"]) == (None, None)


async def test_the_next_attempt_is_told_until_the_link_is_up(harness: RouterHarness) -> None:
    vehicle = harness.transports["vehicle"]
    vehicle.retry_in(2.5)
    (account, _) = harness.router.endpoint_accounts()
    assert link_of(account.link)["next_attempt"] == as_moment(vehicle.context.now_ms() + 2500)
    await harness.router.start()
    (account, _) = harness.router.endpoint_accounts()
    assert link_of(account.link)["next_attempt"] is None


async def test_a_streamer_that_is_about_to_stop_is_not_ready(harness: RouterHarness) -> None:
    await harness.router.start()
    harness.router.is_draining = True
    assert unready(harness.router) == ["draining"]


async def test_endpoint_that_is_connected_and_has_a_problem_is_not_ready(
    harness: RouterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.router.start()
    monkeypatch.setattr(harness.transports["cloud"], "report", lambda: Report(["the broker refused 'a/b'"]))
    assert unready(harness.router) == ["endpoint cloud (memory): the broker refused 'a/b'"]


@pytest.mark.parametrize("path", ["/", "/metrics/x", "/../etc/passwd"])
async def test_other_pages_do_not_exist(path: str, http: aiohttp.ClientSession) -> None:
    async with http.get(path) as answer:
        assert answer.status == 404


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
async def test_pages_are_for_reading_only(path: str, http: aiohttp.ClientSession) -> None:
    async with http.post(path) as answer:
        assert answer.status == 405


async def test_port_that_is_taken_is_an_os_error_and_stopping_afterwards_is_fine(harness: RouterHarness) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = AdminServer(
            harness.router, Exposition(harness.router), MetricsConfig(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        )
        with pytest.raises(OSError, match="address already in use"):
            await server.start()
        await server.stop()
        await server.stop()


async def test_port_is_free_again_after_stopping(harness: RouterHarness) -> None:
    port = free_port()
    for _ in range(2):
        server = AdminServer(harness.router, Exposition(harness.router), MetricsConfig(listen=f"127.0.0.1:{port}"))
        await server.start()
        await server.stop()
