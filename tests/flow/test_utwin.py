"""core.utwin from outside: uEntities ask for the last messages of topics with raw protobuf, through the router."""

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from streamer.features.host.state import StateError, StateFile, Statement
from streamer.features.usubscription.config import UsubscriptionConfig
from streamer.features.utwin import service as utwin
from streamer.features.utwin.config import UtwinConfig
from streamer.uprotocol.message import Options, Provenance, UMessage, UMessageType, publish, request
from streamer.uprotocol.proto import utwin_v2_pb2 as pb
from streamer.uprotocol.protobuf import uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.constants import with_constants
from tests.flow.devices import Device, Devices
from tests.flow.uentities import Client
from tests.unit.features.utwin.found import last_values_of, utwin_of
from tests.waiting import until

SPEED = UUri("dev1", 0x10, 1, 0x8001)
DOORS = UUri("dev1", 0x10, 1, 0x8002)
AT_DEVICE, AT_STREAMER = UUri("dev1", 3, 2, 1), UUri("gw1", 3, 2, 1)
ROUTES = [{"from": "near", "to": "far", "publish": ["//dev1/FFFFFFFF/FF/FFFF"]}, {"from": "far", "to": "near"}]


async def started(devices: Devices, **utwin: Any) -> Device:
    devices.changes = {"utwin": with_constants(UtwinConfig, **utwin), "routes": ROUTES}
    return await devices.device(1, subscribe=[{"from": "//phone/C/1/0", "topics": [str(SPEED)]}])


@pytest.fixture
async def device(devices: Devices) -> Device:
    return await started(devices)


async def phone(devices: Devices) -> Client:
    """A uEntity of another device, which may subscribe to one topic."""
    client = Client(devices.clock, UUri("phone", 0xC, 1, 0))
    client.transport = await devices.join("far", "phone")
    await client.transport.register_listener(everything_at("*"), client.uri, client)
    return client


async def answer(client: Client, *topics: UUri, at: UUri = AT_DEVICE) -> UMessage:
    asked = pb.GetLastMessagesRequest()
    asked.topics.uris.extend([uri_to_proto(topic) for topic in topics])
    return await client.answer_to(request(client.now_ms, client.uri, at, 10_000, asked.SerializeToString()))


async def last(client: Client, *topics: UUri, at: UUri = AT_DEVICE) -> Sequence[pb.MessageResponse]:
    response = await answer(client, *topics, at=at)
    assert response.attributes.commstatus in (None, UCode.OK)
    return pb.GetLastMessagesResponse.FromString(response.payload or b"").responses


def found(answers: Sequence[pb.MessageResponse]) -> list[bytes | str]:
    """Payloads, or the names of the codes where there is no message."""
    assert all(each.HasField("message") is (each.status.code == UCode.OK) for each in answers)
    return [each.message.payload if each.HasField("message") else UCode(each.status.code).name for each in answers]


async def test_the_last_message_of_each_topic_is_returned_in_the_order_of_the_question(app: Client) -> None:
    for topic, payload in ((SPEED, b"1"), (DOORS, b"2"), (SPEED, b"3")):
        await app.publish(topic, payload)
    answers = await last(app, DOORS, SPEED, UUri("dev1", 0x10, 1, 0x8009))
    assert found(answers) == [b"2", b"3", "NOT_FOUND"]
    assert [each.topic.resource_id for each in answers] == [0x8002, 0x8001, 0x8009]
    assert answers[1].message.attributes.source == uri_to_proto(SPEED)


async def test_messages_from_every_network_are_known_at_the_device_and_at_the_streamer(
    devices: Devices, app: Client
) -> None:
    news = UUri("cloud", 0x20, 1, 0x8003)
    await app.subscribe(news)
    far = await devices.join("far", "cloud")
    await far.send(publish(devices.clock.ms, news, b"news"))
    for at in (AT_DEVICE, AT_STREAMER):
        assert found(await last(app, news, at=at)) == [b"news"]


