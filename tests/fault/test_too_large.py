"""Messages beyond every bound: they pass by in little memory, cost no link, and are reported once."""

import json
from dataclasses import replace
from pathlib import Path

import mqtt5
import pytest

from streamer.journal.letters import LetterFilter, open_letters
from streamer.uprotocol.proto import ustreamer_v1_pb2 as ustreamer
from tests.brokers import BROKERS, Mosquitto, broker
from tests.fault.hostile import MIB, configuration, ids, mqtt_endpoint, notifications, pid_of, publish_bytes
from tests.independent.message import Plain, inversions
from tests.independent.mqtt import MqttSide, mqtt_properties, mqtt_topic
from tests.independent.zenoh import ZenohSide, from_attributes
from tests.mqtt_peer import BrokerConnection, FakeBroker
from tests.process import StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

HUGE = 200 * MIB
RESOURCE_EXHAUSTED = 8


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


async def send_huge(peer: BrokerConnection, model: Plain, packet_id: int) -> None:
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


async def publishes_before_acknowledged(peer: BrokerConnection, packet_ids: list[int]) -> list[mqtt5.PublishPacket]:
    """What the daemon publishes until it has acknowledged these, in this order, and at least one packet."""
    found: list[mqtt5.PublishPacket] = []
    while packet_ids or not found:
        packet = await peer.next_packet()
        if isinstance(packet, mqtt5.PublishPacket):
            found.append(packet)
            peer.write(mqtt5.PubAckPacket(packet.packet_id or 0))
        else:
            assert isinstance(packet, mqtt5.PubAckPacket)
            assert packet.packet_id == packet_ids.pop(0)
    return found


@pytest.mark.mosquitto
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
                (letter,) = await publishes_before_acknowledged(peer, [1, 2, 3])
                told = ustreamer.DeadLetter.FromString(letter.payload)
                assert (told.status.code, told.payload_bytes) == (RESOURCE_EXHAUSTED, HUGE + len(bad.payload))
                assert from_attributes(told.message.attributes, b"") == replace(bad, payload=b"")
                assert told.message.payload == bad.payload + bytes(4096 - len(bad.payload))
                await until(lambda: len(beta.arrived) >= 2, what="the good messages")
                assert ids(beta.arrived) == ids(good)
                # A read takes 256 KiB, an incomplete packet at most 1 MiB; the rest is what any work costs.
                assert peak_of(daemon) - before < HUGE // 12
                await daemon.until_total(1, "ustreamer_outcomes_total", route="none", code="RESOURCE_EXHAUSTED")
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
            told = daemon.total("ustreamer_outcomes_total", route="none", code="RESOURCE_EXHAUSTED")
            assert told == {"mosquitto": 0, "rumqttd": 1}[kind]
            daemon.check_books()


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
