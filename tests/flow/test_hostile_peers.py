"""Peers that ask our services for what is not theirs: who may subscribe, list, reset, pause, and how much of it.

Each test attacks as a stranger does, with nothing but messages. The far network is a broker that anybody reaches.
"""

from collections import Counter

import pytest
from google.protobuf.message import Message

from streamer.features.every import FILE
from streamer.features.usubscription.feature import UsubscriptionFeature
from streamer.logs import audit
from streamer.uprotocol.message import UMessage, UMessageType, request
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pause
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.flow.devices import Device, Devices
from tests.flow.uentities import (
    FETCH_SUBSCRIBERS,
    FETCH_SUBSCRIPTIONS,
    REGISTER,
    RESET,
    SUBSCRIBE,
    SUBSCRIBED,
    UNSUBSCRIBE,
    UNSUBSCRIBED,
    Client,
)
from tests.hosted import one_of
from tests.waiting import until

INTERNAL = UUri("dev1", 0x10, 1, 0x8001)
OPEN = UUri("dev1", 0x20, 1, 0x8001)

NETWORKS = {
    "endpoints": {
        "near": {"transport": "memory", "authorities": ["dev1"]},
        "far": {"transport": "memory", "authorities": ["cloud", "*"], "options": {"sink_authority": True}},
    },
    "routes": [
        {"from": "near", "to": "far", "publish": [str(OPEN)], "publish_to": ["cloud"]},
        {"from": "far", "to": "near"},
    ],
}


@pytest.fixture
async def device(devices: Devices) -> Device:
    devices.changes = dict(NETWORKS)
    return await devices.device(1, subscribe=[])


class Stranger(Client):
    """Asks in whose name it likes, at the service of dev1 or at core.ustreamer."""

    async def call(self, sink: UUri, proto: Message, source: UUri) -> UMessage:
        return await self.answer_to(request(self.now_ms, source, sink, 10_000, proto.SerializeToString()))


async def stranger(devices: Devices, authority: str = "evil", ue_id: int = 1) -> Stranger:
    found = Stranger(devices.clock, UUri(authority, ue_id, 3, 0))
    found.service = "dev1"
    found.transport = await devices.join("far", authority)
    await found.transport.register_listener(everything_at("*"), everything_at("*"), found)
    await found.transport.register_listener(everything_at("*"), None, found)
    return found


def subscribing(topic: UUri) -> pb.SubscriptionRequest:
    return pb.SubscriptionRequest(topic=uri_to_proto(topic))


def leaked(evil: Client) -> list[UMessage]:
    return [message for message in evil.messages if message.attributes.type is UMessageType.PUBLISH]


# subscribe


@pytest.mark.parametrize("topic", [INTERNAL, OPEN], ids=["internal", "published"])
@pytest.mark.parametrize("authority", ["evil", "cloud"])
async def test_stranger_gets_no_topic_by_subscribing_to_it(
    devices: Devices, device: Device, app: Client, authority: str, topic: UUri
) -> None:
    """cloud is named at the endpoint: it gets what the route publishes anyway, and no more than that."""
    evil = await stranger(devices, authority)
    if (authority, topic) == ("cloud", OPEN):
        assert await evil.subscribe(topic) == SUBSCRIBED
    else:
        status = await evil.refused(SUBSCRIBE, subscribing(topic))
        assert status.code == v1.UCode.PERMISSION_DENIED
        assert "usubscription.subscribe" in status.message
    await app.publish(INTERNAL, b"secret")
    await app.all_is_said()
    assert leaked(evil) == []
    assert device.router.interest.of(INTERNAL) == {}