async def test_the_same_topic_of_two_devices_has_two_values(devices: Devices, app: Client) -> None:
    elsewhere = SPEED._replace(authority="cloud")
    await app.subscribe(elsewhere)
    await app.publish(SPEED, b"1")
    far = await devices.join("far", "cloud")
    for payload in (b"2", b"3"):
        await far.send(publish(devices.clock.ms, elsewhere, payload))
    assert found(await last(app, SPEED, elsewhere)) == [b"1", b"3"]


async def test_a_message_that_has_expired_is_not_found(devices: Devices, app: Client) -> None:
    await app.transport.send(publish(devices.clock.ms, SPEED, b"1", Options(ttl=1000)))
    assert found(await last(app, SPEED)) == [b"1"]
    devices.pass_time(1001)
    assert found(await last(app, SPEED)) == ["NOT_FOUND"]


DAY_MS = 86_400_000
AHEAD = pytest.mark.parametrize("ahead_ms", [2 * DAY_MS, 1024 * 7 * DAY_MS], ids=["two days", "1024 weeks"])


def published(ahead_ms: int, devices: Devices) -> UMessage:
    return publish(devices.clock.ms + ahead_ms, SPEED, b"1", Options(ttl=5000))


@AHEAD
async def test_an_id_from_the_future_makes_no_value_the_last_one_for_ever(
    devices: Devices, device: Device, app: Client, ahead_ms: int
) -> None:
    await app.transport.send(published(ahead_ms, devices))
    devices.pass_time(5000)
    assert found(await last(app, SPEED)) == [b"1"]
    devices.pass_time(1)
    assert found(await last(app, SPEED)) == ["NOT_FOUND"]
    assert list(utwin_of(device.service_host.features).fresh()) == []


@AHEAD
async def test_an_id_from_the_future_does_not_come_back_with_a_restart(
    devices: Devices, device: Device, app: Client, ahead_ms: int
) -> None:
    await app.transport.send(published(ahead_ms, devices))
    await utwin_of(device.service_host.features).save()
    devices.pass_time(4000)
    device = await devices.restart(device)
    assert found(await last(app, SPEED)) == [b"1"]
    devices.pass_time(1001)
    for _ in range(2):
        assert found(await last(app, SPEED)) == ["NOT_FOUND"]
        device = await devices.restart(device)


@AHEAD
async def test_own_clock_that_was_ahead_leaves_no_value_that_never_expires(
    devices: Devices, device: Device, app: Client, ahead_ms: int
) -> None:
    devices.clock.ms += ahead_ms
    await app.transport.send(published(0, devices))
    devices.pass_time(1000)
    await utwin_of(device.service_host.features).save()
    devices.clock.ms -= ahead_ms
    assert found(await last(app, SPEED)) == [b"1"]
    devices.pass_time(4001)
    assert found(await last(app, SPEED)) == ["NOT_FOUND"]
    for answered in (b"1", "NOT_FOUND"):  # nobody knows when it came: it counts as come with the first restart, once
        device = await devices.restart(device)
        assert found(await last(app, SPEED)) == [answered]
        await utwin_of(device.service_host.features).save()
        devices.pass_time(5001)


async def test_who_may_not_subscribe_may_not_ask(devices: Devices, app: Client) -> None:
    await app.publish(SPEED, b"1")
    await app.publish(DOORS, b"2")
    assert found(await last(await phone(devices), SPEED, DOORS)) == [b"1", "PERMISSION_DENIED"]


@pytest.mark.parametrize(
    "topic", [UUri("dev1", 0x10, 1, 0xFFFF), UUri("dev1", 0x10, 1, 7), UUri("*", 0x10, 1, 0x8001), UUri("", 0x10, 1, 0x8001)]
)
async def test_what_is_no_topic_is_an_invalid_argument(app: Client, topic: UUri) -> None:
    assert found(await last(app, topic)) == ["INVALID_ARGUMENT"]


async def test_a_question_without_topics_and_another_method_are_refused(app: Client) -> None:
    assert (await answer(app)).attributes.commstatus is UCode.INVALID_ARGUMENT
    assert (await answer(app, SPEED, at=AT_DEVICE._replace(resource=2))).attributes.commstatus is UCode.UNIMPLEMENTED


