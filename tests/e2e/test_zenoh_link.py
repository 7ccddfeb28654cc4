"""The Zenoh transport's link: its states, its configuration, stop, and a receiver that stalls."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import zenoh

from streamer.transports.base import UNCONFIRMED, LinkState, MessageParcel, TransportContext, Unconfirmed
from streamer.transports.errors import ConfigurationError, LinkLostError, MayHaveArrivedError, SendError
from streamer.transports.zenoh.nodes import Nodes, linked
from streamer.transports.zenoh.options import ZenohOptions
from streamer.transports.zenoh.transport import ZenohTransport
from streamer.transports.zenoh.wire import key_for
from streamer.uprotocol.message import UMessage, publish
from tests.listeners import RecordingListener
from tests.transport_events import EventLog
from tests.waiting import until
from tests.zenoh_peers import (
    LATE_S,
    OWN,
    TOPIC,
    Outcomes,
    RawSubscriber,
    free_endpoint,
    now_ms,
    open_peer,
    opened,
    put,
    raw_peer,
    running,
    until_heard,
    until_matched,
    until_up,
)

# -- the link


def is_stalled(transport: ZenohTransport) -> bool:
    """Whether messages wait because a put is blocked."""
    return transport._opened is not None and transport._opened.sender._behind


async def test_peer_is_alone_until_another_one_appears() -> None:
    endpoint, events = free_endpoint(), EventLog()
    async with running(events, connect=[endpoint]) as transport:
        await until(lambda: transport.state is LinkState.ALONE, "state ALONE")
        with pytest.raises(LinkLostError):
            await transport.send(publish(now_ms(), TOPIC))
        with raw_peer(listen=[endpoint]):
            await until_up(transport)
            assert events.states == [LinkState.ALONE, LinkState.UP]
            assert events.reconnects == 0


async def test_link_is_up_for_as_long_as_one_node_stays_and_comes_back_with_the_next() -> None:
    endpoint, events = free_endpoint(), EventLog()
    async with running(events, listen=[endpoint]) as transport:
        await until(lambda: transport.state is LinkState.ALONE, "state ALONE")
        one, two = open_peer(connect=[endpoint]), open_peer(connect=[endpoint])
        with one, two:
            await until(lambda: transport._opened is not None and len(transport._opened.nodes.present) == 2, "two nodes")
        await until(lambda: transport.state is LinkState.ALONE, "state ALONE")
        assert events.states == [LinkState.ALONE, LinkState.UP, LinkState.ALONE]
        with raw_peer(connect=[endpoint]):
            await until_up(transport)
            assert events.reconnects == 0  # others may come and go
    assert events.states[-2:] == [LinkState.UP, LinkState.DOWN]


async def test_what_waits_to_be_put_when_one_of_two_nodes_is_lost_is_lost_too() -> None:
    """It may be back before the put that waits, and would get that ahead of those that were put before."""
    endpoint, outcomes, reached, released = free_endpoint(), Outcomes(), threading.Event(), threading.Event()
    taken: list[UMessage] = []

    def blocked(message: UMessage) -> None:
        reached.set()
        released.wait(10)
        taken.append(message)

    async with running(listen=[endpoint]) as transport:
        with raw_peer(connect=[endpoint]):
            with raw_peer(connect=[endpoint]):
                await until(lambda: transport._opened is not None and len(transport._opened.nodes.present) == 2, "two nodes")
                opened(transport).sender._put = blocked
                sent = [MessageParcel(publish(now_ms(), TOPIC, bytes(100_000))) for _ in range(3)]  # too large for the loop
                transport.submit(sent[:2], outcomes.done)
                transport.submit(sent[2:], outcomes.done)
                await until(reached.is_set, "the blocked put")
            await until(lambda: transport._opened is not None and len(transport._opened.nodes.present) == 1, "the loss")
            released.set()
            await until(lambda: len(outcomes.reported) == 3, "every outcome")
            assert transport.state is LinkState.UP
    assert [type(error) for _, error in outcomes.reported] == [MayHaveArrivedError, LinkLostError, LinkLostError]
    assert taken == [sent[0].message]


async def test_client_is_down_without_its_router_and_finds_it_again() -> None:
    endpoint, events = free_endpoint(), EventLog()
    async with running(events, mode="client", connect=[endpoint]) as transport:
        inbox = RecordingListener()
        await transport.register_listener(TOPIC, None, inbox)
        for round_ in range(2):
            with raw_peer(mode="router", listen=[endpoint]) as router:
                await until_up(transport)
                message = publish(now_ms(), TOPIC, b"%d" % round_)
                await until_matched(router, key_for(message.attributes, ""))
                put(router, message)
                await until(lambda: len(inbox.messages) > round_, "the message")  # noqa: B023  # called at once
            await until(lambda: transport.state is LinkState.DOWN, "state DOWN")
        assert events.states == [LinkState.UP, LinkState.DOWN] * 2
        assert events.reconnects == 1


async def test_router_mode_connects_two_clients() -> None:
    endpoint = free_endpoint()
    async with running(mode="router", listen=[endpoint]) as transport:
        await until(lambda: transport.state is LinkState.ALONE, "state ALONE")
        with raw_peer(mode="client", connect=[endpoint]) as one, raw_peer(mode="client", connect=[endpoint]) as two:
            await until_up(transport)
            subscriber = RawSubscriber(one)
            await until_matched(two, key_for(publish(now_ms(), TOPIC).attributes, ""))
            message = publish(now_ms(), TOPIC, b"through us")
            put(two, message)
            await until(subscriber.poll, "the message")
            assert subscriber.messages() == [message]


async def test_nothing_is_listened_on_if_nothing_is_named() -> None:
    before = {c.laddr for c in psutil.Process().net_connections("inet")}
    async with running(connect=[free_endpoint()]) as transport:
        await until(lambda: transport.state is LinkState.ALONE, "state ALONE")
        connections = [c for c in psutil.Process().net_connections("inet") if c.laddr not in before]
        assert [c for c in connections if c.status == psutil.CONN_LISTEN or c.type.name == "SOCK_DGRAM"] == []


async def test_refused_listen_endpoint_is_tried_again() -> None:
    endpoint = free_endpoint()
    with raw_peer(listen=[endpoint]):
        transport_context = running(listen=[endpoint])
        transport = await transport_context.__aenter__()
        await asyncio.wait_for(transport._control.ask(lambda: None), LATE_S)  # type: ignore[union-attr]
        assert transport.state is LinkState.DOWN
    try:
        await until(lambda: transport.state is LinkState.ALONE, "state ALONE")
    finally:
        await transport_context.__aexit__(None, None, None)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param({"listen": ["tcp/127.0.0.1:0", "tcp/192.0.2.1:7447"]}, "tcp/192.0.2.1:7447", id="an address missing"),
        pytest.param({"listen": ["tls/127.0.0.1:0"]}, "TLS private key", id="no certificate"),
        pytest.param({"mode": "client", "connect": ["tcp/127.0.0.1:1"]}, "tcp/127.0.0.1:1", id="no router"),
        pytest.param({"listen": ["serial//dev/null"]}, "serial", id="a protocol that Zenoh was built without"),
    ],
)
async def test_why_the_session_does_not_open_is_a_problem_of_the_endpoint(options: dict[str, Any], reason: str) -> None:
    async with running(**options) as transport:
        assert transport.report().problems == ["Zenoh is opening the session"]
        await until(lambda: "opens no session" in "".join(transport.report().problems), "a failed attempt")
        assert reason in transport.report().problems[0]
        assert ".rs:" not in transport.report().problems[0]
        assert transport.state is LinkState.DOWN


async def test_a_session_that_cannot_be_used_is_a_problem_of_the_endpoint(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(nodes: Nodes) -> None:
        raise zenoh.ZError("no events")

    monkeypatch.setattr(Nodes, "watch", refuse)
    async with running(listen=[free_endpoint()]) as transport:
        await until(lambda: "cannot be used" in "".join(transport.report().problems), "the problem")
        assert transport.state is LinkState.DOWN
    assert "no events" in caplog.text  # with the traceback


# -- who is connected to

HUBS = [("peer", "peer"), ("peer", "router"), ("router", "peer"), ("router", "router"), ("client", "router")]


@pytest.mark.parametrize(("mode", "hub_mode"), HUBS)
async def test_a_node_that_another_one_names_is_not_connected_to(mode: str, hub_mode: str) -> None:
    """The stranger listens, and connects to whom it hears of, but only the hub knows it."""
    hub, stranger, ours = free_endpoint(), free_endpoint(), free_endpoint()
    listen: dict[str, Any] = {} if mode == "client" else {"listen": [ours]}
    with raw_peer(mode=hub_mode, listen=[hub]), raw_peer(listen=[stranger], connect=[hub]) as other:
        async with running(mode=mode, connect=[hub], **listen) as transport:
            await until_up(transport)
            with raw_peer(listen=[free_endpoint()], connect=[hub]) as witness:  # gossip reaches it, and so is through
                await until(lambda: str(other.zid()) in {str(link.zid) for link in witness.info.links()}, "gossip")
            assert transport._session is not None
            assert str(other.zid()) not in linked(transport._session)
            assert str(transport._session.zid()) not in linked(other)


async def test_with_gossip_a_node_that_another_one_names_is_connected_to() -> None:
    hub, stranger = free_endpoint(), free_endpoint()
    with raw_peer(listen=[hub]), raw_peer(listen=[stranger], connect=[hub]) as other:
        async with running(connect=[hub], gossip=True) as transport:
            await until_up(transport)
            await until(lambda: str(other.zid()) in linked(transport._session), "the other one")  # type: ignore[arg-type]


async def test_a_mesh_is_what_connect_names() -> None:
    """Three that all name each other: each hears both others, and nobody was introduced."""
    ours, second, third = free_endpoint(), free_endpoint(), free_endpoint()
    off: dict[str, Any] = {"scouting__gossip__enabled": False}
    with raw_peer(listen=[second], **off) as two, raw_peer(listen=[third], connect=[second], **off) as three:
        async with running(listen=[ours], connect=[second, third]) as transport:
            inbox = RecordingListener()
            await transport.register_listener(TOPIC, None, inbox)
            messages = [publish(now_ms(), TOPIC, b"%d" % number) for number in range(2)]
            for peer, message in zip((two, three), messages, strict=True):
                await until_matched(peer, key_for(message.attributes, ""))
                put(peer, message)
            await until(lambda: len(inbox.messages) == 2, "a message of each")
    assert {message.id for message in inbox.messages} == {message.id for message in messages}


# -- configuration


async def test_config_file_is_used_and_given_keys_override_it(tmp_path: Path) -> None:
    in_file, given = free_endpoint(), free_endpoint()
    file = tmp_path / "zenoh.json5"
    file.write_text(
        "{ mode: 'router', /* JSON5 */ scouting: {multicast: {enabled: false}}, "
        f"listen: {{endpoints: [{json.dumps(in_file)}]}} }}"
    )
    async with running(config_file=file) as transport:
        await until(lambda: transport.state is LinkState.ALONE, "state ALONE")
        with raw_peer(mode="client", connect=[in_file]) as peer:
            await until_up(transport)
            assert peer.info.routers_zid()
    async with running(config_file=file, listen=[given], mode="peer") as transport:
        with raw_peer(mode="peer", connect=[given]) as peer:
            await until_up(transport)
            await until(peer.info.peers_zid, "a peer")
            assert peer.info.routers_zid() == []


@pytest.mark.parametrize(
    ("content", "key"), [(None, "config_file"), ("{mode: 'quux'}", "config_file"), ("{", "config_file")]
)
async def test_bad_config_file_is_a_configuration_error(tmp_path: Path, content: str | None, key: str) -> None:
    file = tmp_path / "zenoh.json5"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigurationError, match=r"zenoh\.json5") as caught:
        async with running(config_file=file):
            pass
    assert caught.value.key == key


async def test_key_in_an_endpoint_is_not_logged_when_nobody_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret, nobody = "VE9QU0VDUkVU", free_endpoint().replace("tcp/", "tls/")
    endpoint = f"{nobody}#connect_private_key_base64={secret};connect_certificate_base64={secret}"
    file = tmp_path / "zenoh.json5"
    file.write_text(json.dumps({"mode": "client", "connect": {"endpoints": [endpoint], "timeout_ms": 100}}))
    async with running(config_file=file):
        await until(lambda: "zenoh_open_failed" in caplog.text, "a failed attempt")
    assert nobody in caplog.text
    assert secret not in caplog.text


def test_client_needs_somebody_to_connect_to() -> None:
    with pytest.raises(ValueError, match="expected connect, scouting or config_file"):
        ZenohOptions(mode="client")
    ZenohOptions(mode="client", scouting=True)
    ZenohOptions(mode="client", connect=["tcp/127.0.0.1:7447"])


@pytest.mark.parametrize("endpoint", ["127.0.0.1:7447", "tcp", "tcp/", "tcp/ x"])
def test_endpoints_need_a_protocol(endpoint: str) -> None:
    with pytest.raises(ValueError, match="expected protocol/address"):
        ZenohOptions(listen=[endpoint])


async def test_stop_can_be_called_twice_and_before_start() -> None:
    async with running(listen=[free_endpoint()]) as transport:
        await transport.stop()
        await transport.stop()
        with pytest.raises(LinkLostError):
            await transport.send(publish(now_ms(), TOPIC))
    unstarted = ZenohTransport(TransportContext("vehicle", OWN), ZenohOptions())
    await unstarted.stop()


async def test_a_transport_that_begins_to_stop_is_down_at_once() -> None:
    """What is submitted meanwhile is refused: with a link that counts as up it would be submitted for ever."""
    endpoint = free_endpoint()
    async with running(listen=[endpoint]) as transport:
        with raw_peer(connect=[endpoint]):
            await until_up(transport)
            states = []
            stopping = asyncio.create_task(transport.stop())
            asyncio.get_running_loop().call_soon(lambda: states.append(transport.state))
            await stopping
            assert states == [LinkState.DOWN]


async def test_what_was_sent_before_stop_arrives() -> None:
    endpoint = free_endpoint()
    with raw_peer(listen=[endpoint]) as peer:
        subscriber, outcomes = RawSubscriber(peer), Outcomes()
        async with running(connect=[endpoint]) as transport:
            await until_up(transport)
            await until_heard(transport, subscriber)
            parcels = [MessageParcel(publish(now_ms(), TOPIC, bytes(1000))) for _ in range(5000)]
            for start in range(0, 5000, 100):
                transport.submit(parcels[start : start + 100], outcomes.done)
        confirmed = [parcel.message for parcel, error in outcomes.reported if error is UNCONFIRMED]
        assert len(outcomes.reported) == 5000
        await until(lambda: len(subscriber.poll()) >= len(confirmed), "everything confirmed")
        assert subscriber.messages()[: len(confirmed)] == confirmed


# -- a receiver that takes nothing any more

_RECEIVER = """
import sys, time
from tests.transport_events import EventLog
from tests.zenoh_peers import open_peer
session = open_peer(connect=[sys.argv[1]])
subscriber = session.declare_subscriber("up/**", lambda sample: None)
print("ready", flush=True)
time.sleep(120)
"""


@asynccontextmanager
async def receiver_process(endpoint: str) -> AsyncIterator["subprocess.Popen[str]"]:
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", _RECEIVER, endpoint],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as process:
        try:
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == "ready\n"
            yield process
        finally:
            process.kill()


@asynccontextmanager
async def heard_by_a_process(wait_before_close_ms: int) -> AsyncIterator[tuple[ZenohTransport, "subprocess.Popen[str]"]]:
    """A transport, and a receiver of its topic that can be stopped."""
    endpoint = free_endpoint()
    async with (
        running(listen=[endpoint], wait_before_close_ms=wait_before_close_ms) as transport,
        receiver_process(endpoint) as process,
    ):
        await until_up(transport)
        assert transport._session is not None
        await until_matched(transport._session, key_for(publish(now_ms(), TOPIC).attributes, ""))
        yield transport, process


async def stall(transport: ZenohTransport, outcomes: Outcomes) -> list[MessageParcel]:
    """Send, one batch per turn of the loop, until nothing gets through any more; returns what was submitted."""
    submitted: list[MessageParcel] = []

    async def send() -> None:
        while not is_stalled(transport) or len(submitted) - len(outcomes.reported) < 500:
            batch = [MessageParcel(publish(now_ms(), TOPIC, bytes(2000))) for _ in range(50)]
            submitted.extend(batch)
            transport.submit(batch, outcomes.done)
            await asyncio.sleep(0.001)

    await asyncio.wait_for(send(), LATE_S)
    return submitted


def order_of(reported: Iterable[tuple[MessageParcel, SendError | Unconfirmed | None]]) -> list[bytes]:
    return [parcel.message.id for parcel, _ in reported]


async def test_loop_keeps_turning_while_a_put_is_blocked() -> None:
    outcomes = Outcomes()
    async with heard_by_a_process(wait_before_close_ms=60_000) as (transport, process):
        process.send_signal(signal.SIGSTOP)
        try:
            submitted = await stall(transport, outcomes)
            turns_blocked = 0
            async with asyncio.timeout(LATE_S):
                while turns_blocked < 300:  # in a row: the same put is blocked still, and has not held up one of them
                    reported = len(outcomes.reported)
                    more = [MessageParcel(publish(now_ms(), TOPIC, bytes(2000)))]
                    submitted += more
                    transport.submit(more, outcomes.done)
                    await asyncio.sleep(0.001)
                    is_blocked = is_stalled(transport) and len(outcomes.reported) == reported
                    turns_blocked = turns_blocked + 1 if is_blocked else 0
        finally:
            process.send_signal(signal.SIGCONT)
        await until(lambda: len(outcomes.reported) == len(submitted), "every outcome")
        assert order_of(outcomes.reported) == [parcel.message.id for parcel in submitted]
        await until(lambda: not is_stalled(transport), "caught up")
        again = Outcomes()
        transport.submit([MessageParcel(publish(now_ms(), TOPIC))], again.done)
        await until(lambda: len(again.reported) == 1, "the outcome of one more")
        assert again.reported[0][1] is UNCONFIRMED


async def test_loop_keeps_turning_while_a_receiver_stalls_message_by_message() -> None:
    """The loop itself puts, as long as no put can block: it has to notice in time."""
    outcomes = Outcomes()
    async with heard_by_a_process(wait_before_close_ms=60_000) as (transport, process):
        process.send_signal(signal.SIGSTOP)
        submitted: list[MessageParcel] = []
        try:
            while not is_stalled(transport):
                more = [MessageParcel(publish(now_ms(), TOPIC, bytes(10_000)))]
                submitted += more
                began_s = asyncio.get_running_loop().time()
                transport.submit(more, outcomes.done)
                assert asyncio.get_running_loop().time() - began_s < 30, "a put has held up the loop"
                await asyncio.sleep(0)
                assert len(submitted) < 10_000, "the receiver has not stalled"
        finally:
            process.send_signal(signal.SIGCONT)
        await until(lambda: len(outcomes.reported) == len(submitted), "every outcome")
        assert order_of(outcomes.reported) == [parcel.message.id for parcel in submitted]


# While a put is blocked Zenoh's threads, which all sessions of a process share, cannot close a session: not for long here,
# for the sake of the tests to come.
async def test_stop_returns_while_a_put_is_blocked_and_reports_the_rest_as_lost() -> None:
    outcomes = Outcomes()
    async with heard_by_a_process(wait_before_close_ms=5000) as (transport, process):
        process.send_signal(signal.SIGSTOP)
        submitted = await stall(transport, outcomes)
        await asyncio.wait_for(transport.stop(), LATE_S)
        assert order_of(outcomes.reported) == [parcel.message.id for parcel in submitted]
        assert isinstance(outcomes.reported[-1][1], LinkLostError)
        process.send_signal(signal.SIGCONT)
