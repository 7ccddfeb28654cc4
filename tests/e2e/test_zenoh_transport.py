"""The Zenoh transport against real eclipse-zenoh sessions on the loopback interface."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # no stubs are installed
import pytest
import zenoh

from streamer.transports.base import LinkState, Received, TransportContext, UListener
from streamer.transports.errors import ConfigurationError, LinkLostError, MalformedPacketError, SendError
from streamer.transports.zenoh.options import ZenohOptions
from streamer.transports.zenoh.transport import ZenohTransport
from streamer.transports.zenoh.wire import decode, encode_attachment, key_for
from streamer.uprotocol.message import Options, UMessage, UPriority, notification, publish, request, response
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri, everything_at
from tests.zenoh_peers import free_endpoint, open_peer, raw_peer

OWN = "gateway"
TOPIC = UUri.parse("//veh1/A8000/2/8A50")
ENTITY = UUri.parse("//cloud/1/1/0")
METHOD = UUri.parse("//veh1/A8000/2/7")
ANYTHING = everything_at("*")

LATE_S = 15.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def until(condition: Callable[[], Any], what: str, within_s: float = LATE_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.005)


class Inbox(UListener):
    """Keeps what arrives."""

    def __init__(self) -> None:
        self.messages: list[UMessage] = []

    def on_receive_batch(self, batch: Sequence[Received]) -> None:
        for received in batch:
            self.messages.append(received.message)
            received.release()


@dataclass
class Parcel:
    message: UMessage


class Outcomes:
    """Counts what becomes of parcels."""

    def __init__(self) -> None:
        self.reported: list[tuple[Parcel, SendError | None]] = []

    def done(self, parcels: Sequence[Parcel], error: SendError | None) -> None:
        self.reported += [(parcel, error) for parcel in parcels]


class Seen:
    """What a transport told its surroundings."""

    def __init__(self) -> None:
        self.states: list[LinkState] = []
        self.malformed: list[MalformedPacketError] = []
        self.reconnects = 0

    def reconnected(self) -> None:
        self.reconnects += 1


@asynccontextmanager
async def running(seen: Seen | None = None, **options: Any) -> AsyncIterator[ZenohTransport]:
    seen = seen or Seen()
    context = TransportContext("vehicle", OWN, seen.states.append, seen.malformed.append, seen.reconnected, now_ms=now_ms)
    transport = ZenohTransport(context, ZenohOptions.model_validate(options))
    await transport.authenticate(UUri(OWN, 4, 1, 0))
    await transport.start()
    try:
        yield transport
    finally:
        await transport.stop()


async def until_up(transport: ZenohTransport) -> None:
    await until(lambda: transport.state is LinkState.UP, "state UP")


def put(peer: zenoh.Session, message: UMessage) -> None:
    peer.put(
        key_for(message.attributes, ""),
        message.payload or b"",
        attachment=encode_attachment(message),
        congestion_control=zenoh.CongestionControl.BLOCK,
    )


class RawSubscriber:
    """Hears everything below ``up/`` on a raw session."""

    def __init__(self, peer: zenoh.Session, capacity: int = 50_000) -> None:
        self._subscriber = peer.declare_subscriber("up/**", zenoh.handlers.FifoChannel(capacity))
        self.samples: list[zenoh.Sample] = []

    def poll(self) -> list[zenoh.Sample]:
        while (sample := self._subscriber.handler.try_recv()) is not None:
            self.samples.append(sample)
        return self.samples

    def messages(self) -> list[UMessage]:
        return [decode(s.payload.to_bytes(), bytes(s.attachment or b"")) for s in self.poll()]


async def until_matched(peer: zenoh.Session, key: str) -> None:
    """Wait until ``peer`` knows of a subscriber for ``key``."""
    publisher = peer.declare_publisher(key)
    # The stubs say bool; it is a MatchingStatus.
    await until(lambda: publisher.matching_status.matching, f"a subscriber for {key}")  # type: ignore[attr-defined]
    publisher.undeclare()  # type: ignore[no-untyped-call]  # eclipse-zenoh leaves out the return type


async def until_heard(transport: ZenohTransport, subscriber: RawSubscriber) -> None:
    """Send until the first message gets through, then forget what came: the subscription has reached us."""

    async def heard() -> None:
        while not subscriber.poll():
            await transport.send(publish(now_ms(), TOPIC))
            await asyncio.sleep(0.02)

    await asyncio.wait_for(heard(), LATE_S)
    last = publish(now_ms(), TOPIC, b"last")
    await transport.send(last)
    await until(lambda: subscriber.messages()[-1] == last, "the last of the first messages")
    subscriber.samples.clear()


def all_four() -> list[UMessage]:
    asked = request(now_ms(), ENTITY, METHOD, 5000, b"ask", Options(token="secret", permission_level=3))
    return [
        publish(now_ms(), TOPIC, b"news", Options(priority=UPriority.CS2, ttl=70_001)),
        notification(now_ms(), TOPIC, ENTITY, b"note", Options(traceparent=f"00-{'1' * 32}-{'2' * 16}-01")),
        asked,
        response(now_ms(), asked, b"answer", UCode.NOT_FOUND),
    ]


# -- receiving


async def test_all_types_arrive_as_they_were_sent() -> None:
    endpoint = free_endpoint()
    async with running(listen=[endpoint]) as transport:
        inbox = Inbox()
        await transport.register_listener(ANYTHING, None, inbox)
        await transport.register_listener(ANYTHING, ANYTHING, inbox)
        sent = all_four()
        with raw_peer(connect=[endpoint]) as peer:
            for message in sent:
                await until_matched(peer, key_for(message.attributes, ""))
                put(peer, message)
            await until(lambda: len(inbox.messages) >= 4, "four messages")
        assert sorted(inbox.messages) == sorted(sent)


async def test_overlapping_filters_deliver_each_message_once() -> None:
    endpoint = free_endpoint()
    async with running(listen=[endpoint]) as transport:
        broad, narrow, other = Inbox(), Inbox(), Inbox()
        await transport.register_listener(ANYTHING, ANYTHING, other)
        await transport.register_listener(ANYTHING, None, broad)
        await transport.register_listener(TOPIC, None, narrow)
        await transport.register_listener(TOPIC, None, broad)
        sent = [publish(now_ms(), TOPIC, b"%d" % n) for n in range(500)]
        last = notification(now_ms(), TOPIC, ENTITY)
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key_for(sent[0].attributes, ""))
            for message in (*sent, last):
                put(peer, message)
            await until(lambda: other.messages and len(broad.messages) >= 500, "all messages")
        assert broad.messages == sent
        assert narrow.messages == sent
        assert other.messages == [last]


async def test_closing_a_filter_loses_nothing_for_those_that_overlap() -> None:
    endpoint = free_endpoint()
    async with running(listen=[endpoint]) as transport:
        first, second = Inbox(), Inbox()
        await transport.register_listener(ANYTHING, None, first)
        await transport.register_listener(TOPIC, None, second)
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key_for(publish(now_ms(), TOPIC).attributes, ""))
            sent = [publish(now_ms(), TOPIC, b"%d" % n) for n in range(2000)]
            for message in sent[:1000]:
                put(peer, message)
            await until(lambda: first.messages, "the first message")
            await transport.unregister_listener(ANYTHING, None, first)
            heard = len(first.messages)
            for message in sent[1000:]:
                put(peer, message)
            await until(lambda: {m.id for m in second.messages} == {m.id for m in sent}, "all messages")
            assert len(first.messages) == heard


async def test_order_is_kept_over_many_messages_in_both_directions() -> None:
    endpoint = free_endpoint()
    count = 20_000
    async with running(listen=[endpoint]) as transport:
        inbox = Inbox()
        await transport.register_listener(TOPIC, None, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key_for(publish(now_ms(), TOPIC).attributes, ""))
            sent = [publish(now_ms(), TOPIC, b"%d" % n) for n in range(count)]

            def put_all() -> None:
                for message in sent:
                    put(peer, message)

            await asyncio.to_thread(put_all)
            await until(lambda: len(inbox.messages) >= count, "all messages", 30)
            assert inbox.messages == sent

            subscriber, outcomes = RawSubscriber(peer), Outcomes()
            await until_heard(transport, subscriber)
            parcels = [Parcel(message) for message in sent]
            for start in range(0, count, 100):
                transport.submit(parcels[start : start + 100], outcomes.done)
                await asyncio.sleep(0)
            await until(lambda: len(outcomes.reported) >= count and len(subscriber.poll()) >= count, "all", 30)
            assert subscriber.messages() == sent
            assert outcomes.reported == [(parcel, None) for parcel in parcels]


async def test_foreign_samples_are_reported_and_not_delivered() -> None:
    endpoint, seen = free_endpoint(), Seen()
    async with running(seen, listen=[endpoint]) as transport:
        inbox = Inbox()
        await transport.register_listener(TOPIC, None, inbox)
        message = publish(now_ms(), TOPIC, b"good")
        key = key_for(message.attributes, "")
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key)
            peer.put(key, b"no attachment")
            peer.put(key, b"other version", attachment=b"\x02")
            put(peer, message)
            await until(lambda: inbox.messages, "the good message")
        assert inbox.messages == [message]
        assert [error.reason for error in seen.malformed] == ["marker", "version"]


async def test_paused_transport_delivers_later_and_in_order() -> None:
    endpoint = free_endpoint()
    async with running(listen=[endpoint], receive_buffer=100) as transport:
        inbox = Inbox()
        await transport.register_listener(TOPIC, None, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key_for(publish(now_ms(), TOPIC).attributes, ""))
            transport.pause_receiving()
            sent = [publish(now_ms(), TOPIC, b"%d" % n) for n in range(1000)]
            for message in sent:
                put(peer, message)
            assert inbox.messages == []
            transport.resume_receiving()
            await until(lambda: len(inbox.messages) >= 1000, "all messages")
        assert inbox.messages == sent


async def test_pull_gets_the_earliest_message_and_then_not_found() -> None:
    endpoint = free_endpoint()
    async with running(listen=[endpoint]) as transport:
        with pytest.raises(UStatusError, match="NOT_FOUND"):
            await transport.receive(TOPIC)
        message = publish(now_ms(), TOPIC, b"pulled")
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key_for(message.attributes, ""))
            put(peer, message)
            pulled: list[UMessage] = []
            deadline = time.monotonic() + LATE_S
            while not pulled and time.monotonic() < deadline:
                try:
                    pulled.append(await transport.receive(TOPIC))
                except UStatusError:
                    await asyncio.sleep(0.005)
        assert pulled == [message]


# -- sending


async def test_all_types_are_sent_with_their_attributes() -> None:
    endpoint = free_endpoint()
    async with running(connect=[endpoint]) as transport:
        with raw_peer(listen=[endpoint]) as peer:
            subscriber = RawSubscriber(peer)
            await until_up(transport)
            await until_heard(transport, subscriber)
            sent = all_four()
            for message in sent:
                await transport.send(message)
            await until(lambda: len(subscriber.poll()) >= 4, "four messages")
            assert sorted(subscriber.messages()) == sorted(sent)
            assert {str(sample.key_expr) for sample in subscriber.samples} == {
                key_for(message.attributes, "") for message in sent
            }


async def test_priority_classes_become_zenoh_priorities() -> None:
    endpoint = free_endpoint()
    async with running(connect=[endpoint]) as transport:
        with raw_peer(listen=[endpoint]) as peer:
            subscriber = RawSubscriber(peer)
            await until_up(transport)
            await until_heard(transport, subscriber)
            for priority in UPriority:
                await transport.send(publish(now_ms(), TOPIC, priority.name.encode(), Options(priority=priority)))
            await until(lambda: len(subscriber.poll()) >= len(UPriority), "one message per class")
        z = zenoh.Priority
        assert {s.payload.to_string(): s.priority for s in subscriber.samples} == {
            "UNSPECIFIED": z.DATA_LOW,
            "CS0": z.BACKGROUND,
            "CS1": z.DATA_LOW,
            "CS2": z.DATA,
            "CS3": z.DATA_HIGH,
            "CS4": z.INTERACTIVE_LOW,
            "CS5": z.INTERACTIVE_HIGH,
            "CS6": z.REAL_TIME,
        }
        assert all(s.congestion_control == zenoh.CongestionControl.BLOCK for s in subscriber.samples)


async def test_publish_goes_without_the_sink_that_a_streamer_set() -> None:
    endpoint = free_endpoint()
    async with running(connect=[endpoint]) as transport:
        with raw_peer(listen=[endpoint]) as peer:
            subscriber = RawSubscriber(peer)
            await until_up(transport)
            await until_heard(transport, subscriber)
            plain = publish(now_ms(), TOPIC, b"x")
            attributes = plain.attributes.__class__(plain.attributes.type, TOPIC, everything_at("cloud"))
            await transport.send(UMessage(plain.id, attributes, b"x"))
            await until(subscriber.poll, "the message")
            assert subscriber.messages() == [plain]


async def test_own_messages_are_not_heard() -> None:
    endpoint = free_endpoint()
    async with running(listen=[endpoint]) as transport:
        inbox = Inbox()
        await transport.register_listener(ANYTHING, None, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            subscriber = RawSubscriber(peer)
            await until_up(transport)
            await until_heard(transport, subscriber)
            message = publish(now_ms(), TOPIC, b"from outside")
            await until_matched(peer, key_for(message.attributes, ""))
            put(peer, message)
            await until(lambda: inbox.messages, "the message from outside")
        assert inbox.messages == [message]


# -- the link


async def test_peer_is_alone_until_another_one_appears() -> None:
    endpoint, seen = free_endpoint(), Seen()
    async with running(seen, connect=[endpoint]) as transport:
        await until(lambda: transport.state is LinkState.ALONE, "state ALONE")
        with pytest.raises(LinkLostError):
            await transport.send(publish(now_ms(), TOPIC))
        with raw_peer(listen=[endpoint]):
            await until_up(transport)
            assert seen.states == [LinkState.ALONE, LinkState.UP]
            assert seen.reconnects == 0


async def test_link_is_up_for_as_long_as_one_node_stays_and_comes_back_with_the_next() -> None:
    endpoint, seen = free_endpoint(), Seen()
    async with running(seen, listen=[endpoint]) as transport:
        await until(lambda: transport.state is LinkState.ALONE, "state ALONE")
        one, two = open_peer(connect=[endpoint]), open_peer(connect=[endpoint])
        with one, two:
            await until(lambda: len(transport._nodes) == 2, "two nodes")
        await until(lambda: transport.state is LinkState.ALONE, "state ALONE")
        assert seen.states == [LinkState.ALONE, LinkState.UP, LinkState.ALONE]
        assert seen.reconnects == 0
        with raw_peer(connect=[endpoint]):
            await until_up(transport)
            assert seen.reconnects == 1
    assert seen.states[-2:] == [LinkState.UP, LinkState.DOWN]


async def test_client_is_down_without_its_router_and_finds_it_again() -> None:
    endpoint, seen = free_endpoint(), Seen()
    async with running(seen, mode="client", connect=[endpoint]) as transport:
        inbox = Inbox()
        await transport.register_listener(TOPIC, None, inbox)
        for round_ in range(2):
            with raw_peer(mode="router", listen=[endpoint]) as router:
                await until_up(transport)
                message = publish(now_ms(), TOPIC, b"%d" % round_)
                await until_matched(router, key_for(message.attributes, ""))
                put(router, message)
                await until(lambda: len(inbox.messages) > round_, "the message")  # noqa: B023  # called at once
            await until(lambda: transport.state is LinkState.DOWN, "state DOWN")
        assert seen.states == [LinkState.UP, LinkState.DOWN] * 2
        assert seen.reconnects == 1


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


async def test_what_was_sent_before_stop_arrives() -> None:
    endpoint = free_endpoint()
    with raw_peer(listen=[endpoint]) as peer:
        subscriber, outcomes = RawSubscriber(peer), Outcomes()
        async with running(connect=[endpoint]) as transport:
            await until_up(transport)
            await until_heard(transport, subscriber)
            parcels = [Parcel(publish(now_ms(), TOPIC, bytes(1000))) for _ in range(5000)]
            for start in range(0, 5000, 100):
                transport.submit(parcels[start : start + 100], outcomes.done)
        confirmed = [parcel.message for parcel, error in outcomes.reported if error is None]
        assert len(outcomes.reported) == 5000
        await until(lambda: len(subscriber.poll()) >= len(confirmed), "everything confirmed")
        assert subscriber.messages()[: len(confirmed)] == confirmed


# -- a receiver that takes nothing any more

_RECEIVER = """
import sys, time
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