@pytest.mark.parametrize(("authority", "is_named"), [("evil", False), ("cloud", True)])
async def test_without_a_list_only_authorities_that_the_configuration_names_get_what_they_ask_for(
    devices: Devices, authority: str, is_named: bool
) -> None:
    devices.changes = dict(NETWORKS)
    device = await devices.device(1, subscribe=None)
    app = await devices.client(1, 0xA)
    peer = await stranger(devices, authority)
    if is_named:
        assert await peer.subscribe(INTERNAL) == SUBSCRIBED
    else:
        status = await peer.refused(SUBSCRIBE, subscribing(INTERNAL))
        assert status.code == v1.UCode.PERMISSION_DENIED
    await until(lambda: bool(device.router.interest.of(INTERNAL)) is is_named, "the interest")
    await app.all_is_said()
    await app.publish(INTERNAL, b"inside")
    if is_named:
        await until(lambda: bool(leaked(peer)), "the message")
    await app.all_is_said()
    assert [message.payload for message in leaked(peer)] == ([b"inside"] if is_named else [])
    assert set(device.router.interest.of(INTERNAL)) == ({"cloud"} if is_named else set())


async def test_stranger_gets_no_topic_by_observing_it(devices: Devices, device: Device, app: Client) -> None:
    evil = await stranger(devices)
    status = await evil.refused(REGISTER, pb.NotificationsRequest(topic=uri_to_proto(INTERNAL)))
    assert status.code == v1.UCode.PERMISSION_DENIED
    await app.subscribe(INTERNAL)
    await app.all_is_said()
    assert evil.notifications == []


async def test_no_stranger_makes_us_subscribe_at_a_third_device(devices: Devices, device: Device) -> None:
    evil = await stranger(devices)
    victim = await devices.remote("victim")
    status = await evil.refused(SUBSCRIBE, subscribing(UUri("victim", 0x10, 1, 0x8001)))
    assert status.code == v1.UCode.PERMISSION_DENIED
    assert victim.asked == []


@pytest.mark.parametrize("permitted", [None, []], ids=["no list", "a list without it"])
async def test_a_named_authority_makes_us_subscribe_at_a_third_device_unless_a_list_leaves_it_out(
    devices: Devices, permitted: list[str] | None
) -> None:
    """`usubscription.subscribe` of null permits everything to everybody at an authority that the configuration names."""
    devices.changes = dict(NETWORKS)
    await devices.device(1, subscribe=permitted)
    third, named = await devices.remote("victim"), await stranger(devices, "cloud")
    answer = await named.ask(SUBSCRIBE, subscribing(UUri("victim", 0x10, 1, 0x8001)))
    if permitted is None:
        assert answer.attributes.commstatus in (None, UCode.OK)
        await until(lambda: third.asked)
    else:
        assert answer.attributes.commstatus == UCode.PERMISSION_DENIED
        assert third.asked == []


async def test_victim_named_in_the_payload_is_neither_subscribed_nor_unsubscribed(
    device: Device, app: Client, other: Client
) -> None:
    """Field 2 was the subscriber in earlier versions. The source of a Request is who asks, whatever the payload says."""
    victim = pb.SubscriberInfo(uri=uri_to_proto(other.uri)).SerializeToString()
    in_its_name = b"\x12" + bytes([len(victim)]) + victim
    answer = await app.ask(SUBSCRIBE, subscribing(INTERNAL).SerializeToString() + in_its_name)
    assert answer.attributes.commstatus in (None, UCode.OK)
    assert await app.subscribers(INTERNAL) == ([app.uri], False)
    await other.subscribe(OPEN)
    await app.ask(UNSUBSCRIBE, pb.UnsubscribeRequest(topic=uri_to_proto(OPEN)).SerializeToString() + in_its_name)
    assert await app.subscribers(OPEN) == ([other.uri], False)


# fetch


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        pytest.param(FETCH_SUBSCRIPTIONS, pb.FetchSubscriptionsRequest(), id="everything"),
        pytest.param(FETCH_SUBSCRIPTIONS, pb.FetchSubscriptionsRequest(topic=uri_to_proto(INTERNAL)), id="a topic"),
        pytest.param(
            FETCH_SUBSCRIPTIONS,
            pb.FetchSubscriptionsRequest(subscriber=pb.SubscriberInfo(uri=uri_to_proto(UUri("dev1", 0xA, 1, 0)))),
            id="another",
        ),
        pytest.param(FETCH_SUBSCRIBERS, pb.FetchSubscribersRequest(topic=uri_to_proto(INTERNAL)), id="subscribers"),
    ],
)
async def test_stranger_learns_nothing_about_the_subscriptions_of_others(
    devices: Devices, device: Device, app: Client, method: int, asked: pb.FetchSubscriptionsRequest
) -> None:
    await app.subscribe(INTERNAL)
    evil = await stranger(devices, "cloud")
    status = await evil.refused(method, asked)
    assert status.code == v1.UCode.PERMISSION_DENIED
    assert str(app.uri) not in status.message


