"""`GET /api/v1/history`, asked over HTTP."""

from pathlib import Path
from typing import Any

import aiohttp

from streamer.features.api.history import MAX_ROUTES, SAMPLES
from tests.unit.features.api.live import LiveHarness, serving


async def history(http: aiohttp.ClientSession) -> dict[str, Any]:
    async with http.get("/api/v1/history") as answer:
        assert answer.status == 200
        found: dict[str, Any] = await answer.json()
        return found


def deliver(live: LiveHarness, messages: int) -> None:
    live.flow.arrive("vehicle", *(live.flow.speed() for _ in range(messages)))


async def test_it_begins_empty(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, http):
        found = await history(http)
        assert (found["interval_s"], found["routes"], found["left_out_routes"]) == (10, [], 0)


async def test_every_ten_seconds_a_sample_of_what_moves_and_waits(tmp_path: Path) -> None:
    async with serving(tmp_path) as (live, http):
        live.tick(10_000)
        deliver(live, 20)
        live.tick(10_000)
        live.flow.transports["cloud"].lose_link()
        deliver(live, 7)
        for _ in range(10):
            live.tick(1000)
        found = await history(http)
        assert found["start"] == "2023-11-14T22:13:20Z"
        assert found["routes"] == [
            {
                "name": "vehicle-cloud",
                "accepted_per_s": [0.0, 2.0, 0.7],
                "delivered_per_s": [0.0, 2.0, 0.0],
                "failed_per_s": [0.0, 0.0, 0.0],
                "queued": [0, 0, 7],
            }
        ]


async def test_failures_are_a_series_of_their_own(tmp_path: Path) -> None:
    async with serving(tmp_path) as (live, http):
        live.tick(10_000)
        live.flow.transports["cloud"].lose_link()
        live.flow.arrive("vehicle", *(live.flow.speed(ttl=1000) for _ in range(5)))
        live.flow.pass_time(10_000)
        live.tick()
        routes = {each["name"]: each for each in (await history(http))["routes"]}
        route = routes["vehicle-cloud"]
        assert (sum(route["delivered_per_s"]), round(sum(route["failed_per_s"]) * 10)) == (0, 5)


async def test_it_has_the_last_hour_and_no_more(tmp_path: Path) -> None:
    async with serving(tmp_path) as (live, http):
        for number in range(3 * SAMPLES):
            deliver(live, number % 2)
            live.tick(10_000)
        (route,) = (await history(http))["routes"]
        assert {len(route[name]) for name in ("accepted_per_s", "delivered_per_s", "failed_per_s", "queued")} == {SAMPLES}
        assert route["accepted_per_s"] == [0.0, 0.1] * (SAMPLES // 2)


async def test_routes_beyond_the_bound_are_counted(tmp_path: Path) -> None:
    names = [f"cloud{number}" for number in range(MAX_ROUTES + 3)]
    endpoints = {name: {"transport": "memory", "authorities": [name]} for name in names}
    async with serving(
        tmp_path,
        endpoints=endpoints | {"vehicle": {"transport": "memory", "authorities": ["veh1"]}},
        routes=[{"from": "vehicle", "to": name, "publish": ["//veh1/FFFFFFFF/FF/FFFF"]} for name in names],
    ) as (live, http):
        deliver(live, 1)
        live.tick(10_000)
        found = await history(http)
        assert (len(found["routes"]), found["left_out_routes"]) == (MAX_ROUTES, 3)


async def test_a_long_pause_of_the_machine_is_one_sample(tmp_path: Path) -> None:
    async with serving(tmp_path) as (live, http):
        deliver(live, 10)
        live.tick(3_600_000)
        live.tick(0)
        (route,) = (await history(http))["routes"]
        assert route["accepted_per_s"] == [1.0]
