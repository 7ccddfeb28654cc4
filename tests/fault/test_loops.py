"""Loops with real brokers, Zenoh and daemon processes: a redundant pair, a kill in the middle, a ring of three.

Deliveries are counted by id at the receivers: as many as there are ways, exactly.
"""

import asyncio
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.brokers import Rumqttd, any_broker
from tests.independent.message import Plain, uuid7
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.process import StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

ANY = "FFFFFFFF/FF/FFFF"
ROUNDS = 150
# At the end everything is delivered and counted; what Zenoh does not confirm need not be waited for.
QUICK_END = {"shutdown": {"drain_s": 1}}


def of_all_kinds(source: str, sink: str, rounds: int = ROUNDS) -> list[Plain]:
    """Publishes, Notifications, Requests and Responses from one authority to another, in turns."""
    messages: list[Plain] = []
    for n in range(rounds):
        payload = n.to_bytes(4, "big")
        messages += [
            Plain(1, (source, 0x100, 1, 0x8001), payload=payload),
            Plain(4, (source, 0x100, 1, 0x8002), (sink, 0x200, 1, 0), payload=payload),
            Plain(2, (source, 0x100, 1, 0), (sink, 0x200, 1, 7), payload=payload, priority=5, ttl=60_000),
            Plain(3, (source, 0x100, 1, 7), (sink, 0x200, 1, 0), payload=payload, priority=5, ttl=60_000, reqid=uuid7()),
        ]
    return messages


def addressed(messages: list[Plain], *authorities: str) -> list[Plain]:
    """As they go onto a network where a Publish needs an address: one copy for each authority."""
    return [
        each
        for message in messages
        for each in ([message.addressed_to(name) for name in authorities] if message.type == 1 else [message])
    ]


def counted(side: MqttSide | ZenohSide) -> Counter[bytes]:
    """Id → deliveries."""
    return Counter(message.id for message in list(side.arrived))


def for_whom(side: MqttSide | ZenohSide, authority: str) -> Counter[bytes]:
    """Id → deliveries of what is for an authority; others' messages pass by on the same network."""
    return Counter(m.id for m in list(side.arrived) if m.sink is None or m.sink[0] == authority)


async def probe(side: MqttSide | ZenohSide, source: str, sink: str, is_linked: Callable[[], bool]) -> list[Plain]:
    """Send until daemons hear each other; what was sent is returned."""
    sent: list[Plain] = []
    while not await asyncio.to_thread(is_linked):
        assert len(sent) < 200, "the daemons do not hear each other"
        sent.append(Plain(4, (source, 0x300, 1, 0x8003), (sink, 0x300, 1, 0)))
        await side.send(sent[-1:])
        await asyncio.sleep(0.05)
    return sent


async def until_both_deliver(side: MqttSide | ZenohSide, messages: list[Plain]) -> None:
    """Some of the messages have come twice."""
    wanted = ids(messages)
    await until(lambda: any(n == 2 and uuid in wanted for uuid, n in counted(side).items()), what="second copies")


async def until_arrived(
    side: MqttSide | ZenohSide, authority: str, expected: Counter[bytes], probes: Counter[bytes]
) -> None:
    """As many as there should be have arrived for an authority, and they are the right ones."""

    def arrived() -> Counter[bytes]:
        found = for_whom(side, authority)
        return Counter({uuid: number for uuid, number in found.items() if uuid not in probes})

    await until(lambda: arrived().total() >= expected.total(), what=f"arrival of everything at {authority}")
    assert arrived() == expected


def ids(messages: list[Plain], times: int = 1) -> Counter[bytes]:
    return Counter({message.id: times for message in messages})


def broker_endpoint(url: str, client_id: str, topics: str, *authorities: str) -> dict[str, Any]:
    options = {"broker": url, "topics": topics, "client_id": client_id}
    return {"transport": "mqtt5", "authorities": list(authorities), "options": options}