async def test_everybody_may_fetch_and_end_what_they_have_subscribed_themselves(devices: Devices, device: Device) -> None:
    peer = await stranger(devices, "cloud")
    await peer.subscribe(OPEN)
    assert await peer.subscriptions(peer.uri) == ([(OPEN, peer.uri, SUBSCRIBED)], False)
    await peer.unsubscribe(OPEN)
    assert await peer.subscriptions(peer.uri) == ([], False)


# reset


@pytest.mark.parametrize("authority", ["evil", "cloud"])
async def test_reset_of_a_stranger_deletes_nothing(devices: Devices, device: Device, app: Client, authority: str) -> None:
    await app.subscribe(INTERNAL)
    evil = await stranger(devices, authority, ue_id=0)
    status = await evil.refused(RESET, pb.ResetRequest())
    assert status.code == v1.UCode.PERMISSION_DENIED
    assert await app.subscribers(INTERNAL) == ([app.uri], False)
    assert app.updates == [(INTERNAL, app.uri, SUBSCRIBED)]


# pause


@pytest.mark.needs("pause")
@pytest.mark.parametrize("is_near", [True, False], ids=["own device", "far"])
async def test_nobody_pauses_anything_over_uprotocol_unless_the_configuration_names_them(
    devices: Devices, device: Device, app: Client, is_near: bool
) -> None:
    evil = await stranger(devices)
    if is_near:
        evil.transport = app.transport
        await app.transport.register_listener(everything_at("*"), everything_at("dev1"), evil)
    everything = pause.StopDispatchRequest(rule=pause.DispatchRule(topic=uri_to_proto(everything_at("*"))))
    answer = await evil.call(UUri("gw1", 4, 1, 1), everything, app.uri if is_near else evil.uri)
    assert answer.attributes.commstatus is UCode.PERMISSION_DENIED
    assert device.router.pause_rules.rules == ()


# amplification


async def test_invented_authorities_do_not_multiply_a_publish(devices: Devices, device: Device, app: Client) -> None:
    evil = await stranger(devices)
    for number in range(1000):
        await evil.call(UUri("dev1", 0, 3, SUBSCRIBE), subscribing(INTERNAL), UUri(f"evil{number}", 1, 1, 0))
        await evil.call(UUri("dev1", 0, 3, SUBSCRIBE), subscribing(OPEN), UUri(f"evil{number}", 1, 1, 0))
    for topic in (INTERNAL, OPEN):
        for number in range(10):
            await app.publish(topic, bytes([number]))
    await until(lambda: len(device.far.sent) >= 2010, "2000 answers and 10 copies")
    copies = Counter(m.attributes.sink for m in device.far.sent if m.attributes.type is UMessageType.PUBLISH)
    assert copies == {everything_at("cloud"): 10}


async def test_observers_do_not_multiply_a_change(devices: Devices, device: Device, app: Client) -> None:
    """The other direction: one local authority that invents uEntities."""
    codes: Counter[UCode | None] = Counter()
    for number in range(1000):
        asked = request(
            app.now_ms,
            UUri("dev1", 0x1000 + number, 1, 0),
            UUri("dev1", 0, 3, REGISTER),
            10_000,
            pb.NotificationsRequest(topic=uri_to_proto(INTERNAL)).SerializeToString(),
        )
        await app.transport.send(asked)
    await until(lambda: sum(m.attributes.type is UMessageType.RESPONSE for m in device.near.sent) == 1000, "all answers")
    codes.update(m.attributes.commstatus for m in device.near.sent)
    assert codes == {UCode.OK: 64, UCode.RESOURCE_EXHAUSTED: 936}
    device.near.sent.clear()
    await app.subscribe(INTERNAL)
    await app.all_is_said()
    assert sum(m.attributes.type is UMessageType.NOTIFICATION for m in device.near.sent) == 64 + 1


