"""Two brokers, one daemon: the broker that it is connected to is killed, fifty times in turn, under load.

A message has arrived when a broker has confirmed it to the daemon, which is read on the link: what a killed broker loses
after that is its own loss.
"""

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import Mosquitto
from tests.configurations import config_of, endpoint_of
from tests.fault.mqtt_tap import MqttTap
from tests.fault.proxy import Direction, Proxy
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.ports import HOST
from tests.process import StreamerProcess
from tests.waiting import until

ROUNDS = 50
BEFORE, AFTER = 30, 10
"""Messages sent before and after each kill."""

logger = logging.getLogger(__name__)

pytestmark = [pytest.mark.mosquitto, pytest.mark.timeout(300)]


class Ways:
    """Two brokers, each behind a proxy. ``accepted``: the numbers of the brokers that accepted a connection, in order."""

    def __init__(self) -> None:
        self.brokers = [Mosquitto(), Mosquitto()]
        self.taps = [Watch(self, number) for number in range(2)]
        self.proxies = [Proxy(broker.port, tap) for broker, tap in zip(self.brokers, self.taps, strict=True)]
        self.accepted: list[int] = []
        self.both_at_once = 0
        """CONNECTs to one broker while there was a connection to the other one."""

    async def __aenter__(self) -> "Ways":
        async with AsyncExitStack() as stack:
            for broker, proxy in zip(self.brokers, self.proxies, strict=True):
                stack.enter_context(broker)
                await stack.enter_async_context(proxy)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @property
    def urls(self) -> list[str]:
        return [f"mqtt://{HOST}:{proxy.port}" for proxy in self.proxies]


class Watch(MqttTap):
    """What passes on the way to one of the brokers."""

    def __init__(self, ways: Ways, number: int) -> None:
        super().__init__()
        self._ways = ways
        self._number = number

    def passed(self, link: int, direction: Direction, data: bytes) -> None:
        if direction is Direction.FORWARD and data[0] == 0x10:
            self._ways.both_at_once += self._ways.proxies[1 - self._number].open_links
        elif direction is Direction.BACK and data[0] == 0x20:
            self._ways.accepted.append(self._number)
        super().passed(link, direction, data)


def notifications(count: int) -> list[Plain]:
    source, sink = ("alpha", 0x20000, 1, 0x8001), ("beta", 3, 1, 0)
    return [Plain(4, source, sink, str(number).encode(), payload_format=4) for number in range(count)]


def configuration(near: Mosquitto, urls: list[str], options: dict[str, Any]) -> dict[str, Any]:
    far = {"broker": urls, **options}
    return config_of({"near": endpoint_of("mqtt5", "alpha", broker=near.url), "far": endpoint_of("mqtt5", "beta", **far)})


@pytest.mark.parametrize(
    "options", [{"prefer": "last-good"}, {"prefer": "first", "return_after_s": 0.2}], ids=["last-good", "first"]
)
async def test_fifty_kills_in_turn_lose_nothing_and_there_is_never_a_connection_to_both(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    switches_s = []
    sent: set[bytes] = set()
    with Mosquitto() as near:
        async with (
            Ways() as ways,
            StreamerProcess(tmp_path, configuration(near, ways.urls, options)) as daemon,
            MqttSide(near.port, "off-vehicle", []) as side,
        ):

            async def send(count: int) -> None:
                messages = notifications(count)
                sent.update(message.id for message in messages)
                await side.send(messages)

            for _ in range(ROUNDS):
                await send(BEFORE)
                used, connections = ways.accepted[-1], len(ways.accepted)
                begun_s = time.monotonic()
                await asyncio.to_thread(ways.brokers[used].kill)
                await send(AFTER)
                await until(lambda: 1 - used in ways.accepted[connections:], "the other broker")  # noqa: B023
                switches_s.append(time.monotonic() - begun_s)
                await asyncio.to_thread(ways.brokers[used].start)
            await daemon.until_total(len(sent), "ustreamer_outcomes_total", route="near-far", outcome="delivered")
            daemon.check_books()
            assert daemon.total("ustreamer_outcomes_total") == len(sent) == ROUNDS * (BEFORE + AFTER)
    assert sent == ways.taps[0].confirmed | ways.taps[1].confirmed
    assert ways.both_at_once == 0
    assert len(ways.accepted) > ROUNDS
    most_s, middle_s = max(switches_s), sorted(switches_s)[ROUNDS // 2]
    logger.warning("a switch took %.2f s in the middle, %.2f s at the most", middle_s, most_s)
