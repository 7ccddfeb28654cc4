"""Two streamers divide what two brokers have: vehicles on one (off-vehicle), a cloud service on the other (in-vehicle).

vehicles (aiomqtt) ─ fleet's broker ─┬─ gw1 ─┬─ cloud's broker ─ service (aiomqtt)
                                     └─ gw2 ─┘
"""

import asyncio
import copy
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import Mosquitto
from tests.configurations import config_of
from tests.independent.message import Plain, uuid7
from tests.independent.mqtt import MqttSide
from tests.lengths import at_length
from tests.process import StreamerProcess
from tests.waiting import until

pytestmark = pytest.mark.mosquitto

COUNT = at_length(10_000, 1_000)
SERVICE = ("cloud", 0x100, 1, 0)
VEHICLES = [f"veh{number}" for number in range(10)]
UP, DOWN = "fleet-cloud", "cloud-fleet"


@dataclass
class Fleet:
    directory: Path
    fleet: Mosquitto
    cloud: Mosquitto
    vehicles: MqttSide
    service: MqttSide

    def gateway(
        self, name: str, is_shared: bool = True, options: dict[str, Any] | None = None, **sections: Any
    ) -> StreamerProcess:
        """``options`` are further ones of both endpoints."""
        share = ({"share": "gateways"} if is_shared else {}) | (options or {})

        def endpoint(authority: str, broker: Mosquitto, topics: str) -> dict[str, Any]:
            options = {"broker": broker.url, "topics": topics, **share}
            return {"transport": "mqtt5", "authorities": [authority], "options": options}

        (self.directory / name).mkdir(exist_ok=True)
        config: dict[str, Any] = config_of(
            {"fleet": endpoint("*", self.fleet, "off-vehicle"), "cloud": endpoint("cloud", self.cloud, "in-vehicle")},
            authority=name,
            usubscription={"local": []},
            journal={"path": str(self.directory / name / "journal.db")},
        )
        return StreamerProcess(self.directory / name, config | sections)


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        fleet, cloud = stack.enter_context(Mosquitto()), stack.enter_context(Mosquitto())
        reading = [f"+/{vehicle}" for vehicle in VEHICLES]
        vehicles = await stack.enter_async_context(MqttSide(fleet.port, "off-vehicle", reading))
        service = await stack.enter_async_context(MqttSide(cloud.port, "in-vehicle", ["+/+/+/+/+/cloud/#"]))
        yield Fleet(tmp_path, fleet, cloud, vehicles, service)


def notifications(count: int = COUNT) -> list[Plain]:
    return [Plain(4, (VEHICLES[n % 10], 0x200, 1, 0x8001), SERVICE, n.to_bytes(4, "big")) for n in range(count)]


def counted(messages: Iterable[Plain]) -> Counter[bytes]:
    return Counter(message.id for message in messages)


def has_everything(fleet: Fleet, sent: Iterable[Plain]) -> bool:
    return counted(sent).keys() <= counted(fleet.service.arrived).keys()


def answers(side: MqttSide, count: int) -> bool:
    return len(side.arrived) >= count


def copies(gw1: StreamerProcess, gw2: StreamerProcess, count: int) -> bool:
    outcomes = [(gateway, outcome) for gateway in (gw1, gw2) for outcome in ("duplicate", "local")]
    return sum(gateway.total("ustreamer_outcomes_total", outcome=outcome) for gateway, outcome in outcomes) == count


