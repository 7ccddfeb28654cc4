"""What arrived over Zenoh is not reported as failed, whoever leaves afterwards, and nobody gets anything for ever."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.e2e.topology import Topology
from tests.independent.message import Plain
from tests.independent.zenoh import ZenohSide
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

CALLER, SERVICE = ("alpha", 1, 1, 0), ("beta", 2, 1, 7)
TTL_MS = 3000
COUNT = 20


@asynccontextmanager
async def _vehicle_joins(**changes: Any) -> AsyncIterator[tuple[Topology, str]]:
    """The daemon listens on Zenoh, and is alone there: programs come to it and leave again."""
    listen = free_endpoint()
    options = {"listen": [listen], "uncertain_s": 15}
    async with Topology("mqtt/off-vehicle", "zenoh", second_options=options, **changes) as topology:
        side = topology.networks[1].side
        assert isinstance(side, ZenohSide)
        await asyncio.to_thread(side.session.close)
        await until(lambda: topology.daemon.log.count("zenoh_node_lost") == 1, "nobody is there")
        yield topology, listen


def _message(kind: int, number: int, ttl: int | None) -> Plain:
    """A Notification, a Response to something, a Request or a Publish for the vehicle."""
    topic, app = ("alpha", 1, 1, 0x8000), ("beta", 2, 1, 0)
    payload = b"%d" % number
    match kind:
        case 1:
            return Plain(1, topic, None, payload, ttl=ttl)
        case 2:
            return Plain(2, CALLER, SERVICE, payload, priority=5, ttl=ttl or TTL_MS)
        case 3:
            return Plain(3, ("alpha", 1, 1, 9), app, payload, priority=5, ttl=ttl or TTL_MS, reqid=Plain(2, CALLER).id)
        case _:
            return Plain(4, topic, app, payload, ttl=ttl)


async def _outcomes(topology: Topology) -> dict[str, int]:
    """How the messages for the vehicle ended, but for those that wait."""
    names = ("delivered", "unconfirmed", "expired", "dead_lettered", "unheard", "rejected")
    found = {
        name: await asyncio.to_thread(topology.daemon.total, "ustreamer_outcomes_total", route="first-second", outcome=name)
        for name in names
    }
    return {name: int(number) for name, number in found.items() if number}


async def _until_ended(topology: Topology, count: int) -> dict[str, int]:
    ended: dict[str, int] = {}

    async def has_ended() -> None:
        nonlocal ended
        while sum((ended := await _outcomes(topology)).values()) < count:
            await asyncio.sleep(0.1)

    await asyncio.wait_for(has_ended(), 60)
    return ended


@pytest.mark.parametrize(
    ("kind", "ttl"),
    [(1, TTL_MS), (1, None), (2, TTL_MS), (3, TTL_MS), (4, TTL_MS), (4, None)],
    ids=["Publish", "Publish without TTL", "Request", "Response", "Notification", "Notification without TTL"],
)
async def test_what_was_received_by_a_program_that_then_closes_its_session_is_no_failure(kind: int, ttl: int | None) -> None:
    async with _vehicle_joins(queue_policy={"absent_s": 2}) as (topology, listen):
        mqtt, daemon = topology.networks[0], topology.daemon
        async with ZenohSide(connect=[listen]) as program:
            await until(lambda: daemon.log.count("zenoh_node_found") == 2, "the program")
            sent = [_message(kind, number, ttl) for number in range(COUNT)]
            for message in sent:
                await mqtt.side.send([mqtt.as_sent(message)])
            await until(lambda: len(program.arrived) == COUNT, "all of them")
        ended = await _until_ended(topology, COUNT)
        assert ended.keys() <= {"delivered", "unconfirmed"}
        assert sum(ended.values()) == COUNT
        assert "message_dead_lettered" not in daemon.log
        assert [each for each in mqtt.side.arrived if each.type == 3] == []  # no DEADLINE_EXCEEDED


async def test_an_answered_request_is_delivered_although_the_service_leaves_at_once() -> None:
    async with _vehicle_joins() as (topology, listen):
        mqtt, daemon = topology.networks[0], topology.daemon
        async with ZenohSide(connect=[listen]) as service:
            await until(lambda: daemon.log.count("zenoh_node_found") == 2, "the service")
            for number in range(COUNT):
                await mqtt.side.send([request := _message(2, number, TTL_MS)])
                await until(lambda: len(service.arrived) == number + 1, "the Request")  # noqa: B023 - called at once
                answer = Plain(3, SERVICE, CALLER, priority=5, ttl=TTL_MS, reqid=request.id)
                await service.send([answer])
            await until(lambda: len(mqtt.side.arrived) == COUNT, "all answers")
        assert await _until_ended(topology, COUNT) == {"delivered": COUNT}
        assert len(mqtt.side.arrived) == COUNT


_RECEIVER = """
import asyncio, json, sys
from tests.independent.message import id_text
from tests.independent.zenoh import ZenohSide