async def test_a_question_has_at_most_4096_bytes(app: Client) -> None:
    """So 120 topics of authorities as long as a vehicle identification number."""
    topics = [UUri("wvwzzz1jzxw000001", 0x10A8000, 1, 0x8001 + number) for number in range(120)]
    assert found(await last(app, *topics)) == ["NOT_FOUND"] * 120
    refused = await answer(app, *topics, *topics)
    assert refused.attributes.commstatus is UCode.INVALID_ARGUMENT
    assert b"expected at most 4096 bytes" in (refused.payload or b"")


async def test_the_token_of_a_publisher_is_given_to_nobody(devices: Devices, device: Device, app: Client) -> None:
    await app.transport.send(publish(devices.clock.ms, SPEED, b"1", Options(token="canary")))
    (answered,) = await last(app, SPEED)
    assert answered.message.payload == b"1"
    assert "canary" not in str(answered)
    await utwin_of(device.service_host.features).save()
    assert b"canary" not in b"".join(path.read_bytes() for path in devices.folder.iterdir())


async def test_beyond_the_bounds_the_topic_that_was_published_longest_ago_is_forgotten(devices: Devices) -> None:
    await started(devices, max_topics=2)
    app = await devices.client(1, 0xA)
    topics = [SPEED._replace(resource=0x8001 + number) for number in range(3)]
    for topic in (*topics[:2], topics[0], topics[2]):
        await app.publish(topic, b"x")
    assert found(await last(app, *topics)) == [b"x", "NOT_FOUND", b"x"]


async def test_a_message_beyond_the_bytes_displaces_no_other(devices: Devices) -> None:
    await started(devices, max_bytes=5000)
    app = await devices.client(1, 0xA)
    await app.publish(SPEED, b"1")
    await app.publish(DOORS, b"2")
    await app.publish(DOORS, bytes(5000))
    assert found(await last(app, SPEED, DOORS)) == [b"1", "NOT_FOUND"]


async def test_topics_that_the_answer_has_no_room_for_are_to_be_asked_for_again(devices: Devices) -> None:
    await started(devices, max_answer_bytes=1500)
    app = await devices.client(1, 0xA)
    for topic in (SPEED, DOORS):
        await app.publish(topic, bytes(1000))
    assert found(await last(app, SPEED, DOORS)) == [bytes(1000), "RESOURCE_EXHAUSTED"]
    assert found(await last(app, DOORS)) == [bytes(1000)]


async def test_what_was_saved_survives_a_restart_and_what_was_forgotten_does_not_return(devices: Devices) -> None:
    device = await started(devices, max_topics=2)
    app = await devices.client(1, 0xA)
    topics = [SPEED._replace(resource=0x8001 + number) for number in range(3)]
    for topic in topics[:2]:
        await app.publish(topic, b"x")
    await utwin_of(device.service_host.features).save()
    await app.publish(topics[2], b"y")
    await utwin_of(device.service_host.features).save()
    device = await devices.restart(device)
    assert found(await last(app, *topics)) == ["NOT_FOUND", b"x", b"y"]


