"""Makes the pictures of docs/features/console.md: `python -m tests.console.screenshots`.

A daemon between a Zenoh network and an MQTT broker carries traffic, holds a paused topic and has dead letters. Only the hour
before is made up, so that nobody has to wait for it.
"""

import asyncio
import math
import os
import random
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Route, ViewportSize, async_playwright

from tests.brokers import Mosquitto
from tests.configurations import config_of, endpoint_of
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.process import StreamerProcess
from tests.programs import require
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

IMAGES = Path(__file__).parents[2] / "docs/images"
MAX_BYTES = 150_000
EVERYTHING = "FFFFFFFF/FF/FFFF"
STRANGER = ("veh1", 0xB, 1, 0x8001)
PAUSED = ("veh1", 0xA8000, 2, 0x8003)
DESK: ViewportSize = {"width": 1280, "height": 860}
PHONE: ViewportSize = {"width": 390, "height": 844}
SHOTS = (
    ("overview", DESK, "light"),
    ("endpoints", DESK, "light"),
    ("routes", DESK, "dark"),
    ("dead-letters", DESK, "light"),
    ("overview", PHONE, "dark"),
    ("dead-letters", PHONE, "light"),
)
TOKEN = "0123456789abcdef0123"


def hour(routes: dict[str, float]) -> dict[str, Any]:
    """A last hour that looks like one."""
    chance = random.Random(7)

    def series(mean: float) -> list[float]:
        wave = (mean * (1 + 0.25 * math.sin(n / 40) + 0.1 * math.sin(n / 7)) for n in range(360))
        return [round(max(0.0, value + chance.gauss(0, mean / 25)), 1) for value in wave]

    found = []
    for name, mean in routes.items():
        accepted = series(mean)
        gap = range(200, 214) if mean > 40 else range(0)  # the link was lost for two minutes
        delivered = [0.0 if n in gap else value for n, value in enumerate(accepted)]
        delivered[214:218] = [value * 4 for value in delivered[214:218]]
        failed = [mean / 4 if n % 90 < 6 else 0.0 for n in range(360)]
        queued = [2] * 360
        queued[200:218] = [int(n * mean * 10) for n in (*range(14), 11, 7, 4, 1)] if gap else [2] * 18
        found.append(
            {
                "name": name,
                "accepted_per_s": accepted,
                "delivered_per_s": delivered,
                "failed_per_s": failed,
                "queued": queued,
            }
        )
    start = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    return {"interval_s": 10, "start": start, "routes": found, "left_out_routes": 0}


def fleet(own: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The endpoints of a gateway with two hundred of them; two are not up."""
    (sample,) = (each for each in own if each["name"] == "cloud")
    many = [{**sample, "name": f"veh{n:03}", "authorities": [f"veh{n:03}.fleet.example"]} for n in range(198)]
    at = {"at": datetime.now(UTC).isoformat(), "when": datetime.now(UTC).isoformat()}
    error = {"reason": "refused", "text": "connection refused", "address": "10.0.7.117:1883", **at}
    why = "10.0.7.117:1883: connection refused"
    many[117] |= {"state": "down", "last_error": {**(sample.get("last_error") or {}), **error}, "why": why}
    many[42] |= {"problems": ["the broker refused the subscription 'veh042/#': NOT_AUTHORIZED (0x87)"]}
    return [*own, *many]


async def traffic(vehicle: ZenohSide, cloud: MqttSide) -> None:
    """About fifty messages a second from the vehicle, ten from the cloud."""
    while True:
        up = [Plain(1, ("veh1", 0xA8000, 2, 0x8000 + n), payload=b'{"speed": 57}', priority=2) for n in range(10)]
        await vehicle.send(up)
        await cloud.send([Plain(1, ("cloud", 0x20, 1, 0x9000 + n), payload=b"{}", priority=2) for n in range(2)])
        await asyncio.sleep(0.2)


async def shoot(browser: Browser, base: str, section: str, size: ViewportSize, scheme: Any) -> None:
    context = await browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    page = await context.new_page()

    async def played(route: Route) -> None:
        await route.fulfill(json=hour({"vehicle-cloud": 50.0, "cloud-vehicle": 10.0}))

    async def many(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(json={"endpoints": fleet((await answer.json())["endpoints"])})

    await page.route("**/api/v1/history", played)
    if section == "endpoints":
        await page.route("**/api/v1/endpoints", many)
    await page.goto(f"{base}/console/#{section}")
    await page.wait_for_selector(f".section.{section}[aria-busy=false]")
    await page.wait_for_function("document.querySelector('#link').textContent === 'live'")
    await page.wait_for_timeout(4000)  # a few rates
    path = IMAGES / f"console-{section}-{'desk' if size is DESK else 'phone'}-{scheme}.png"
    await page.screenshot(path=path)
    await context.close()
    assert path.stat().st_size < MAX_BYTES, path
    print(f"{path.name}: {path.stat().st_size} bytes")  # noqa: T201


async def main() -> None:
    endpoint = free_endpoint()
    with tempfile.TemporaryDirectory() as name, Mosquitto() as broker:
        folder = Path(name)
        (folder / "token").write_text(TOKEN)
        config = config_of(
            {
                "vehicle": endpoint_of("zenoh", "veh1", mode="peer", connect=[endpoint], uncertain_s=1),
                "cloud": endpoint_of("mqtt5", "cloud", broker=broker.url, topics="in-vehicle"),
            },
            [
                {"from": "vehicle", "to": "cloud", "publish": [f"//veh1/{EVERYTHING}"]},
                {"from": "cloud", "to": "vehicle", "publish": [f"//cloud/{EVERYTHING}"]},
            ],
            authority="gateway.veh1",
            permissions={
                "endpoints": {
                    "vehicle": {"rules": [{"allow": {"from": "//veh1/A8000/2/FFFF"}}]},
                    "cloud": {"rules": [{"allow": {}}]},
                }
            },
            journal={"path": str(folder / "journal.db")},
            control={"http_token_file": str(folder / "token")},
        )
        async with (
            ZenohSide(listen=[endpoint]) as vehicle,
            MqttSide(broker.port, "in-vehicle", ["veh1/#"]) as cloud,
            StreamerProcess(folder, config) as daemon,
        ):
            base = f"http://127.0.0.1:{daemon.admin}"
            busy = asyncio.create_task(traffic(vehicle, cloud))
            async with async_playwright() as playwright:
                flags = ["--no-sandbox"] if os.geteuid() == 0 else []
                browser = await playwright.chromium.launch(executable_path=require("chromium"), args=flags)
                request = await playwright.request.new_context(extra_http_headers={"Authorization": f"Bearer {TOKEN}"})
                paused = await request.post(f"{base}/api/v1/pause", data={"topic": "//veh1/A8000/2/8003"})
                assert paused.ok
                late = [Plain(1, PAUSED, payload=b"{}", priority=2, ttl=200 + 50 * n) for n in range(14)]
                await vehicle.send(late)
                await vehicle.send(Plain(1, STRANGER, payload=b"{}", priority=2) for _ in range(3))
                await until(lambda: daemon.total("ustreamer_dead_letters_total") >= 17, what="dead letters")
                for section, size, scheme in SHOTS:
                    await shoot(browser, base, section, size, scheme)
                await request.dispose()
                await browser.close()
            busy.cancel()


if __name__ == "__main__":
    asyncio.run(main())