def zenoh_endpoint(peers: list[str], *authorities: str, listen: str | None = None) -> dict[str, Any]:
    """Peers do not pass on for each other: daemons that are to hear each other need a link of their own."""
    options = {"mode": "peer", "connect": peers, "listen": [listen] if listen else []}
    return {"transport": "zenoh", "authorities": list(authorities), "options": options}


def route(here: str, there: str, *publish: str, **more: Any) -> dict[str, Any]:
    return {"from": here, "to": there, "publish": [f"//{authority}/{ANY}" for authority in publish], **more}


def has_judged_everything(daemon: StreamerProcess) -> bool:
    """Whether all that its endpoints have received is on an account: no copy is set aside any more."""
    return all(
        daemon.total("ustreamer_received_messages_total", endpoint=name)
        == daemon.total("ustreamer_accepted_messages_total", ingress=name)
        for name in daemon.config["endpoints"]
    )


async def check_that_nothing_failed(*daemons: StreamerProcess) -> None:
    for daemon in daemons:
        await until(lambda daemon=daemon: has_judged_everything(daemon), what="an account of everything")  # type: ignore[misc]
        assert await asyncio.to_thread(daemon.total, "ustreamer_dead_letters_total") == 0
        assert await asyncio.to_thread(daemon.total, "ustreamer_outcomes_total", outcome="rejected") == 0
        await asyncio.to_thread(daemon.check_books)


class Pair:
    """Two daemons between a cloud's broker and a vehicle's Zenoh network, which differ in nothing but their names.

    ``probes`` have gone down to the vehicle already.
    """

    def __init__(self, cloud: MqttSide, vehicle: ZenohSide, daemons: list[StreamerProcess], probes: list[Plain]) -> None:
        self.probes = probes
        self.cloud = cloud
        self.vehicle = vehicle
        self.daemons = daemons


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker, peer, link = stack.enter_context(any_broker()), free_endpoint(), free_endpoint()
        vehicle = await stack.enter_async_context(ZenohSide(listen=[peer]))
        cloud = await stack.enter_async_context(MqttSide(broker.port, "off-vehicle", ["+/cloud"]))
        ways = {"gw1": zenoh_endpoint([peer], "veh1", listen=link), "gw2": zenoh_endpoint([peer, link], "veh1")}
        daemons = [
            StreamerProcess(
                directory,
                {
                    "authority": name,
                    "endpoints": {"vehicle": ways[name], "cloud": broker_endpoint(broker.url, name, "off-vehicle", "*")},
                    "routes": [route("vehicle", "cloud", "veh1", publish_to=["cloud"]), route("cloud", "vehicle")],
                }
                | QUICK_END,
            )
            for name in ways
        ]
        for daemon in daemons:  # in turns: the second one calls the first
            await stack.enter_async_context(daemon)
        probes = await probe(
            cloud, "cloud", "veh1", lambda: all(daemon.total("ustreamer_outcomes_total", route="none") for daemon in daemons)
        )
        yield Pair(cloud, vehicle, daemons, probes)


async def test_pair_delivers_every_message_twice_both_ways() -> None:
    async with pair() as both:
        up, down = of_all_kinds("veh1", "cloud"), of_all_kinds("cloud", "veh1")
        await asyncio.gather(both.vehicle.send(up), both.cloud.send(addressed(down, "veh1")))
        down += both.probes
        await until(lambda: len(both.cloud.arrived) >= 2 * len(up), what="arrival of everything in the cloud")
        await until(lambda: len(both.vehicle.arrived) >= 2 * len(down), what="arrival of everything in the vehicle")
        for daemon in both.daemons:  # nothing more is on its way
            await daemon.until_total(len(up), "ustreamer_accepted_messages_total", route="vehicle-cloud")
            await daemon.until_total(len(down), "ustreamer_accepted_messages_total", route="cloud-vehicle")
        assert counted(both.cloud) == ids(up, 2)
        assert counted(both.vehicle) == ids(down, 2)
        await check_that_nothing_failed(*both.daemons)