async def killed(devices: Devices, device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """Kill a device, which writes nothing then, and start it again."""

    async def nothing(twin: utwin.UTwin, quiet_s: float = 0.0) -> None:
        pass

    with monkeypatch.context() as patched:
        patched.setattr(utwin.UTwin, "save", nothing)
        return await devices.restart(device)


def rows(devices: Devices) -> int:
    with closing(sqlite3.connect(devices.folder / "gw1.db")) as file:
        count: int = file.execute("SELECT count(*) FROM utwin_messages").fetchone()[0]
    return count


async def test_after_a_kill_there_is_the_last_message_or_none(
    devices: Devices, device: Device, app: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = utwin_of(device.service_host.features)
    for topic in (SPEED, DOORS):
        await app.publish(topic, b"old")
    devices.pass_time(60_000)
    await twin.save(quiet_s=60)
    assert rows(devices) == 2
    await app.publish(SPEED, b"new")
    await until(lambda: rows(devices) == 1, "the deletion of what is not the last message")
    device = await killed(devices, device, monkeypatch)
    assert found(await last(app, SPEED, DOORS)) == ["NOT_FOUND", b"old"]


async def test_what_comes_while_an_earlier_one_is_being_saved_is_the_last_after_a_kill_too(
    devices: Devices, device: Device, app: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin, write = utwin_of(device.service_host.features), device.service_host.state.write

    async def meanwhile(statements: Sequence[Statement]) -> None:
        if statements:
            patched.undo()
            await app.publish(SPEED, b"new")
        await write(statements)

    await app.publish(SPEED, b"old")
    with monkeypatch.context() as patched:
        patched.setattr(device.service_host.state, "write", meanwhile)
        await twin.save()
    await until(lambda: rows(devices) == 0, "the deletion of what is not the last message")
    await killed(devices, device, monkeypatch)
    assert found(await last(app, SPEED)) == ["NOT_FOUND"]


async def test_only_topics_that_are_quiet_are_written_before_the_end(devices: Devices, device: Device, app: Client) -> None:
    twin = utwin_of(device.service_host.features)
    await app.publish(SPEED, b"1")
    devices.pass_time(59_000)
    await app.publish(DOORS, b"2")
    devices.pass_time(1000)
    await twin.save(quiet_s=60)
    assert rows(devices) == 1
    await devices.restart(device)
    assert found(await last(app, SPEED, DOORS)) == [b"1", b"2"]


async def test_without_the_key_there_is_no_such_service(devices: Devices) -> None:
    devices.changes = {"routes": ROUTES}
    await devices.device(1)
    app = await devices.client(1, 0xA)
    await app.publish(SPEED, b"1")
    asked = request(app.now_ms, app.uri, AT_STREAMER, 10_000, b"")
    response = await app.answer_to(asked)
    assert response.attributes.type is UMessageType.RESPONSE
    assert response.attributes.commstatus not in (None, UCode.OK)


async def test_the_present_value_is_known_at_once_after_an_outage(devices: Devices, device: Device, app: Client) -> None:
    await device.far.stop()
    for number in range(100):
        await app.publish(SPEED, b"%d" % number)
    assert found(await last(app, SPEED)) == [b"99"]


async def test_what_is_to_be_saved_stays_bounded_however_many_topics_are_invented(devices: Devices) -> None:
    device = await started(devices, max_topics=10)
    app = await devices.client(1, 0xA)
    values, twin = last_values_of(device.service_host.features), utwin_of(device.service_host.features)
    for _ in range(3):
        for number in range(100):
            await app.publish(SPEED._replace(resource=0x8001 + number), b"x")
        assert len(values.changed) <= 2 * 10
        await twin.save()
        assert (len(values.changed), len(values.saved)) == (0, 10)
    device = await devices.restart(device)
    values = last_values_of(device.service_host.features)
    assert (len(values), len(values.changed)) == (10, 0)


async def test_what_could_not_be_saved_is_saved_the_next_time(
    devices: Devices, device: Device, app: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = utwin_of(device.service_host.features)

    async def full(statements: object) -> None:
        raise StateError("the disk is full")

    await app.publish(SPEED, b"1")
    with monkeypatch.context() as patched:
        patched.setattr(device.service_host.state, "write", full)
        await twin.save()
    await app.publish(DOORS, b"2")
    await twin.save()
    device = await devices.restart(device)
    assert found(await last(app, SPEED, DOORS)) == [b"1", b"2"]


async def test_what_is_forgotten_while_it_is_being_saved_does_not_return(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await started(devices, max_topics=1)
    app = await devices.client(1, 0xA)
    twin, write = utwin_of(device.service_host.features), device.service_host.state.write

    async def meanwhile(statements: Sequence[Statement]) -> None:
        await app.publish(DOORS, b"2")
        await write(statements)

    await app.publish(SPEED, b"1")
    with monkeypatch.context() as patched:
        patched.setattr(device.service_host.state, "write", meanwhile)
        await twin.save()
    await twin.save()
    await devices.restart(device)
    assert found(await last(app, SPEED, DOORS)) == ["NOT_FOUND", b"2"]


TOPICS = [SPEED._replace(resource=0x8001 + number) for number in range(4)]


@pytest.mark.parametrize(
    "damage", ["message = x'ffffff73656372657421'", "topic = '//x/1/1/8001'"], ids=["no message", "of another topic"]
)
async def test_a_damaged_row_is_left_out_and_its_payload_is_not_logged(
    devices: Devices, device: Device, app: Client, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    await app.publish(SPEED, b"1")
    await app.publish(DOORS, b"secret!")
    await utwin_of(device.service_host.features).save()
    await device.stop()
    with sqlite3.connect(devices.folder / "gw1.db") as file:
        file.execute(f"UPDATE utwin_messages SET {damage} WHERE topic = ?", (str(DOORS),))
    file.close()
    await devices.restart(device)
    assert found(await last(app, SPEED, DOORS)) == [b"1", "NOT_FOUND"]
    assert "state_row_unreadable" in caplog.text
    assert "secret!" not in caplog.text


async def test_a_state_file_that_can_be_opened_only_later_displaces_no_present_value(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await started(devices, max_topics=3)
    app = await devices.client(1, 0xA)
    for topic in TOPICS[:3]:
        await app.publish(topic, b"old")
    await utwin_of(device.service_host.features).save()
    await device.stop()

    def unmounted(file: StateFile, *arguments: object) -> None:
        raise StateError("not mounted yet")

    monkeypatch.setattr("streamer.features.host.host._RETRY_S", 0.01)
    with monkeypatch.context() as patched:
        patched.setattr(StateFile, "read", unmounted)
        device = await devices.device(1, **device.options)
        for topic in (TOPICS[3], TOPICS[0]):
            await app.publish(topic, b"new")
    values = last_values_of(device.service_host.features)
    await until(lambda: len(values) == 3, "the earlier values")
    assert found(await last(app, *TOPICS)) == [b"new", "NOT_FOUND", b"old", b"new"]


async def test_what_is_forgotten_first_does_not_depend_on_the_clock_also_after_a_restart(devices: Devices) -> None:
    device = await started(devices, max_topics=2)
    app = await devices.client(1, 0xA)
    await app.publish(TOPICS[0], b"0")
    devices.clock.ms -= 3_600_000  # set back
    await app.publish(TOPICS[1], b"1")
    await utwin_of(device.service_host.features).save()
    await devices.restart(device)
    await app.publish(TOPICS[2], b"2")
    assert found(await last(app, *TOPICS[:3])) == ["NOT_FOUND", b"1", b"2"]


async def test_what_is_published_again_before_it_is_saved_is_forgotten_last_also_after_a_restart(devices: Devices) -> None:
    device = await started(devices, max_topics=2)
    app = await devices.client(1, 0xA)
    for topic in (TOPICS[0], TOPICS[1], TOPICS[0]):
        await app.publish(topic, b"x")
    await utwin_of(device.service_host.features).save()
    await devices.restart(device)
    await app.publish(TOPICS[2], b"x")
    assert found(await last(app, *TOPICS[:3])) == [b"x", "NOT_FOUND", b"x"]


async def test_what_smaller_bounds_forget_at_a_restart_does_not_come_back_with_larger_ones(devices: Devices) -> None:
    for bounds, answered in (({}, bytes(9000)), ({"max_bytes": 5000}, "NOT_FOUND"), ({}, "NOT_FOUND")):
        device = await started(devices, **bounds)
        app = await devices.client(1, 0xA)
        if not bounds and answered != "NOT_FOUND":
            await app.publish(SPEED, bytes(9000))
        assert found(await last(app, SPEED)) == [answered]
        await utwin_of(device.service_host.features).save()
        await device.stop()


async def test_a_stop_while_values_wait_to_be_saved_loses_none(devices: Devices, device: Device, app: Client) -> None:
    twin, gate = utwin_of(device.service_host.features), threading.Event()
    await app.publish(SPEED, b"1")
    assert device.service_host.state._journal is not None
    device.service_host.state._journal.submit(lambda connection: gate.wait())  # the file is busy
    saving = asyncio.create_task(twin.save())
    await asyncio.sleep(0)
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    gate.set()
    await twin.save()
    await devices.restart(device)
    assert found(await last(app, SPEED)) == [b"1"]


async def test_the_identity_that_permissions_ask_for_survives_a_restart(devices: Devices, device: Device) -> None:
    values = last_values_of(device.service_host.features)
    message = publish(devices.clock.ms, SPEED, b"1")
    values.put(
        UMessage(message.id, replace(message.attributes, provenance=Provenance("dev1")), b"1"),
        devices.clock.ms,
        devices.clock.s,
    )
    await utwin_of(device.service_host.features).save()
    device = await devices.restart(device)
    ((_, value),) = last_values_of(device.service_host.features).listed()
    assert value.message.attributes.provenance.identity == "dev1"


async def test_a_message_that_the_answer_has_no_room_for_is_not_even_converted(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a small Request for one large topic, 120 times, would hold up everything for seconds."""
    await started(devices, max_answer_bytes=5000)
    app = await devices.client(1, 0xA)
    await app.publish(SPEED, bytes(6000))
    converted: list[UMessage] = []
    monkeypatch.setattr(utwin, "message_to_proto", converted.append)
    assert found(await last(app, *[SPEED] * 120)) == ["RESOURCE_EXHAUSTED"] * 120
    assert converted == []


async def test_what_a_reload_no_longer_permits_is_not_told(devices: Devices, device: Device, app: Client) -> None:
    await app.publish(SPEED, b"1")
    asking = await phone(devices)
    assert found(await last(asking, SPEED)) == [b"1"]
    options = device.config.section(UsubscriptionConfig)
    assert options is not None
    device.service_host.use(device.config.model_copy(update={"usubscription": options.model_copy(update={"subscribe": []})}))
    assert found(await last(asking, SPEED)) == ["PERMISSION_DENIED"]


async def test_what_permissions_deny_by_now_is_not_told_not_even_after_a_restart(
    devices: Devices, device: Device, app: Client
) -> None:
    for topic in (SPEED, DOORS):
        await app.publish(topic, b"1")
    await utwin_of(device.service_host.features).save()
    anything = {"allow": {"from": "//*/FFFFFFFF/FF/FFFF", "to": "//*/FFFFFFFF/FF/FFFF"}}
    denied = {"deny": {"types": ["publish"], "from": str(SPEED), "to": "//*/FFFFFFFF/FF/FFFF"}}
    devices.changes["permissions"] = {"endpoints": {"near": {"rules": [denied, anything]}, "far": {"rules": [anything]}}}
    device.service_host.use(device.config.model_validate(device.raw | devices.changes))
    assert found(await last(app, SPEED, DOORS)) == ["NOT_FOUND", b"1"]
    assert [topic for topic, _ in utwin_of(device.service_host.features).fresh()] == [DOORS]
    await devices.restart(device)
    assert found(await last(app, SPEED, DOORS)) == ["NOT_FOUND", b"1"]


async def test_large_messages_are_saved_one_by_one(
    devices: Devices, device: Device, app: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else many of them would hold up everything else while they are converted."""
    twin, write = utwin_of(device.service_host.features), device.service_host.state.write
    for topic, size in zip(TOPICS, (2_000_000, 1_500_000, 10, 10), strict=True):
        await app.publish(topic, bytes(size))
    written: list[int] = []

    async def counted(statements: Sequence[Statement]) -> None:
        if statements:  # uSubscription has none
            written.append(len(statements))
        await write(statements)

    with monkeypatch.context() as patched:
        patched.setattr(device.service_host.state, "write", counted)
        await twin.save()
    assert written == [1, 1, 2]
    await devices.restart(device)
    assert found(await last(app, *TOPICS[2:])) == [bytes(10)] * 2