async def test_each_message_goes_through_one_of_them_both_ways(fleet: Fleet) -> None:
    async with fleet.gateway("gw1") as gw1, fleet.gateway("gw2") as gw2:
        sent = notifications()
        await fleet.vehicles.send(sent)
        await until(lambda: len(fleet.service.arrived) >= COUNT, within_s=60, what="arrival of the notifications")
        requests = [Plain(2, SERVICE, (VEHICLES[n % 10], 0x200, 1, 7), priority=5, ttl=60_000) for n in range(COUNT // 10)]
        await fleet.service.send(requests)
        await until(lambda: len(fleet.vehicles.arrived) >= len(requests), within_s=60, what="arrival of the requests")
        asked = list(fleet.vehicles.arrived)
        await fleet.vehicles.send(
            Plain(3, each.sink, each.source, priority=5, ttl=60_000, reqid=each.id) for each in asked if each.sink
        )
        expected = COUNT + len(requests)
        await until(lambda: len(fleet.service.arrived) >= expected, within_s=60, what="arrival of the responses")
        for route, count in ((UP, expected), (DOWN, len(requests))):
            accepted = [gateway.total("ustreamer_accepted_messages_total", route=route) for gateway in (gw1, gw2)]
            assert sum(accepted) == count
            assert all(accepted), accepted
        for gateway in (gw1, gw2):
            await gateway.until_total(0, "ustreamer_queue_messages")
            gateway.check_books()
        # nothing is under way any more: nothing came twice
        assert sum(gateway.total("ustreamer_dead_letters_total") for gateway in (gw1, gw2)) == 0
        assert counted(fleet.vehicles.arrived) == counted(requests)
        answers = [message.reqid for message in fleet.service.arrived if message.reqid]
        assert Counter(answers) == counted(requests)
        assert counted(message for message in fleet.service.arrived if not message.reqid) == counted(sent)


async def test_each_of_them_answers_what_it_is_asked_itself(fleet: Fleet) -> None:
    """Requests to uSubscription of one streamer are not divided, wherever they come from."""
    async with fleet.gateway("gw1") as gw1, fleet.gateway("gw2") as gw2:
        for side, source in ((fleet.vehicles, ("veh1", 0x200, 1, 0)), (fleet.service, SERVICE)):
            asked = {uuid7(): name for name in ("gw1",) * 10 + ("gw2",) * 10}
            await side.send(
                Plain(2, source, (name, 0, 3, 3), priority=5, ttl=60_000, id=reqid) for reqid, name in asked.items()
            )
            await until(partial(answers, side, len(asked)), within_s=30, what="answers")
            assert {each.reqid: each.source[0] for each in side.arrived} == asked
            assert len(side.arrived) == len(asked)
        # Beside "*", everything on the cloud's broker is divided: each of the 20 requests there comes once more, to one of
        # them, and so does each of their answers. None of that goes any further.
        await until(partial(copies, gw1, gw2, 40), within_s=30, what="copies that are set aside")
        assert [gateway.total("ustreamer_dead_letters_total") for gateway in (gw1, gw2)] == [0, 0]
        assert [len(side.arrived) for side in (fleet.vehicles, fleet.service)] == [20, 20]


async def test_what_a_killed_one_had_arrives_once_it_is_back(fleet: Fleet) -> None:
    """SIGKILL with messages in its journal, and with more that it had not acknowledged. The broker deals it more later."""
    full = {"queue": {"messages": 100, "stalled_factor": 0}}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(fleet.gateway("gw1"))
        gw2 = await stack.enter_async_context(fleet.gateway("gw2", queue_policy=full))
        sent = notifications()
        half = COUNT // 2
        await fleet.vehicles.send(sent[: half // 2])
        await until(lambda: len(fleet.service.arrived) == half // 2, within_s=60, what="arrival of the first quarter")
        os.kill(fleet.cloud.pid, signal.SIGSTOP)
        try:
            await fleet.vehicles.send(sent[half // 2 : half])
            await gw2.until_total(100, "ustreamer_queue_messages", route=UP)
            await gw2.until_total(half // 4 - 100, "ustreamer_backlog_messages", endpoint="fleet")
            gw2.signal(signal.SIGKILL)
            await gw2.ended()
        finally:
            os.kill(fleet.cloud.pid, signal.SIGCONT)
        await fleet.vehicles.send(sent[half:])  # confirmed by the broker, all of them: none may be missing in the end
        mine = half // 2 + half // 4 + half // 2  # mosquitto deals in turn, also to a session whose client is away
        await until(lambda: len(counted(fleet.service.arrived)) >= mine, within_s=60, what="what the other one has")
        gw2.start()
        await gw2.until_up()
        await until(lambda: counted(fleet.service.arrived).keys() == counted(sent).keys(), within_s=60, what="everything")
        again = len(fleet.service.arrived) - len(sent)
        assert 0 <= again <= half // 4  # what was unconfirmed when it was killed
        await gw2.until_total(0, "ustreamer_queue_messages")
        gw2.check_books()


async def test_a_share_replaces_the_subscriptions_that_the_sessions_have(fleet: Fleet) -> None:
    """Without a share both get everything. With one nothing of that is left, although the sessions are the same."""
    async with fleet.gateway("gw1", is_shared=False), fleet.gateway("gw2", is_shared=False):
        await fleet.vehicles.send(notifications(10))
        await until(lambda: len(fleet.service.arrived) == 20, within_s=30, what="ten messages, twice")
    async with fleet.gateway("gw1") as gw1, fleet.gateway("gw2") as gw2:
        fleet.service.arrived.clear()
        sent = notifications(100)
        await fleet.vehicles.send(sent)
        await until(lambda: len(fleet.service.arrived) >= 100, within_s=30, what="arrival")
        assert counted(fleet.service.arrived) == counted(sent)
        assert sum(each.total("ustreamer_received_messages_total", endpoint="fleet") for each in (gw1, gw2)) == 100


async def test_one_is_taken_away_for_good(fleet: Fleet) -> None:
    """The broker would go on dealing to its session: it is stopped once more, without one, and leaves the share."""
    sent: list[Plain] = []
    is_over = asyncio.Event()

    async def send() -> None:
        while not is_over.is_set():
            sent.extend(batch := notifications(20))
            await fleet.vehicles.send(batch)

    async with fleet.gateway("gw1") as gw1:
        async with fleet.gateway("gw2"):
            await fleet.vehicles.send(notifications(10))
            await until(lambda: len(fleet.service.arrived) == 10, within_s=30, what="arrival")
        sent += (waiting := notifications(100))
        await fleet.vehicles.send(waiting)  # half of them wait for gw2
        async with fleet.gateway("gw2", options={"session_expiry_s": 0}) as gw2:
            sending = asyncio.create_task(send())
            await until(lambda: gw2.total("ustreamer_accepted_messages_total", route=UP) > 100, within_s=60, what="its part")
            os.kill(fleet.cloud.pid, signal.SIGSTOP)  # so that the stop takes time
            try:
                gw2.signal(signal.SIGTERM)
                await until(lambda: "drain_began" in gw2.log, within_s=30, what="the stop")
                count = len(sent)
                await until(lambda: len(sent) > count + 500, within_s=60, what="more messages")
            finally:
                os.kill(fleet.cloud.pid, signal.SIGCONT)
            assert await gw2.ended() == 0
            assert "unacknowledged_given_up" not in gw2.log
        is_over.set()
        await sending
        await until(partial(has_everything, fleet, sent), within_s=60, what="everything")
        gw1.check_books()


async def test_one_leaves_its_share_by_reloads(fleet: Fleet) -> None:
    """A second share gets everything as well, so that each message comes twice. A half would not, had it not left."""
    async with fleet.gateway("gw1") as gw1, fleet.gateway("gw2") as gw2:
        for changes in ({"session_expiry_s": 0}, {"session_expiry_s": 0, "share": "others"}):
            config = copy.deepcopy(gw2.config)
            for endpoint in config["endpoints"].values():
                endpoint["options"] |= changes
            gw2.write(config)
            reloads = gw2.total("ustreamer_reloads_total", result="ok")
            gw2.signal(signal.SIGHUP)
            await gw2.until_total(reloads + 1, "ustreamer_reloads_total", result="ok")
            await gw2.until_up()
        sent = notifications(100)
        await fleet.vehicles.send(sent)
        await until(lambda: len(fleet.service.arrived) >= 200, within_s=30, what="arrival")
        assert counted(fleet.service.arrived) == counted([*sent, *sent])
        assert [each.total("ustreamer_accepted_messages_total", route=UP) for each in (gw1, gw2)] == [100, 100]
