"""Too few descriptors, and peers that mean harm: garbage at full speed, messages beyond every bound."""

import asyncio
import itertools
import json
import logging
import os
import random
import resource
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from streamer.journal.letters import LetterFilter, open_letters
from streamer.observe import port as admin_port
from tests.brokers import BROKERS, HOST, Mosquitto, broker, needs_mosquitto
from tests.e2e.test_malformed import MQTT_KINDS, ZENOH_KINDS
from tests.e2e.topology import Topology
from tests.independent import MqttSide, Plain, ZenohSide, inversions, mqtt_properties, mqtt_topic, until, zenoh_key
from tests.mqtt_peer import Endpoint, FakeBroker, Peer
from tests.process import StreamerProcess
from tests.zenoh_peers import free_endpoint

MIB = 1 << 20
HUGE = 200 * MIB
QUICK = {"initial_ms": 50, "max_ms": 200}
QUICK_END = {"drain_s": 1}


def notifications(here: str, there: str, count: int, size: int = 4) -> list[Plain]:
    """Good messages in ten flows."""
    flows = itertools.cycle(range(10))
    return [
        Plain(4, (here, 0x100 + next(flows), 1, 0x8000), (there, 2, 1, 0), payload=n.to_bytes(4, "big").ljust(size, b"."))
        for n in range(count)
    ]


def ids(messages: Iterable[Plain]) -> list[bytes]:
    return [message.id for message in messages]


def mqtt_endpoint(url: str, authority: str, **options: Any) -> dict[str, Any]:
    settings = {"broker": url, "topics": "in-vehicle", "reconnect": QUICK} | options
    return {"transport": "mqtt5", "authorities": [authority], "options": settings}


