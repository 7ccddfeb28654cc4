"""The last value of a topic goes to whoever subscribes to it late: once, and not to those who had it."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.config.models import Config
from streamer.delivery.lifecycle.reload import Reload
from streamer.features.utwin.feature import UtwinFeature
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri, everything_at
from tests.examples import examples
from tests.flow.devices import Devices
from tests.flow.harness import SPEED, RouterHarness, three_networks
from tests.flow.uentities import SUBSCRIBED, Client
from tests.hosted import one_of
from tests.unit.features.utwin.found import last_values_of, utwin_of

DOORS = SPEED._replace(resource=0x8A51)
TO_CLOUD = {"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]}
TO_PHONE = {"from": "vehicle", "to": "phone"}


def configured(initial: Any = True, **changes: Any) -> Config:
    """The vehicle's topics go to the cloud; to the phone, if somebody there has subscribed to them."""
    raw: dict[str, Any] = {"routes": [TO_CLOUD, TO_PHONE], "utwin": {}, "usubscription": {"initial": initial}}
    return three_networks(**raw | changes)


async def subscribe(harness: RouterHarness, interested: dict[str, int], topic: UUri = SPEED) -> None:
    harness.router.set_interest(topic, interested, "test", is_new=True)
    await asyncio.sleep(0)
    await harness.router.listening.catch_up()


def publish(harness: RouterHarness, payload: bytes, topic: UUri = SPEED, **attributes: Any) -> UMessage:
    message = harness.speed(source=topic, payload=payload)
    message = UMessage(message.id, replace(message.attributes, **attributes), message.payload)
    harness.arrive("vehicle", message)
    return message


def payloads(harness: RouterHarness, endpoint: str) -> list[bytes]:
    harness.check_books()
    return [message.payload or b"" for message in harness.sent(endpoint)]


async def test_a_late_subscriber_gets_the_last_value_once_and_nobody_else_does() -> None:
    async with RouterHarness(configured()) as harness:
        publish(harness, b"old")
        last = publish(harness, b"last")
        await subscribe(harness, {"phone1": 0})
        assert payloads(harness, "phone") == []  # it may not listen yet
        for _ in range(3):
            harness.pass_time(1000)
        assert harness.sent("phone") == [last]
        assert payloads(harness, "cloud") == [b"old", b"last"]
        assert harness.ledger.redelivered == {"cloud": 0, "phone": 1}


async def test_what_is_published_after_the_subscription_comes_instead() -> None:
    async with RouterHarness(configured()) as harness:
        publish(harness, b"last")
        await subscribe(harness, {"phone1": 0})
        publish(harness, b"new")
        harness.pass_time(1000)
        assert payloads(harness, "phone") == [b"new"]


async def test_whoever_leaves_and_comes_back_gets_only_what_is_new() -> None:
    async with RouterHarness(configured()) as harness:
        publish(harness, b"first")
        for _ in range(5):
            await subscribe(harness, {"phone1": 0})
            harness.pass_time(1000)
            await subscribe(harness, {})
        assert payloads(harness, "phone") == [b"first"]
        publish(harness, b"meanwhile")
        await subscribe(harness, {"phone1": 0})
        harness.pass_time(1000)
        assert payloads(harness, "phone") == [b"first", b"meanwhile"]


async def test_whoever_leaves_before_its_value_was_sent_gets_it_the_next_time() -> None:
    async with RouterHarness(configured()) as harness:
        publish(harness, b"last")
        await subscribe(harness, {"phone1": 0})
        await subscribe(harness, {})
        harness.pass_time(1000)
        assert payloads(harness, "phone") == []
        await subscribe(harness, {"phone1": 0})
        harness.pass_time(1000)
        assert payloads(harness, "phone") == [b"last"]


async def test_an_authority_with_a_copy_of_its_own_gets_it_alone() -> None:
    config = configured(routes=[{"from": "vehicle", "to": "cloud"}])
    async with RouterHarness(config, addressed=("cloud",)) as harness:
        await subscribe(harness, {"backend": 0})
        publish(harness, b"last")
        await subscribe(harness, {"backend": 0, "workshop": 0})
        harness.pass_time(1000)
        sinks = [message.attributes.sink for message in harness.sent("cloud")]
        assert sinks == [everything_at("backend"), everything_at("workshop")]


