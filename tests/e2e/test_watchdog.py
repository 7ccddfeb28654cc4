"""An endpoint that is up and makes no progress is connected anew: Zenoh by the watchdog, MQTT by `ack_timeout_s`."""

import threading
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from streamer.daemon import reload
from streamer.transports.base import LinkState
from streamer.transports.link_error import LinkFailure
from streamer.transports.zenoh.transport import ZenohTransport
from streamer.uprotocol.message import publish
from tests.flow.harness import SPEED
from tests.mqtt_peer import BrokerConnection, FakeBroker, meanwhile
from tests.unit.features.api.daemon import DaemonHarness, running
from tests.unit.features.api.played import now_ms
from tests.waiting import until
from tests.zenoh_peers import RawSubscriber, free_endpoint, raw_peer

NUMBER = 20


def send(served: DaemonHarness) -> None:
    for number in range(NUMBER):
        served.arrive("vehicle", publish(now_ms(served), SPEED, b"%d" % number))


def configured(folder: Path, transport: str, **options: Any) -> dict[str, Any]:
    return {
        "vehicle": {"transport": "memory", "authorities": ["veh1"], "options": {"bus": str(folder)}},
        "cloud": {"transport": transport, "authorities": ["*"], "options": options},
    }


async def test_a_put_that_never_returns_costs_the_session_and_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ZenohTransport, "stall_s", 0.5)
    monkeypatch.setattr(reload, "_WATCH_S", 0.1)
    endpoint, over = free_endpoint(), threading.Event()

    def hang(message: object) -> None:
        over.wait()

    with raw_peer(listen=[endpoint]) as peer:
        inbox = RawSubscriber(peer)
        endpoints = configured(tmp_path, "zenoh", connect=[endpoint])
        try:
            async with running(tmp_path, endpoints=endpoints) as served:
                first = served.daemon.transports["cloud"]
                assert isinstance(first, ZenohTransport)
                await until(lambda: first.state is LinkState.UP)
                assert first._opened is not None
                monkeypatch.setattr(first._opened.sender, "_put", hang)
                monkeypatch.setattr(first._opened.sender, "_has_room", lambda: False)  # as behind a router
                send(served)
                await until(lambda: served.daemon.transports["cloud"] is not first, "another transport")
                error = served.daemon.transports["cloud"].last_error
                assert error is not None
                assert error.reason is LinkFailure.TIMEOUT
                assert error.text.startswith("no progress for 0.5 s, with ")
                await until(lambda: len({each.payload for each in inbox.messages()}) == NUMBER)
        finally:
            over.set()


async def test_a_broker_that_answers_pings_and_confirms_nothing_is_connected_to_anew(tmp_path: Path) -> None:
    """`ack_timeout_s` does that, so no watchdog is needed for MQTT."""

    async def serve(peer: BrokerConnection, confirms: bool) -> None:
        await peer.accept(receive_max=4)
        while True:
            packet = await peer.next_packet()
            if isinstance(packet, mqtt5.PingReqPacket):
                peer.write(mqtt5.PingRespPacket())
            elif isinstance(packet, mqtt5.SubscribePacket):
                granted = [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE] * len(packet.topic_filters)
                peer.write(mqtt5.SubAckPacket(packet.packet_id, granted))
            elif isinstance(packet, mqtt5.PublishPacket) and confirms:
                peer.write(mqtt5.PubAckPacket(packet.packet_id or 0))

    async with FakeBroker().running() as broker:
        options = {"broker": broker.url, "topics": "in-vehicle", "ack_timeout_s": 0.5}
        endpoints = configured(tmp_path, "mqtt5", **options, reconnect={"initial_ms": 20, "max_ms": 100})
        async with running(tmp_path, endpoints=endpoints) as served, meanwhile(serve(await broker.peer(), confirms=False)):
            cloud = served.daemon.transports["cloud"]
            await until(lambda: cloud.state is LinkState.UP)
            send(served)
            again = await broker.peer()
            assert cloud.last_error is not None
            assert cloud.last_error[:2] == (LinkFailure.TIMEOUT, "no PUBACK within 0.5 s")
            async with meanwhile(serve(again, confirms=True)):
                stats = next(each for each in served.daemon.router.accounts() if each.source == "vehicle").stats
                await until(lambda: stats.settled == NUMBER)
                assert {outcome.value for outcome, _ in stats.outcomes} == {"delivered"}