def configuration(directory: Path, first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {
        "authority": "gw",
        "endpoints": {"first": first, "second": second},
        "routes": [{"from": "first", "to": "second"}, {"from": "second", "to": "first"}],
        "journal": {"path": str(directory / "journal.db")},
        "shutdown": QUICK_END,
        "log": {"level": "info", "repeat_s": 3600},
    }


def said(daemon: StreamerProcess, event: str) -> list[dict[str, Any]]:
    """The daemon's log lines of one event."""
    lines = (json.loads(line) for line in daemon.log.splitlines() if line.startswith("{"))
    return [line for line in lines if line["event"] == event]


# -- descriptors


def pid_of(daemon: StreamerProcess) -> int:
    assert daemon.process is not None
    return daemon.process.pid


def descriptors(daemon: StreamerProcess) -> int:
    return len(os.listdir(f"/proc/{pid_of(daemon)}/fd"))


def remove_journal(directory: Path) -> None:
    for file in directory.glob("journal.db*"):
        file.unlink()


@contextmanager
def no_more_descriptors(daemon: StreamerProcess) -> Iterator[None]:
    """Whatever the daemon wants to open fails; what is open stays open."""
    before = resource.prlimit(pid_of(daemon), resource.RLIMIT_NOFILE)
    resource.prlimit(pid_of(daemon), resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid_of(daemon), resource.RLIMIT_NOFILE, before)


@pytest.mark.mosquitto
@needs_mosquitto
async def test_without_descriptors_everything_waits_and_with_them_everything_arrives(tmp_path: Path) -> None:
    here = free_endpoint()
    down, up = notifications("alpha", "beta", 600), notifications("beta", "alpha", 300)
    with Mosquitto(persistence=True) as near:
        first = mqtt_endpoint(near.url, "alpha")
        second = {"transport": "zenoh", "authorities": ["beta"], "options": {"mode": "peer", "connect": [here]}}
        config = configuration(tmp_path, first, second) | {"log": {"level": "info", "repeat_s": 0}}
        async with (
            MqttSide(near.port, "in-vehicle", ["beta/#"]) as alpha,
            ZenohSide(listen=[here]) as beta,
            StreamerProcess(tmp_path, config) as daemon,
        ):
            with no_more_descriptors(daemon):
                await alpha.send(down[:300])
                await until(lambda: len(beta.arrived) == 300, what="arrival over open connections")
                near.restart()
                await alpha.reconnect()
                await alpha.send(down[300:])
                await beta.send(up)
                assert daemon.get("/healthz", 0.5) == (0, "")
                daemon.signal(signal.SIGHUP)
                await until(lambda: bool(said(daemon, "reload_refused")), what="the refusal to reload")
                await until(lambda: bool(said(daemon, "admin_accept_failed")), what="word of the admin port")

                def attempts() -> list[float]:
                    return [line["retry_in_s"] for line in said(daemon, "link_down") if "open files" in line["reason"]]

                await until(lambda: len(attempts()) >= 4, what="four attempts to connect")
                assert attempts()[3] > 1.5 * attempts()[0]  # it climbs, for all the jitter of a fifth
            await until(lambda: len(beta.arrived) >= 600 and len(alpha.arrived) >= 300, what="arrival of the rest")
            assert (sorted(ids(beta.arrived)), sorted(ids(alpha.arrived))) == (sorted(ids(down)), sorted(ids(up)))
            assert inversions(beta.arrived, down) == inversions(alpha.arrived, up) == 0
            await daemon.until_total(1, "ustreamer_journal_up")
            daemon.check_books()


@pytest.mark.mosquitto
@needs_mosquitto
async def test_journal_that_cannot_be_opened_anew_without_descriptors_heals_with_them(tmp_path: Path) -> None:
    """Its file was removed: another one has to take its place."""
    messages = notifications("alpha", "beta", 200)
    with Mosquitto(persistence=True) as near, Mosquitto(persistence=True) as far:
        ends = mqtt_endpoint(near.url, "alpha"), mqtt_endpoint(far.url, "beta")
        async with (
            MqttSide(near.port, "in-vehicle", []) as alpha,
            MqttSide(far.port, "in-vehicle", ["alpha/#"]) as beta,
            StreamerProcess(tmp_path, configuration(tmp_path, *ends)) as daemon,
        ):
            far.stop()
            await daemon.until_down("second")
            await alpha.send(messages[:100])
            await daemon.until_total(100, "ustreamer_journal_written_messages_total")
            with no_more_descriptors(daemon):
                remove_journal(tmp_path)
                await alpha.send(messages[100:])
                await until(lambda: bool(said(daemon, "journal_failing")), what="the journal to fail")
            await daemon.until_total(1, "ustreamer_journal_up")
            await daemon.until_total(200, "ustreamer_journal_written_messages_total")
            far.start()
            await beta.reconnect()
            await until(lambda: len(beta.arrived) >= 200, what="arrival of everything")
            assert sorted(ids(beta.arrived)) == sorted(ids(messages))
            assert inversions(beta.arrived, messages) == 0
            daemon.check_books()


@pytest.mark.mosquitto
@needs_mosquitto
async def test_crowd_at_the_admin_port_takes_no_descriptors_from_the_rest(tmp_path: Path) -> None:
    """Ten times as many connections as descriptors are left, and the daemon has to connect anew."""
    with Mosquitto(persistence=True) as near, Mosquitto(persistence=True) as far, ExitStack() as crowd:
        ends = mqtt_endpoint(near.url, "alpha"), mqtt_endpoint(far.url, "beta")
        async with (
            MqttSide(near.port, "in-vehicle", []) as alpha,
            MqttSide(far.port, "in-vehicle", ["alpha/#"]) as beta,
            StreamerProcess(tmp_path, configuration(tmp_path, *ends)) as daemon,
        ):
            left = admin_port.CONNECTIONS_AT_MOST + 16
            open_before = descriptors(daemon)
            before = resource.prlimit(pid_of(daemon), resource.RLIMIT_NOFILE)
            resource.prlimit(pid_of(daemon), resource.RLIMIT_NOFILE, (open_before + left, before[1]))
            for n in range(10 * left):
                held = crowd.enter_context(socket.create_connection((HOST, daemon.admin), 5))
                held.sendall(b"GET /metrics HTTP/1.1\r\n"[: n % 20])
            messages = notifications("alpha", "beta", 500)
            await alpha.send(messages[:250])
            near.restart()
            far.restart()
            await asyncio.gather(alpha.reconnect(), beta.reconnect())
            await alpha.send(messages[250:])
            await until(lambda: len(set(ids(beta.arrived))) >= 500, what="arrival of everything")  # some twice: restarts
            assert set(ids(beta.arrived)) == set(ids(messages))
            assert descriptors(daemon) <= open_before + admin_port.CONNECTIONS_AT_MOST + 1
            await daemon.until_total(500, "ustreamer_outcomes_total", outcome="delivered")
            daemon.check_books()
            assert said(daemon, "admin_accept_failed") == []


# -- garbage, where messages belong


def publish_bytes(topic: str, payload: bytes, properties: bytes, packet_id: int) -> bytes:
    """A PUBLISH with QoS 1 made by hand: no codec would write it."""
    name = topic.encode()
    body = len(name).to_bytes(2, "big") + name + packet_id.to_bytes(2, "big") + properties + payload
    length, rest = bytearray(), len(body)
    while True:
        rest, digit = divmod(rest, 128)
        length.append(digit | 0x80 if rest else digit)
        if not rest:
            return b"\x32" + bytes(length) + body


class Shouter:
    """An MQTT client that sends what it is given as fast as the broker takes it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def at(cls, number: int) -> AsyncIterator["Shouter"]:
        reader, writer = await asyncio.open_connection(HOST, number)
        try:
            writer.write(mqtt5.ConnectPacket("shouter", clean_start=True).write())
            yield cls(reader, writer)
        finally:
            writer.transport.abort()

    async def shout(self, packets: list[bytes]) -> None:
        """Send these; returns when the broker has confirmed all of them."""
        confirming = asyncio.create_task(self._confirmed(len(packets)))
        for packet in packets:
            self._writer.write(packet)
            await self._writer.drain()
        await asyncio.wait_for(confirming, 60)

    async def _confirmed(self, count: int) -> None:
        buffer = b""
        while count:
            data = await self._reader.read(65_536)
            assert data, "the broker has closed the connection"
            buffer += data
            view, position = memoryview(buffer), 0
            while len(buffer) - position >= 2:
                size = 2 + buffer[position + 1]
                if len(buffer) - position < size:
                    break
                packet, _ = mqtt5.read(view[position : position + size])
                count -= isinstance(packet, mqtt5.PubAckPacket)
                position += size
            buffer = buffer[position:]


def mqtt_garbage(each: int) -> tuple[list[bytes], Counter[str]]:
    """PUBLISHes of every kind, shuffled, on topics that the daemon listens to; and how many of which reason."""
    packets: list[bytes] = []
    reasons: Counter[str] = Counter()
    models = notifications("alpha", "beta", each)
    for reason, changes in MQTT_KINDS.items():
        for change in changes:
            reasons[reason] += each
            for model in models:
                topic = mqtt_topic(model, "in-vehicle")
                packets.append(publish_bytes(topic, os.urandom(8), change(model).pack(), 1 + len(packets) % 60_000))
    random.Random(1).shuffle(packets)
    return packets, reasons


@pytest.mark.mosquitto
@needs_mosquitto
async def test_mqtt_client_that_publishes_garbage_at_full_speed_stops_nobody(tmp_path: Path) -> None:
    garbage, reasons = mqtt_garbage(1000)
    with Mosquitto() as near, Mosquitto() as far:
        ends = mqtt_endpoint(near.url, "alpha"), mqtt_endpoint(far.url, "beta")
        async with (
            MqttSide(near.port, "in-vehicle", ["beta/#"]) as alpha,
            MqttSide(far.port, "in-vehicle", ["alpha/#"]) as beta,
            StreamerProcess(tmp_path, configuration(tmp_path, *ends)) as daemon,
            Shouter.at(near.port) as shouter,
        ):
            down, up = notifications("alpha", "beta", 2000), notifications("beta", "alpha", 1000)
            await asyncio.gather(shouter.shout(garbage), alpha.send(down), beta.send(up))
            await until(lambda: len(beta.arrived) >= len(down) and len(alpha.arrived) >= len(up), what="good messages")
            assert (sorted(ids(beta.arrived)), sorted(ids(alpha.arrived))) == (sorted(ids(down)), sorted(ids(up)))
            assert inversions(beta.arrived, down) == inversions(alpha.arrived, up) == 0
            for reason, number in reasons.items():
                await daemon.until_total(number, "ustreamer_malformed_packets_total", reason=reason)
            assert len(said(daemon, "malformed_packet")) == 1
            assert daemon.total("ustreamer_reconnects_total") == 0
            await daemon.until_total(3000, "ustreamer_outcomes_total", outcome="delivered")
            daemon.check_books()


@pytest.mark.mosquitto
@needs_mosquitto
async def test_zenoh_peer_that_puts_garbage_at_full_speed_stops_nobody() -> None:
    quiet = {"log": {"level": "info", "repeat_s": 3600}, "shutdown": QUICK_END}
    async with Topology("mosquitto/in-vehicle", "zenoh", **quiet) as topology:
        near, far = topology.networks
        assert isinstance(far.side, ZenohSide)
        models = notifications("beta", "alpha", 1000)
        key = zenoh_key(models[0])
        kinds = [(reason, change) for reason, changes in ZENOH_KINDS.items() for change in changes]
        garbage = [change(model) for _, change in kinds for model in models]
        random.Random(1).shuffle(garbage)
        side = far.side
        up = notifications("beta", "alpha", 2000)
        down = notifications("alpha", "beta", 1000)
        await asyncio.gather(
            asyncio.to_thread(lambda: [side.put_raw(key, b"x", each) for each in garbage]),
            side.send(up),
            near.side.send(down),
        )
        await until(lambda: len(near.side.arrived) >= 2000 and len(side.arrived) >= 1000, what="good messages")
        daemon = topology.daemon
        for reason, number in Counter(reason for reason, _ in kinds).items():
            await daemon.until_total(1000 * number, "ustreamer_malformed_packets_total", reason=reason)
        assert (sorted(ids(near.side.arrived)), sorted(ids(side.arrived))) == (sorted(ids(up)), sorted(ids(down)))
        assert inversions(near.side.arrived, up) == inversions(side.arrived, down) == 0
        assert len(said(daemon, "malformed_packet")) == 1
        await daemon.until_total(3000, "ustreamer_outcomes_total", outcome="delivered")
        daemon.check_books()


# -- garbage, where packets belong


def http_answer(_: random.Random) -> bytes:
    return b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


def random_bytes(chance: random.Random) -> bytes:
    return b"\x00" + chance.randbytes(100_000)


def endless_publish(_: random.Random) -> bytes:
    """It would be too large, and nobody has asked for it: QoS 2."""
    return b"\x34\xff\xff\xff\x7f" + bytes(100_000)


@pytest.mark.parametrize("is_accepted", [False, True], ids=["instead of a CONNACK", "after the CONNACK"])
@pytest.mark.parametrize("garbage", [http_answer, random_bytes, endless_publish])
async def test_broker_that_sends_no_mqtt_is_called_ever_more_rarely(
    garbage: Any, is_accepted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ustreamer.mqtt5")
    chance = random.Random(1)
    ladder = [0.02, 0.04, 0.08, 0.16, 0.3, 0.3]
    reconnect = {"initial_ms": 20, "factor": 2, "max_ms": 300, "jitter": 0}

    def waits() -> list[float]:
        return [record.args[-1] for record in caplog.records if str(record.msg).startswith("link_down")]  # type: ignore[index,misc]

    async with FakeBroker().running() as fake, Endpoint(fake.url, reconnect=reconnect).running() as endpoint:
        while len(waits()) < len(ladder):
            peer = await fake.peer()
            if is_accepted:
                await peer.accept()
            peer.write(garbage(chance))
            known = len(waits())
            await until(lambda known=known: len(waits()) > known, what="the end of the connection")
        assert not endpoint.is_up
    assert waits()[: len(ladder)] == ladder


# -- too large


def peak_of(daemon: StreamerProcess) -> int:
    """The most memory that the daemon has had, in bytes."""
    status = Path(f"/proc/{pid_of(daemon)}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def forget_peak(daemon: StreamerProcess) -> int:
    """From now on the peak is counted anew; what it begins with is returned."""
    Path(f"/proc/{pid_of(daemon)}/clear_refs").write_text("5")
    return peak_of(daemon)


def as_packet(message: Plain, packet_id: int) -> bytes:
    properties = mqtt_properties(message).pack()
    return publish_bytes(mqtt_topic(message, "in-vehicle"), message.payload, properties, packet_id)


async def send_huge(peer: Peer, model: Plain, packet_id: int) -> None:
    """A PUBLISH of 200 MiB, without having it in memory here."""
    head = as_packet(model, packet_id)
    piece = bytes(MIB)
    body = head[2:] if head[1] < 0x80 else head[3:]
    size = len(body) + HUGE
    length = bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14 & 0x7F | 0x80, size >> 21))
    peer.write(head[:1] + length + body)
    for _ in range(HUGE // MIB):
        peer.write(piece)
        await peer.written()


@pytest.mark.mosquitto
@needs_mosquitto
async def test_huge_mqtt_message_passes_by_in_little_memory_and_is_acknowledged(tmp_path: Path) -> None:
    """From a broker that does not heed our maximum packet size."""
    good = notifications("alpha", "beta", 2)
    bad = notifications("alpha", "beta", 1)[0]
    with Mosquitto() as far:
        async with FakeBroker().running() as fake, MqttSide(far.port, "in-vehicle", ["alpha/#"]) as beta:
            ends = mqtt_endpoint(fake.url, "alpha", max_packet_bytes=MIB), mqtt_endpoint(far.url, "beta")
            daemon = StreamerProcess(tmp_path, configuration(tmp_path, *ends))
            daemon.start()
            try:
                peer = await fake.peer()
                assert (await peer.accept()).max_packet_size == MIB
                await peer.grant()
                await daemon.until_up()
                before = forget_peak(daemon)
                peer.write(as_packet(good[0], 1))
                await send_huge(peer, bad, 2)
                peer.write(as_packet(good[1], 3))
                assert [(await peer.next(mqtt5.PubAckPacket)).packet_id for _ in range(3)] == [1, 2, 3]
                await until(lambda: len(beta.arrived) >= 2, what="the good messages")
                assert ids(beta.arrived) == ids(good)
                # A read takes 256 KiB, an incomplete packet at most 1 MiB; the rest is what any work costs.
                assert peak_of(daemon) - before < HUGE // 12
                await daemon.until_total(1, "ustreamer_malformed_packets_total", reason="size")
                assert daemon.total("ustreamer_reconnects_total") == 0
                daemon.check_books()
            finally:
                await daemon.__aexit__()


@pytest.mark.parametrize("kind", BROKERS)
async def test_message_beyond_our_maximum_does_not_cost_the_link_to_a_real_broker(kind: str, tmp_path: Path) -> None:
    """mosquitto keeps to what we said in the CONNECT; rumqttd does not."""
    good = notifications("alpha", "beta", 200)
    large = notifications("alpha", "beta", 1, size=2 * MIB)
    with broker(kind) as near, broker(kind) as far:
        ends = mqtt_endpoint(near.url, "alpha", max_packet_bytes=MIB), mqtt_endpoint(far.url, "beta")
        async with (
            MqttSide(near.port, "in-vehicle", []) as alpha,
            MqttSide(far.port, "in-vehicle", ["alpha/#"]) as beta,
            StreamerProcess(tmp_path, configuration(tmp_path, *ends)) as daemon,
        ):
            await alpha.send([*good[:100], *large, *good[100:]])
            await until(lambda: len(beta.arrived) >= 200, what="the good messages")
            assert sorted(ids(beta.arrived)) == sorted(ids(good))
            assert daemon.total("ustreamer_reconnects_total") == 0
            left_out = daemon.total("ustreamer_malformed_packets_total", reason="size")
            assert left_out == {"mosquitto": 0, "rumqttd": 1}[kind]


async def test_huge_zenoh_message_is_dropped_in_little_memory_if_zenoh_is_told_so(tmp_path: Path) -> None:
    """Zenoh has no back-pressure by size: what one message may have is its own bound on reassembly."""
    here, there = free_endpoint(), free_endpoint()
    settings = tmp_path / "zenoh.json5"
    settings.write_text(json.dumps({"transport": {"link": {"rx": {"max_message_size": 16 * MIB}}}}))
    options = {"mode": "peer", "config_file": str(settings), "scouting": False, "uncertain_s": 1}
    ends = [
        {"transport": "zenoh", "authorities": [name], "options": options | {"connect": [at], "listen": []}}
        for name, at in (("alpha", here), ("beta", there))
    ]
    good = notifications("alpha", "beta", 100)
    async with (
        ZenohSide(listen=[here]) as alpha,
        ZenohSide(listen=[there]) as beta,
        StreamerProcess(tmp_path, configuration(tmp_path, *ends)) as daemon,
    ):
        await alpha.send(good[:50])
        await until(lambda: len(beta.arrived) == 50, what="the first messages")
        before = forget_peak(daemon)
        (model,) = notifications("alpha", "beta", 1)
        await alpha.send([Plain(4, model.source, model.sink, payload=bytes(HUGE))])
        await alpha.send(good[50:])
        await until(lambda: len(beta.arrived) >= 100, what="the other messages")
        assert sorted(ids(beta.arrived)) == sorted(ids(good))
        assert inversions(beta.arrived, good) == 0
        # The bound, and Zenoh's buffers for receiving.
        assert peak_of(daemon) - before < 4 * 16 * MIB
        assert daemon.total("ustreamer_reconnects_total") == 0
        daemon.check_books()


LARGE = 200_000


@pytest.mark.mosquitto
@needs_mosquitto
@pytest.mark.parametrize("structure", ["in-vehicle", "off-vehicle"])
@pytest.mark.parametrize("letter_fits", [True, False], ids=["the letter arrives", "the letter is too large as well"])
async def test_message_that_is_too_large_for_its_destination_is_reported_once_and_blocks_nothing(
    structure: str, letter_fits: bool, tmp_path: Path
) -> None:
    good = notifications("alpha", "beta", 100)
    large = notifications("alpha", "beta", 1, size=LARGE)
    # Enough for the message as it is, too little for the letter with the message in it.
    properties = mqtt_properties(large[0]).pack()
    size = len(publish_bytes(mqtt_topic(large[0], structure), large[0].payload, properties, 1))
    most = [] if letter_fits else [f"max_packet_size {size}"]
    with Mosquitto(extra=tuple(most)) as near, Mosquitto(extra=("max_packet_size 100000",)) as far:
        ends = mqtt_endpoint(near.url, "alpha", topics=structure), mqtt_endpoint(far.url, "beta")
        letters = ["gw/alpha"] if structure == "off-vehicle" else ["gw/#"]
        async with (
            MqttSide(near.port, structure, letters) as alpha,
            MqttSide(far.port, "in-vehicle", ["alpha/#"]) as beta,
            StreamerProcess(tmp_path, configuration(tmp_path, *ends)) as daemon,
        ):
            await alpha.send([*good[:50], *large, *good[50:]])
            await until(lambda: len(beta.arrived) >= 100, what="the good messages")
            assert sorted(ids(beta.arrived)) == sorted(ids(good))
            route = "dead-letter/first"
            outcome = "delivered" if letter_fits else "dead_lettered"
            await daemon.until_total(1, "ustreamer_outcomes_total", route=route, outcome=outcome)
            assert daemon.total("ustreamer_outcomes_total", route=route) == 1
            assert daemon.total("ustreamer_dead_letters_total") == 1
            assert daemon.total("ustreamer_queue_messages") == 0
            assert daemon.total("ustreamer_reconnects_total") == 0
            await until(lambda: len(alpha.arrived) >= letter_fits, what="the dead letter")
            assert [message.source for message in alpha.arrived] == [("gw", 4, 1, 0x8001)] * letter_fits
            daemon.check_books()

            def kept() -> list[bytes]:
                with open_letters(tmp_path / "journal.db") as file:
                    return [letter.id for letter in file.find(LetterFilter())]

            await until(lambda: kept() == ids(large), what="the dead letter in the journal")