async def test_whoever_shares_a_network_with_an_earlier_subscriber_gets_nothing() -> None:
    async with RouterHarness(configured(routes=[{"from": "vehicle", "to": "cloud"}])) as harness:
        await subscribe(harness, {"backend": 0})
        publish(harness, b"last")
        await subscribe(harness, {"backend": 0, "workshop": 0})
        harness.pass_time(1000)
        assert payloads(harness, "cloud") == [b"last"]


async def test_two_newcomers_on_one_network_share_one_message() -> None:
    async with RouterHarness(configured()) as harness:
        publish(harness, b"last")
        await subscribe(harness, {"backend": 0})
        harness.pass_time(500)
        await subscribe(harness, {"backend": 0, "workshop": 0})
        for _ in range(3):
            harness.pass_time(1000)
        assert payloads(harness, "cloud") == [b"last", b"last"]  # the pattern's, before anybody had subscribed


@pytest.mark.parametrize("initial", [False, [str(DOORS)]], ids=["off", "other topics"])
async def test_it_is_a_choice_by_topic(initial: Any) -> None:
    async with RouterHarness(configured(initial)) as harness:
        for topic in (SPEED, DOORS):
            publish(harness, b"last", topic)
            await subscribe(harness, {"phone1": 0}, topic)
        harness.pass_time(1000)
        assert [message.attributes.source for message in harness.sent("phone")] == ([DOORS] if initial else [])


async def test_a_value_that_has_expired_meanwhile_is_not_sent() -> None:
    async with RouterHarness(configured()) as harness:
        publish(harness, b"last", ttl=800)
        await subscribe(harness, {"phone1": 0})
        harness.pass_time(1000)
        assert payloads(harness, "phone") == []


async def test_its_token_is_given_to_nobody() -> None:
    async with RouterHarness(configured()) as harness:
        publish(harness, b"last", token="secret")
        await subscribe(harness, {"phone1": 0})
        harness.pass_time(1000)
        assert [message.attributes.token for message in harness.sent("phone")] == [None]


async def test_it_waits_for_room_and_yields_to_what_is_newer() -> None:
    small = {"queue": {"messages": 1, "on_full": "reject"}}
    async with RouterHarness(configured(queue_policy=small)) as harness:
        publish(harness, b"speed")
        publish(harness, b"doors", DOORS)
        harness.transports["phone"].lose_link()
        for topic in (DOORS, SPEED):
            await subscribe(harness, {"phone1": 0}, topic)
        for _ in range(3):
            harness.pass_time(1000)
        assert harness.queued("vehicle-phone") == 1
        harness.transports["phone"].restore_link()
        harness.pass_time(1000)
        assert payloads(harness, "phone") == [b"doors", b"speed"]


async def test_a_subscription_to_any_instance_gets_the_last_value_of_each() -> None:
    topics = [SPEED._replace(ue_id=instance << 16 | 0x8000) for instance in range(3)]
    pattern = topics[0]._replace(ue_id=0xFFFF8000)
    async with RouterHarness(configured()) as harness:
        for number, topic in enumerate((*topics, DOORS)):
            publish(harness, b"%d" % number, topic)
        await subscribe(harness, {"phone1": 0}, topics[1])
        harness.pass_time(1000)
        await subscribe(harness, {"phone1": 0}, pattern)
        harness.pass_time(1000)
        assert payloads(harness, "phone") == [b"1", b"0", b"2"]


async def test_subscribers_of_more_topics_than_there_is_room_for_wait_for_the_next_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streamer.features.utwin.initial_values._MAX_WAITING_TOPICS", 1)
    async with RouterHarness(configured()) as harness:
        for topic in (SPEED, DOORS):
            publish(harness, b"last", topic)
            await subscribe(harness, {"phone1": 0}, topic)
        for _ in range(3):
            harness.pass_time(1000)
        assert [message.attributes.source for message in harness.sent("phone")] == [SPEED]


