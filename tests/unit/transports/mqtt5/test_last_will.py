"""What an endpoint says about its own connection: the messages, and when ONLINE is news."""

from typing import Any

import mqtt5
import pytest
from pydantic import ValidationError

from streamer.transports.mqtt5.decoder import PublishDecoder
from streamer.transports.mqtt5.last_will import LastWill
from streamer.transports.mqtt5.options import Mqtt5Options, WillOptions
from streamer.transports.mqtt5.publish import read
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import created_ms

NOW_MS = 1_790_000_000_000
TOPIC = UUri("gw", 4, 1, 0x8002)


def off_vehicle(delay_s: int = 10) -> LastWill:
    return LastWill("cloud", "gw", "1.2.3", "off-vehicle", WillOptions(to="fleet", delay_s=delay_s))


def as_published(will: mqtt5.Will) -> UMessage:
    """The will as its receivers get it."""
    packet = mqtt5.PublishPacket(
        will.topic,
        will.payload or b"",
        qos=will.qos,
        packet_id=1,
        content_type=will.content_type,
        user_properties=will.user_properties,
    )
    structure: Any = "off-vehicle" if will.topic.count("/") == 1 else "in-vehicle"
    return PublishDecoder(structure, "fleet", 1024, Flows()).decode(read(packet.write(), 8192))


@pytest.mark.parametrize(
    ("structure", "to", "topic"), [("off-vehicle", "fleet", "gw/fleet"), ("in-vehicle", None, "gw/4/0/1/8002")]
)
def test_the_will_is_a_status_that_says_offline(structure: Any, to: str | None, topic: str) -> None:
    will = LastWill("cloud", "gw", "1.2.3", structure, WillOptions(to=to, delay_s=7)).of_connection(NOW_MS)
    assert (will.topic, will.retain, will.will_delay_interval, will.message_expiry_interval) == (topic, False, 7, None)
    message = as_published(will)
    message.check()
    assert (message.attributes.source, message.attributes.ttl, created_ms(message.id)) == (TOPIC, None, NOW_MS)
    status = pb.Status.FromString(message.payload or b"")
    assert (status.link, status.version, list(status.reasons)) == (pb.LINK_OFFLINE, "1.2.3", ["the connection was lost"])
    assert status.connected.ToMilliseconds() == NOW_MS
    assert [(each.name, each.state) for each in status.endpoints] == [("cloud", "down")]


def test_each_connection_has_a_will_with_an_id_and_a_time_of_its_own() -> None:
    will = off_vehicle()
    first, second = (as_published(will.of_connection(ms)) for ms in (NOW_MS, NOW_MS + 5))
    assert first.id != second.id
    assert pb.Status.FromString(second.payload or b"").connected.ToMilliseconds() == NOW_MS + 5


def test_online_and_offline_name_the_same_connection() -> None:
    will = off_vehicle()
    will.of_connection(NOW_MS)
    online, offline = will.online(NOW_MS + 1), will.offline(NOW_MS + 99, "stopped")
    assert online.attributes is offline.attributes
    here, gone = (pb.Status.FromString(each.payload or b"") for each in (online, offline))
    assert here.connected == gone.connected
    assert (here.link, here.endpoints[0].state, list(here.reasons)) == (pb.LINK_ONLINE, "up", [])
    assert (gone.link, gone.endpoints[0].state, list(gone.reasons)) == (pb.LINK_OFFLINE, "down", ["stopped"])


def test_the_first_connection_is_news() -> None:
    assert off_vehicle().is_news(100.0, session_present=False)
    assert off_vehicle().is_news(100.0, session_present=True)  # an earlier process may have left its will


@pytest.mark.parametrize(
    ("away_s", "session_present", "counts_as_offline", "is_news"),
    [
        (0.5, True, False, False),
        (8.9, True, False, False),
        (9.0, True, False, True),  # within the time that its last packet may have taken to us
        (30.0, True, False, True),
        (0.5, False, False, True),  # the session has ended, and with it the delay
        (0.5, True, True, True),  # brokers that stop publish all wills
    ],
)
def test_a_reconnect_is_news_unless_the_will_cannot_have_been_published(
    away_s: float, session_present: bool, counts_as_offline: bool, is_news: bool
) -> None:
    will = off_vehicle()
    will.is_news(0.0, session_present=False)
    will.lost(100.0)
    if counts_as_offline:
        will.counts_as_offline()
    assert will.is_news(100.0 + away_s, session_present) is is_news
    will.lost(200.0)
    assert not will.is_news(201.0, session_present=True)  # nothing is left of it


@pytest.mark.parametrize(
    ("topics", "will", "problem"),
    [
        ("off-vehicle", {}, "will.to: expected the authority"),
        ("in-vehicle", {"to": "fleet"}, "will.to: expected only with topics: off-vehicle"),
        ("off-vehicle", {"to": "Fleet!"}, "lower-case"),
        ("off-vehicle", {"to": "fleet", "delay_s": -1}, "delay_s"),
    ],
)
def test_a_will_that_cannot_be_addressed_is_a_mistake(topics: str, will: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Mqtt5Options.model_validate({"broker": "mqtt://127.0.0.1", "topics": topics, "will": will})


@pytest.mark.parametrize(
    ("session", "hint"),
    [
        ({}, None),
        ({"clean_start": True}, "clean_start"),
        ({"session_expiry_s": 0}, "session_expiry_s"),
        ({"session_expiry_s": 5}, "after 5 s"),
    ],
)
def test_a_delay_that_the_session_does_not_outlast_is_pointed_out(session: dict[str, Any], hint: str | None) -> None:
    options = Mqtt5Options.model_validate({"broker": "mqtt://127.0.0.1", "will": {"to": "fleet"}, **session})
    found = [each for each in options.hints() if each.startswith("will.delay_s: ")]
    assert len(found) == (hint is not None)
    assert hint is None or hint in found[0]
