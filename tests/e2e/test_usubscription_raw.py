"""Every operation of core.usubscription, asked by clients that do not use our code, on every kind of network."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.proto import usubscription_v4_pb2 as pb4
from tests.configurations import config_of, endpoint_of
from tests.e2e.topology import BROKER_CLASSES
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.process import StreamerProcess
from tests.usubscription_client import (
    FETCH_SUBSCRIBERS,
    INVALID_ARGUMENT,
    PERMISSION_DENIED,
    PLAIN,
    REGISTER,
    RESET,
    SUBSCRIBED,
    UNREGISTER,
    UNSUBSCRIBED,
    Refused,
    UsubscriptionClient,
    proto_uri,
)
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

APP = ("dev1", 0x100, 1, 0)
WATCHER = ("dev1", 0x1_0101, 2, 0)  # an instance id, and another version
TOPIC = ("dev1", 0x200, 1, 0x8001)
OTHER_TOPIC = ("dev1", 0x200, 1, 0x8002)

NETWORKS = {
    "mosquitto/in-vehicle": ("dev1", False),
    "mosquitto/in-vehicle, in an Any": ("dev1", True),
    "mosquitto/off-vehicle": ("gw", False),
    "rumqttd/in-vehicle": ("gw", True),
    "zenoh": ("dev1", False),
    "zenoh, in an Any": ("gw", True),
}


class UsubscriptionSetup:
    """The daemon, a network, and two uEntities on it that share a connection."""

    def __init__(self, side: MqttSide | ZenohSide, daemon: StreamerProcess, service: str, wrapped: bool) -> None:
        self.daemon = daemon
        self.app = UsubscriptionClient(side, APP, service, wrapped)
        self.watcher = UsubscriptionClient(side, WATCHER, service, wrapped)
        self.uservice = UsubscriptionClient(side, ("dev1", 0, 3, 0), service, wrapped)

    def changes(self, to: UsubscriptionClient) -> list[tuple[str, int]]:
        """Who asked, and the state that the service told ``to``, in order."""
        found: list[tuple[str, int]] = []
        for each in list(to.side.arrived):
            if each.type == 4 and each.sink == to.entity:
                update = to._read(each, pb.Update) if to.form == each.payload_format else pb.Update.FromString(each.payload)
                found.append((f"{update.subscriber.uri.ue_id:X}", update.status.state))
        return found


def on(*networks: str) -> pytest.MarkDecorator:
    """On these networks."""
    return pytest.mark.parametrize(
        "setup", networks, ids=lambda name: name.replace(" ", "-").replace(",", ""), indirect=True
    )


TWO = ("mosquitto/in-vehicle", "zenoh, in an Any")


@pytest.fixture
async def setup(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[UsubscriptionSetup]:
    service, wrapped = NETWORKS[request.param]
    kind = request.param.partition(",")[0]
    async with AsyncExitStack() as stack:
        endpoint: dict[str, Any]
        side: MqttSide | ZenohSide
        if kind == "zenoh":
            address = free_endpoint()
            side = await stack.enter_async_context(
                ZenohSide(listen=[address], keys=["up/*/*/*/*/*/dev1/**", "up/dev1/0/0/4/8000/{}/{}/{}/{}/{}"])
            )
            endpoint = {"transport": "zenoh", "options": {"connect": [address], "uncertain_s": 1}}
        else:
            name, _, structure = kind.partition("/")
            broker = stack.enter_context(BROKER_CLASSES[name]())
            topics = ["+/dev1"] if structure == "off-vehicle" else ["+/+/+/+/+/dev1/#", "dev1/0/0/4/8000"]
            side = await stack.enter_async_context(MqttSide(broker.port, structure, topics))
            endpoint = {"transport": "mqtt5", "options": {"broker": broker.url, "topics": structure}}
        config = config_of(
            {"device": endpoint | {"authorities": ["dev1"]}, "elsewhere": endpoint_of("memory", "*")},
            journal={"path": str(tmp_path / "journal.db")},
            usubscription={"local": ["dev1"]},
        )
        daemon = await stack.enter_async_context(StreamerProcess(tmp_path, config))
        yield UsubscriptionSetup(side, daemon, service, wrapped)


@on(*NETWORKS)
async def test_subscriptions_from_the_first_subscriber_to_the_last(setup: UsubscriptionSetup) -> None:
    app, watcher = setup.app, setup.watcher
    register = pb.NotificationsRequest(topic=proto_uri(TOPIC))
    assert await watcher.call(REGISTER, register, pb.NotificationsResponse) == pb.NotificationsResponse()
    expire = Timestamp(seconds=int(time.time()) + 3600)
    assert await app.subscribe(TOPIC, expire=expire, sample_period_ms=250) == SUBSCRIBED
    assert await app.subscribe(TOPIC, expire=expire, sample_period_ms=250) == SUBSCRIBED
    assert await app.subscribe(OTHER_TOPIC) == SUBSCRIBED
    assert await watcher.subscribe(OTHER_TOPIC) == SUBSCRIBED
    assert await app.subscribers(TOPIC) == ([APP], False)
    assert await app.subscribers(OTHER_TOPIC) == ([APP, WATCHER], False)
    assert await app.subscribers(OTHER_TOPIC, offset=1) == ([WATCHER], False)
    assert await watcher.topics_of(APP) == {TOPIC: SUBSCRIBED, OTHER_TOPIC: SUBSCRIBED}
    await until(lambda: setup.changes(watcher) == [("100", SUBSCRIBED), ("10101", SUBSCRIBED)])

    assert await app.unsubscribe(TOPIC) is None
    assert await app.unsubscribe(TOPIC) is None
    await until(lambda: ("100", UNSUBSCRIBED) in setup.changes(watcher))
    assert await app.subscribers(TOPIC) == ([], False)
    unregister = pb.NotificationsRequest(topic=proto_uri(TOPIC))
    assert await watcher.call(UNREGISTER, unregister, pb.NotificationsResponse) == pb.NotificationsResponse()
    assert await app.subscribe(TOPIC) == SUBSCRIBED
    await until(lambda: len(setup.changes(app)) == 4)  # three times in, once out
    told = [("100", SUBSCRIBED), ("10101", SUBSCRIBED), ("100", UNSUBSCRIBED)]
    assert setup.changes(watcher) == told  # nothing of the last one


@on(*TWO)
async def test_an_offset_leaves_out_the_first_subscribers(setup: UsubscriptionSetup) -> None:
    entities = [("dev1", 0x300 + number, 1, 0) for number in range(5)]
    for entity in entities:
        assert await UsubscriptionClient(setup.app.side, entity, setup.app.service).subscribe(TOPIC) == SUBSCRIBED
    for offset in (0, 2, 4):
        assert await setup.app.subscribers(TOPIC, offset) == (entities[offset:], False)


NO_TOPICS = {
    "authority": ("*", 0x200, 1, 0x8001),
    "type": ("dev1", 0xFFFF, 1, 0x8001),
    "instance": ("dev1", 0xFFFF_0200, 1, 0x8001),
    "version": ("dev1", 0x200, 0xFF, 0x8001),
    "resource": ("dev1", 0x200, 1, 0xFFFF),
    "a method": ("dev1", 0x200, 1, 0x7FFF),
    "malformed": ("NO AUTHORITY", 0x200, 1, 0x8001),
}


@on(*TWO)
async def test_a_uri_that_is_not_a_topic_is_refused(setup: UsubscriptionSetup) -> None:
    for what, topic in NO_TOPICS.items():
        refused = await setup.app.subscribe(topic)
        assert isinstance(refused, Refused), what
        assert refused.code == INVALID_ARGUMENT, what
        assert "topic" in refused.text, what
        asked = pb.FetchSubscribersRequest(topic=proto_uri(topic))
        answer = await setup.app.call(FETCH_SUBSCRIBERS, asked, pb.FetchSubscribersResponse)
        assert isinstance(answer, Refused), what
        assert answer.code == INVALID_ARGUMENT, what


@on(*TWO)
async def test_a_reset_is_for_services_only_and_leaves_nothing(setup: UsubscriptionSetup) -> None:
    assert await setup.app.subscribe(TOPIC) == SUBSCRIBED
    refused = await setup.app.call(RESET, pb.ResetRequest(), pb.ResetResponse)
    assert isinstance(refused, Refused)
    assert refused.code == PERMISSION_DENIED
    assert await setup.app.subscribers(TOPIC) == ([APP], False)
    reason = pb.ResetRequest.Reason(code=pb.ResetRequest.Reason.Code.CORRUPTED_DATA)
    assert await setup.uservice.call(RESET, pb.ResetRequest(reason=reason), pb.ResetResponse) == pb.ResetResponse()
    assert await setup.app.subscribers(TOPIC) == ([], False)
    await until(lambda: setup.changes(setup.app)[-1:] == [("100", UNSUBSCRIBED)])


@on(*TWO)
async def test_garbage_is_refused_and_the_next_one_is_served(setup: UsubscriptionSetup) -> None:
    garbage = Plain(2, APP, (setup.app.service, 0, 3, 1), b"\xff\xff\xff", 5, 30_000, payload_format=setup.app.form)
    await setup.app.side.send([garbage])
    refused = await setup.app.answer_to(garbage, pb.SubscriptionResponse)
    assert isinstance(refused, Refused)
    assert refused.code == INVALID_ARGUMENT
    assert await setup.app.subscribe(TOPIC) == SUBSCRIBED
    setup.daemon.check_books()


@on("mosquitto/in-vehicle", "zenoh")
async def test_version_4_is_answered_and_publishes_every_change(setup: UsubscriptionSetup) -> None:
    changes = ("dev1", 0, 4, 0x8000)
    side = setup.app.side
    request = pb4.SubscribeRequest(topic=proto_uri(TOPIC), sample_period=50)
    asked = Plain(2, APP, ("dev1", 0, 4, 1), request.SerializeToString(), 5, 30_000, payload_format=PLAIN)
    await side.send([asked])
    answer = await setup.app.answer_to(asked, pb4.SubscribeResponse)
    assert answer == pb4.SubscribeResponse(topic=proto_uri(TOPIC), status=pb4.STATUS_SUBSCRIBED)
    assert await setup.watcher.subscribe(TOPIC) == SUBSCRIBED

    def told(kind: int) -> list[pb4.Subscription]:
        found = [each for each in list(side.arrived) if each.type == kind and each.source == changes]
        return [pb4.Subscription.FromString(each.payload) for each in found]

    await until(lambda: len(told(1)) == 2 and len(told(4)) == 1, within_s=30, what="both changes")
    ours = pb4.Subscription(
        topic=proto_uri(TOPIC), subscriber=proto_uri(APP), status=pb4.STATUS_SUBSCRIBED, sample_period=50
    )
    theirs = pb4.Subscription(topic=proto_uri(TOPIC), subscriber=proto_uri(WATCHER), status=pb4.STATUS_SUBSCRIBED)
    assert (told(1), told(4)) == ([ours, theirs], [ours])