async def test_a_reload_switches_it_on() -> None:
    async with RouterHarness(configured(initial=False)) as harness:
        publish(harness, b"last")
        await subscribe(harness, {"phone1": 0})
        await Reload(harness.router, configured(), {}).run()
        one_of(harness.features, UtwinFeature).use(configured())
        harness.pass_time(1000)
        assert payloads(harness, "phone") == []  # it had subscribed before
        publish(harness, b"doors", DOORS)
        await subscribe(harness, {"phone1": 0}, DOORS)
        harness.pass_time(1000)
        assert payloads(harness, "phone") == [b"doors"]


WIDE = SPEED._replace(ue_id=0xFFFF8000)
"""Any instance of the service."""


@pytest.mark.parametrize("attempts", [256, 2], ids=["room for three", "two at a time"])
async def test_a_wide_subscription_gets_each_value_once_also_if_they_need_several_rounds(
    monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    monkeypatch.setattr("streamer.features.utwin.initial_values._ATTEMPTS_PER_ROUND", attempts)
    small = {"queue": {"messages": 3, "on_full": "reject"}}
    async with RouterHarness(configured(queue_policy=small)) as harness:
        for number in range(10):
            publish(harness, b"%d" % number, SPEED._replace(ue_id=number << 16 | 0x8000))
        await subscribe(harness, {"phone1": 0}, WIDE)
        for _ in range(12):
            harness.pass_time(1000)
        assert sorted(payloads(harness, "phone")) == [b"%d" % number for number in range(10)]
        assert not one_of(harness.features, UtwinFeature).initial_values.is_waiting


async def test_whoever_leaves_in_the_middle_of_a_wide_subscription_gets_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streamer.features.utwin.initial_values._ATTEMPTS_PER_ROUND", 2)
    async with RouterHarness(configured()) as harness:
        for number in range(6):
            publish(harness, b"%d" % number, SPEED._replace(ue_id=number << 16 | 0x8000))
        await subscribe(harness, {"phone1": 0}, WIDE)
        harness.pass_time(1000)
        await subscribe(harness, {}, WIDE)
        publish(harness, b"new")
        await subscribe(harness, {"phone1": 0}, WIDE)
        for _ in range(6):
            harness.pass_time(1000)
        assert payloads(harness, "phone") == [b"0", b"1", b"new"]


async def test_two_names_of_one_topic_at_once_bring_its_value_once() -> None:
    async with RouterHarness(configured()) as harness:
        publish(harness, b"last")
        await subscribe(harness, {"phone1": 0}, WIDE)
        await subscribe(harness, {"phone1": 0})
        for _ in range(3):
            harness.pass_time(1000)
        assert payloads(harness, "phone") == [b"last"]


@pytest.mark.parametrize("addressed", [(), ("cloud",)], ids=["one message", "a copy for each"])
async def test_two_newcomers_by_two_names_of_one_topic_both_get_its_value(addressed: tuple[str, ...]) -> None:
    async with RouterHarness(configured(routes=[{"from": "vehicle", "to": "cloud"}]), addressed=addressed) as harness:
        await subscribe(harness, {"earlier": 0})
        publish(harness, b"last")
        await subscribe(harness, {})
        await subscribe(harness, {"backend": 0}, WIDE)
        await subscribe(harness, {"workshop": 0})
        for _ in range(3):
            harness.pass_time(1000)
        sinks = {message.attributes.sink for message in harness.sent("cloud")}
        assert len(harness.sent("cloud")) == (3 if addressed else 2)
        assert sinks == ({everything_at(name) for name in ("earlier", "backend", "workshop")} if addressed else {None})


@pytest.mark.parametrize("names", [(WIDE, SPEED), (SPEED, WIDE), (SPEED._replace(version=0xFF), WIDE)])
async def test_whoever_comes_back_by_another_name_of_the_topic_gets_only_what_is_new(names: tuple[UUri, UUri]) -> None:
    async with RouterHarness(configured()) as harness:
        publish(harness, b"last")
        for name in names:
            await subscribe(harness, {"phone1": 0}, name)
            for _ in range(2):
                harness.pass_time(1000)
            await subscribe(harness, {}, name)
        assert payloads(harness, "phone") == [b"last"]


async def test_whoever_leaves_a_wide_subscription_at_once_gets_later_what_did_not_come_meanwhile() -> None:
    other = SPEED._replace(ue_id=0x18000)
    async with RouterHarness(configured()) as harness:
        publish(harness, b"1")
        publish(harness, b"2", other)
        await subscribe(harness, {"phone1": 0}, WIDE)
        publish(harness, b"3", other)
        await subscribe(harness, {}, WIDE)
        await subscribe(harness, {"phone1": 0}, WIDE)
        for _ in range(2):
            harness.pass_time(1000)
        assert payloads(harness, "phone") == [b"3", b"1"]


async def test_values_of_an_earlier_process_go_to_new_subscribers_only() -> None:
    async with RouterHarness(configured()) as harness:
        last_values_of(harness.features).restore(
            [(harness.speed(b"before"), harness.clock.ms)], harness.clock.ms, harness.clock.s
        )
        harness.router.set_interest(SPEED, {"phone1": 0}, "test")  # restored
        await asyncio.sleep(0)
        harness.pass_time(2000)
        await subscribe(harness, {})
        await subscribe(harness, {"phone1": 0})
        harness.pass_time(2000)
        assert payloads(harness, "phone") == []
        await subscribe(harness, {"phone1": 0, "backend": 0})
        harness.pass_time(2000)
        assert (payloads(harness, "phone"), payloads(harness, "cloud")) == ([], [b"before"])


ACTS = st.lists(st.sampled_from(["publish", "half a second", "a", "b", "c", "a wide", "b wide"]), max_size=25)


@given(ACTS)
@settings(max_examples=examples(100))
def test_however_subscribers_come_and_go_nobody_gets_a_value_twice_and_everybody_has_the_last_one(acts: list[str]) -> None:
    asyncio.run(_played(acts))


async def _played(acts: list[str]) -> None:
    config = configured(routes=[{"from": "vehicle", "to": "cloud"}])
    async with RouterHarness(config, addressed=("cloud",)) as harness:
        await subscribe(harness, {"always": 0})
        interested, last = {SPEED: {"always": 0}, WIDE: {}}, b""
        for number, act in enumerate(acts):
            if act == "publish":
                last = b"%d" % number
                publish(harness, last)
            elif act == "half a second":
                harness.pass_time(500)
            else:
                authority, name = act[0], WIDE if act.endswith("wide") else SPEED
                interested[name] = dict.fromkeys({*interested[name]} ^ {authority}, 0)
                await subscribe(harness, interested[name], name)
        for _ in range(4):
            harness.pass_time(500)
        had: dict[str, list[bytes]] = {}
        for message in harness.sent("cloud"):
            assert message.attributes.sink is not None
            had.setdefault(message.attributes.sink.authority, []).append(message.payload or b"")
        for authority, values in had.items():
            assert len(set(values)) == len(values), authority
        assert {had.get(authority, [b""])[-1] for name in interested for authority in interested[name]} == {last}


TOPIC = UUri("dev1", 0x10, 1, 0x8001)


async def phone(devices: Devices) -> Client:
    client = Client(devices.clock, UUri("phone", 0xC, 1, 0))
    client.service = "dev1"
    client.transport = await devices.join("far", "phone")
    await client.transport.register_listener(everything_at("*"), client.uri, client)
    await client.transport.register_listener(TOPIC, None, client)
    return client


def values(client: Client) -> list[bytes | None]:
    return [each.message.payload for each in client.received if each.message.attributes.source == TOPIC]


async def test_a_subscribe_brings_the_value_and_a_restart_does_not_bring_it_again(devices: Devices) -> None:
    devices.changes = {"utwin": {}}
    devices.changes["routes"] = [
        {"from": "near", "to": "far", "publish": ["//dev1/FFFFFFFF/FF/FFFF"]},
        {"from": "far", "to": "near"},
    ]
    permitted = [{"from": "//phone/C/1/0", "topics": [str(TOPIC)]}]
    device = await devices.device(1, initial=True, subscribe=permitted)
    app = await devices.client(1, 0x10)
    await app.publish(TOPIC, b"1")
    late = await phone(devices)
    assert await late.subscribe(TOPIC) == SUBSCRIBED
    assert values(late) == []
    devices.pass_time(1000)
    assert values(late) == [b"1"]
    await late.subscribe(TOPIC)
    devices.pass_time(2000)
    await utwin_of(device.service_host.features).save()
    await devices.restart(device)
    devices.pass_time(2000)
    await late.subscribe(TOPIC)
    devices.pass_time(2000)
    assert values(late) == [b"1"]