async def stall(transport: ZenohTransport, outcomes: Outcomes) -> list[Parcel]:
    """Send, one batch per turn of the loop, until nothing gets through any more; returns what was submitted."""
    submitted: list[Parcel] = []

    async def send() -> None:
        while not transport.is_stalled or len(submitted) - len(outcomes.reported) < 500:
            batch = [Parcel(publish(now_ms(), TOPIC, bytes(2000))) for _ in range(50)]
            submitted.extend(batch)
            transport.submit(batch, outcomes.done)
            await asyncio.sleep(0.001)

    await asyncio.wait_for(send(), LATE_S)
    return submitted


def order_of(reported: Iterable[tuple[Parcel, SendError | None]]) -> list[bytes]:
    return [parcel.message.id for parcel, _ in reported]


async def test_loop_keeps_turning_while_a_put_is_blocked() -> None:
    endpoint, outcomes = free_endpoint(), Outcomes()
    async with running(listen=[endpoint]) as transport, receiver_process(endpoint) as process:
        await until_up(transport)
        publisher_key = key_for(publish(now_ms(), TOPIC).attributes, "")
        assert transport._session is not None
        await until_matched(transport._session, publisher_key)
        process.send_signal(signal.SIGSTOP)
        try:
            submitted = await stall(transport, outcomes)
            stuck_at = len(outcomes.reported)
            ticks, largest_gap_s = 0, 0.0
            last = started = time.monotonic()
            while time.monotonic() - started < 1.5:
                more = [Parcel(publish(now_ms(), TOPIC, bytes(2000)))]
                submitted += more
                transport.submit(more, outcomes.done)
                await asyncio.sleep(0.005)
                largest_gap_s = max(largest_gap_s, time.monotonic() - last)
                last = time.monotonic()
                ticks += 1
            assert len(outcomes.reported) == stuck_at  # the put was blocked all the time
            assert ticks > 50
            assert largest_gap_s < 0.5
        finally:
            process.send_signal(signal.SIGCONT)
        await until(lambda: len(outcomes.reported) == len(submitted), "every outcome")
        assert order_of(outcomes.reported) == [parcel.message.id for parcel in submitted]
        await until(lambda: not transport.is_stalled, "caught up")
        again = Outcomes()
        transport.submit([Parcel(publish(now_ms(), TOPIC)) for _ in range(100)], again.done)
        assert len(again.reported) == 100  # told before submit returns, as before the stall


async def test_stop_returns_while_a_put_is_blocked_and_reports_the_rest_as_lost() -> None:
    endpoint, outcomes = free_endpoint(), Outcomes()
    async with running(listen=[endpoint]) as transport, receiver_process(endpoint) as process:
        await until_up(transport)
        assert transport._session is not None
        await until_matched(transport._session, key_for(publish(now_ms(), TOPIC).attributes, ""))
        process.send_signal(signal.SIGSTOP)
        submitted = await stall(transport, outcomes)
        started = time.monotonic()
        await transport.stop()
        assert time.monotonic() - started < 5
        assert order_of(outcomes.reported) == [parcel.message.id for parcel in submitted]
        assert isinstance(outcomes.reported[-1][1], LinkLostError)
        process.send_signal(signal.SIGCONT)