async def main():
    async with ZenohSide(connect=[sys.argv[1]]) as side:
        seen = 0
        print("ready", flush=True)
        while True:
            await side.news.wait()
            side.news.clear()
            for message in side.arrived[seen:]:
                print(message.payload.decode(), flush=True)
                seen += 1

asyncio.run(main())
"""


class CrashingReceiver:
    """A program that listens, and is killed. ``copies``: how often each payload has come to it, over all its lives."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.copies: dict[str, int] = {}
        self.is_ready = asyncio.Event()

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        self.is_ready.clear()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _RECEIVER, self._endpoint, stdout=asyncio.subprocess.PIPE, env=os.environ
        )
        assert process.stdout is not None
        reading = asyncio.create_task(self._read(process.stdout))
        try:
            await asyncio.wait_for(self.is_ready.wait(), 30)
            yield
        finally:
            process.send_signal(signal.SIGKILL)
            await process.wait()
            await reading

    async def _read(self, lines: asyncio.StreamReader) -> None:
        async for line in lines:
            text = line.decode().strip()
            if text == "ready":
                self.is_ready.set()
            else:
                self.copies[text] = self.copies.get(text, 0) + 1


async def test_a_sole_receiver_in_a_crash_loop_gets_nothing_more_than_three_times_and_misses_nothing_when_it_lives() -> None:
    async with _vehicle_joins() as (topology, listen):
        mqtt, daemon = topology.networks[0], topology.daemon
        receiver = CrashingReceiver(listen)
        number = 0
        for life in range(1, 6):
            async with receiver.life():
                await until(lambda: daemon.log.count("zenoh_node_found") == 1 + life, "its node")  # noqa: B023
                for _ in range(10):
                    await mqtt.side.send([mqtt.as_sent(_message(4, number, None))])
                    number += 1
                await until(lambda: str(number - 1) in receiver.copies, "the latest message")  # noqa: B023
            await until(lambda: daemon.log.count("zenoh_node_lost") == 1 + life, "its end")  # noqa: B023
        assert max(receiver.copies.values()) <= 3
        assert sorted(map(int, receiver.copies)) == list(range(number))


async def test_a_subscription_that_flaps_has_nothing_sent_more_than_three_times_and_a_flow_beside_it_goes_on() -> None:
    async with _vehicle_joins(journal=None) as (topology, listen):
        mqtt, daemon = topology.networks[0], topology.daemon
        steady = ("beta", 3, 1, 0)
        async with ZenohSide(connect=[listen], keys=["up/*/*/*/*/*/beta/3/0/1/0"]) as side:
            await until(lambda: daemon.log.count("zenoh_node_found") == 2, "the node")
            flapped: list[bytes] = []
            ends = threading.Event()

            def flap() -> None:
                while not ends.is_set():
                    subscriber = side.session.declare_subscriber(
                        "up/*/*/*/*/*/beta/2/0/1/0", lambda sample: flapped.append(sample.payload.to_bytes())
                    )
                    ends.wait(0.05)
                    subscriber.undeclare()
                    ends.wait(0.05)

            flapping = asyncio.create_task(asyncio.to_thread(flap))
            try:
                for number in range(100):
                    beside = Plain(4, ("alpha", 1, 1, 0x8000), steady, b"%d" % number)
                    await mqtt.side.send([_message(4, number, None), beside])
                await until(lambda: len(side.arrived) >= 100, "the steady flow")
            finally:
                ends.set()
                await flapping
        copies = {payload: flapped.count(payload) for payload in flapped}
        assert max(copies.values()) <= 3
        assert [each.payload for each in side.arrived] == [b"%d" % number for number in range(100)]