async def test_pair_of_which_one_is_killed_in_the_middle_loses_nothing() -> None:
    async with pair() as both:
        up, down = of_all_kinds("veh1", "cloud", 400), of_all_kinds("cloud", "veh1", 400)
        half = len(up) // 2
        sending = asyncio.gather(both.vehicle.send(up[:half]), both.cloud.send(addressed(down[:half], "veh1")))
        await until_both_deliver(both.cloud, up)
        await until_both_deliver(both.vehicle, down)
        both.daemons[0].signal(signal.SIGKILL)
        await both.daemons[0].ended()
        await sending
        await asyncio.gather(both.vehicle.send(up[half:]), both.cloud.send(addressed(down[half:], "veh1")))
        await until(lambda: counted(both.cloud).keys() >= ids(up).keys(), what="arrival of everything in the cloud")
        await until(lambda: counted(both.vehicle).keys() >= ids(down).keys(), what="arrival of everything in the vehicle")
        cloud, vehicle = counted(both.cloud), counted(both.vehicle)
        assert cloud.keys() == ids(up).keys()
        assert vehicle.keys() == ids(down + both.probes).keys()
        assert max(cloud.values()) == 2
        assert {cloud[message.id] for message in up[half:]} == {1}
        # When a node of the Zenoh network is lost, the one that is left may send again what it is not sure of.
        assert max(vehicle.values()) <= 3
        await check_that_nothing_failed(both.daemons[1])


async def test_ring_of_three_delivers_every_message_once_per_way() -> None:
    """a – b – c in a row (gw1, gw2), and a shortcut from a to c (gw3): two ways between a and c, one between the others."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        at_a, at_c, at_b = stack.enter_context(any_broker()), stack.enter_context(Rumqttd()), free_endpoint()
        link = free_endpoint()
        b = await stack.enter_async_context(ZenohSide(listen=[at_b]))
        a = await stack.enter_async_context(MqttSide(at_a.port, "in-vehicle", ["b/#", "c/#"]))
        c = await stack.enter_async_context(MqttSide(at_c.port, "off-vehicle", ["+/c"]))
        endpoints = {
            "gw1": {
                "a": broker_endpoint(at_a.url, "gw1", "in-vehicle", "a"),
                "b": zenoh_endpoint([at_b], "b", "c", listen=link),
            },
            "gw2": {"b": zenoh_endpoint([at_b, link], "a", "b"), "c": broker_endpoint(at_c.url, "gw2", "off-vehicle", "c")},
            "gw3": {
                "a": broker_endpoint(at_a.url, "gw3", "in-vehicle", "a"),
                "c": broker_endpoint(at_c.url, "gw3", "off-vehicle", "c"),
            },
        }
        routes = {
            "gw1": [route("a", "b", "a"), route("b", "a", "b", "c")],
            "gw2": [route("b", "c", "a", "b"), route("c", "b")],
            "gw3": [route("a", "c", "a"), route("c", "a")],
        }
        daemons = [
            StreamerProcess(directory, {"authority": name, "endpoints": endpoints[name], "routes": routes[name]} | QUICK_END)
            for name in endpoints
        ]
        for daemon in daemons:
            await stack.enter_async_context(daemon)
        probes = ids(await probe(c, "c", "a", lambda: max(counted(a).values(), default=0) == 2))
        sent = {
            here: [message for there in "abc" if there != here for message in of_all_kinds(here, there, ROUNDS // 3)]
            for here in "abc"
        }
        await asyncio.gather(a.send(sent["a"]), b.send(sent["b"]), c.send(addressed(sent["c"], "a", "b")))
        ways = {("a", "c"): 2, ("c", "a"): 2}
        for name, side in (("a", a), ("b", b), ("c", c)):
            expected = Counter(
                {
                    message.id: ways.get((source, name), 1)
                    for source in sent
                    for message in sent[source]
                    if source != name and (message.sink or (name,))[0] == name
                }
            )
            await until_arrived(side, name, expected, probes)
        # One Publish of c came for a and for b, and went on to both of them once.
        publishes = sum(message.type == 1 for message in sent["c"])
        await daemons[1].until_total(publishes, "ustreamer_outcomes_total", route="c-b", outcome="duplicate")
        await check_that_nothing_failed(*daemons)