# permissions that change


async def test_reload_takes_a_permission_away_and_gives_it_back(devices: Devices) -> None:
    devices.changes = dict(NETWORKS)
    permitted = {"subscribe": [{"from": "//evil/1/3/0", "topics": [str(INTERNAL)]}]}
    device, app = await devices.device(1, **permitted), await devices.client(1, 0xA)
    peer = await stranger(devices)
    assert await peer.subscribe(INTERNAL) == SUBSCRIBED
    await until(lambda: "evil" in device.router.interest.of(INTERNAL), "the interest")
    narrow = FILE.model_validate(device.raw | {"usubscription": {"local": ["dev1"]}})
    device.service_host.use(narrow)
    await until(lambda: device.router.interest.of(INTERNAL) == {}, "the end of the interest")
    status = await peer.refused(SUBSCRIBE, subscribing(INTERNAL))
    assert status.code == v1.UCode.PERMISSION_DENIED
    await app.publish(INTERNAL, b"secret")
    await app.all_is_said()
    device.service_host.use(device.config)
    await until(lambda: "evil" in device.router.interest.of(INTERNAL), "the interest again")
    await until(lambda: len(peer.updates) == 3, "what the subscriber is told")
    assert [state for _, _, state in peer.updates] == [SUBSCRIBED, UNSUBSCRIBED, SUBSCRIBED]
    assert leaked(peer) == []


async def test_restart_with_another_configuration_keeps_what_a_stranger_has_stored_from_counting(devices: Devices) -> None:
    devices.changes = dict(NETWORKS)
    device = await devices.device(1, subscribe=[{"from": "//*/FFFFFFFF/FF/0", "topics": ["//*/FFFFFFFF/FF/FFFF"]}])
    peer = await stranger(devices)
    await peer.subscribe(INTERNAL)
    await device.stop()
    device = await devices.device(1, subscribe=[])
    assert device.router.interest.of(INTERNAL) == {}
    await until(lambda: UNSUBSCRIBED in [state for _, _, state in peer.updates], "what the subscriber is told")
    assert one_of(device.service_host.features, UsubscriptionFeature).gauges()["set_aside"] == 1


# multicast


@pytest.mark.needs("multicast")
async def test_stranger_receives_no_multicast_and_learns_no_names(devices: Devices) -> None:
    devices.changes = dict(NETWORKS) | {
        "multicast": [{"provider": "//dev1/10/1/0", "broadcast": "doorOpened", "partitions": {"front": 0x8001}}]
    }
    device = await devices.device(1, subscribe=[])
    evil = await stranger(devices)
    names = ("//dev1/10/1/0/doorOpened/front", "//dev1/10/1/0/doorOpened/*", "//dev1/10/1/0/doorOpend/front")
    for name in (*names, "//evil/10/1/0/doorOpend/fron"):
        for method in (0x10, 0x12):
            asked = pause.RegisterMulticastReceiverRequest(multicast_id=name)
            answer = await evil.call(UUri("gw1", 4, 1, method), asked, evil.uri)
            assert answer.attributes.commstatus in (UCode.PERMISSION_DENIED, UCode.NOT_FOUND)
            said = v1.UStatus.FromString(answer.payload or b"").message.replace(name, "")
            assert not any(secret in said for secret in ("doorOpened", "front", "//dev1"))
    assert device.router.interest.of(INTERNAL) == {}


# the audit log


async def test_what_is_denied_is_in_the_audit_log_and_bounded(
    devices: Devices, device: Device, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_denials", audit.denials())
    evil = await stranger(devices, ue_id=0)
    for _ in range(50):
        await evil.refused(RESET, pb.ResetRequest())
    said = [record.getMessage() for record in caplog.records if record.name == audit.NAME]
    assert len(said) == audit.LINES_PER_REQUESTER
    assert said[0].startswith("denied who=//evil/0/3/0 where=far reason=//evil/0/3/0 may not reset")
