"""uSubscription, seen from outside, topics of another device, whose service the test plays itself (4.1, 4.2, 6, 8).

The link between the two devices can be cut, and the device's daemon can be ended and started at any point.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streamer.services.usubscription import service
from streamer.uprotocol.message import UMessage, UMessageType
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.devices import (
    SUBSCRIBE,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    UNSUBSCRIBE,
    UNSUBSCRIBE_PENDING,
    UNSUBSCRIBED,
    Client,
    Device,
    Devices,
    Remote,
    until,
)

TOPIC = UUri("dev2", 0x10, 1, 0x8001)
OURSELVES = UUri("gw1", 0, 3, 0)
FIVE_MINUTES_MS = 300_000
DAY_MS = 24 * 3_600_000


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due by the wound clock is noticed soon."""
    monkeypatch.setattr(service, "TICK_S", 0.005)


@pytest.fixture
async def devices(tmp_path: Path) -> AsyncIterator[Devices]:
    async with Devices(tmp_path) as devices:
        yield devices


@pytest.fixture
async def device(devices: Devices) -> Device:
    return await devices.device(1)


@pytest.fixture
async def remote(devices: Devices, device: Device) -> Remote:
    return await devices.remote("dev2")


@pytest.fixture
async def app(devices: Devices, device: Device) -> Client:
    return await devices.client(1, 0xA)


@pytest.fixture
async def other(devices: Devices, device: Device) -> Client:
    return await devices.client(1, 0xB)


async def states(client: Client, *expected: int) -> None:
    """The states that a client was told of ``TOPIC``, all of them, in order."""
    await until(lambda: len(client.updates) >= len(expected), f"{len(expected)} Updates")
    await client.all_is_said()
    assert client.updates == [(TOPIC, client.uri, state) for state in expected]


async def subscribed(app: Client, remote: Remote) -> None:
    assert await app.subscribe(TOPIC) == SUBSCRIBE_PENDING
    await remote.grant(await remote.next(1))
    await states(app, SUBSCRIBE_PENDING, SUBSCRIBED)


async def restart(devices: Devices, device: Device) -> Device:
    await device.stop()
    return await devices.device(1)


def ttl_ms(asked: UMessage) -> int:
    return asked.attributes.ttl or 0


# 4.1 Subscribe


async def test_first_subscribe_asks_the_service_of_the_topics_authority_as_ourselves(app: Client, remote: Remote) -> None:
    assert await app.subscribe(TOPIC) == SUBSCRIBE_PENDING
    asked = await remote.next(1)
    assert asked.attributes.type is UMessageType.REQUEST
    assert asked.attributes.source == OURSELVES
    assert asked.attributes.sink == UUri("dev2", 0, 3, SUBSCRIBE)
    assert remote.asked == [(SUBSCRIBE, TOPIC)]
    await states(app, SUBSCRIBE_PENDING)
    assert await app.subscriptions(TOPIC) == ([(TOPIC, app.uri, SUBSCRIBE_PENDING)], False)


async def test_all_who_subscribe_before_the_answer_are_pending_and_only_one_request_is_sent(
    app: Client, other: Client, remote: Remote
) -> None:
    assert await app.subscribe(TOPIC) == SUBSCRIBE_PENDING
    assert await other.subscribe(TOPIC) == SUBSCRIBE_PENDING
    assert await app.subscribe(TOPIC) == SUBSCRIBE_PENDING
    await states(app, SUBSCRIBE_PENDING)
    await states(other, SUBSCRIBE_PENDING)
    assert remote.asked == [(SUBSCRIBE, TOPIC)]


@pytest.mark.parametrize("answer", [SUBSCRIBED, UNSUBSCRIBED], ids=["subscribed", "unsubscribed"])
async def test_every_subscriber_follows_the_answer(app: Client, other: Client, remote: Remote, answer: int) -> None:
    for client in (app, other):
        await client.subscribe(TOPIC)
    await remote.grant(await remote.next(1), answer)
    for client in (app, other):
        await states(client, SUBSCRIBE_PENDING, answer)
    entries, _ = await app.subscriptions(TOPIC)
    expected = [(TOPIC, client.uri, SUBSCRIBED) for client in (app, other)] if answer == SUBSCRIBED else []
    assert entries == expected


async def test_pending_as_answer_stays_pending_until_the_other_service_says_more(app: Client, remote: Remote) -> None:
    await app.subscribe(TOPIC)
    await remote.grant(await remote.next(1), SUBSCRIBE_PENDING)
    await app.all_is_said()
    assert await app.subscribe(TOPIC) == SUBSCRIBE_PENDING
    await remote.update(TOPIC, OURSELVES, SUBSCRIBED)
    await states(app, SUBSCRIBE_PENDING, SUBSCRIBED)
    assert await app.subscribe(TOPIC) == SUBSCRIBED


async def test_who_comes_when_the_topic_is_subscribed_is_subscribed_at_once(
    app: Client, other: Client, remote: Remote
) -> None:
    await subscribed(app, remote)
    assert await other.subscribe(TOPIC) == SUBSCRIBED
    await states(other, SUBSCRIBED)
    assert await app.subscribe(TOPIC) == SUBSCRIBED
    assert remote.asked == [(SUBSCRIBE, TOPIC)]


@pytest.mark.parametrize("who", ["who has left", "another one"])
async def test_subscribe_while_the_topic_is_being_left_starts_over(
    app: Client, other: Client, remote: Remote, who: str
) -> None:
    await subscribed(app, remote)
    await app.unsubscribe(TOPIC)
    await states(app, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING)
    leave = await remote.next(2)
    comes = app if who == "who has left" else other
    assert await comes.subscribe(TOPIC) == SUBSCRIBE_PENDING
    again = await remote.next(3)
    assert remote.asked == [(SUBSCRIBE, TOPIC), (UNSUBSCRIBE, TOPIC), (SUBSCRIBE, TOPIC)]
    await remote.grant(leave)
    await remote.grant(again)
    await until(lambda: comes.updates[-1:] == [(TOPIC, comes.uri, SUBSCRIBED)], "the state after starting over")
    assert await comes.subscribe(TOPIC) == SUBSCRIBED
    assert await app.subscribers(TOPIC) == ([comes.uri], False)


async def test_subscriber_of_a_remote_topic_is_kept_over_restarts(
    devices: Devices, device: Device, app: Client, remote: Remote
) -> None:
    await subscribed(app, remote)
    device = await restart(devices, device)
    assert await app.subscribe(TOPIC) == SUBSCRIBED
    assert await app.subscriptions(app.uri) == ([(TOPIC, app.uri, SUBSCRIBED)], False)
    await until(lambda: (TOPIC, None) in device.far.registry.filters(), "the listener")


# 4.2 Unsubscribe


async def test_last_one_to_leave_unsubscribes_there_as_ourselves_and_the_others_do_not(
    app: Client, other: Client, remote: Remote
) -> None:
    await subscribed(app, remote)
    await other.subscribe(TOPIC)
    await app.unsubscribe(TOPIC)
    await states(app, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBED)
    assert remote.asked == [(SUBSCRIBE, TOPIC)]
    await other.unsubscribe(TOPIC)
    asked = await remote.next(2)
    assert (asked.attributes.source, asked.attributes.sink) == (OURSELVES, UUri("dev2", 0, 3, UNSUBSCRIBE))
    assert remote.asked == [(SUBSCRIBE, TOPIC), (UNSUBSCRIBE, TOPIC)]
    await states(other, SUBSCRIBED, UNSUBSCRIBE_PENDING)
    await remote.grant(asked)
    await states(other, SUBSCRIBED, UNSUBSCRIBE_PENDING, UNSUBSCRIBED)


@pytest.mark.parametrize(
    "code",
    [UCode.OK, UCode.NOT_FOUND, UCode.PERMISSION_DENIED, UCode.INVALID_ARGUMENT, UCode.INTERNAL],
    ids=lambda c: c.name,
)
async def test_left_topic_is_unsubscribed_whatever_the_answer(
    devices: Devices, app: Client, remote: Remote, code: UCode
) -> None:
    await subscribed(app, remote)
    await app.unsubscribe(TOPIC)
    asked = await remote.next(2)
    if code is UCode.OK:
        await remote.grant(asked)
    else:
        await remote.refuse(asked, code)
    await states(app, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING, UNSUBSCRIBED)
    devices.pass_time(DAY_MS)
    await app.all_is_said()
    assert len(remote.asked) == 2
    assert await app.subscribers(TOPIC) == ([], False)


async def test_unsubscribe_before_the_answer_is_unsubscribed_at_once_and_tells_the_other_service(
    app: Client, remote: Remote
) -> None:
    await app.subscribe(TOPIC)
    subscribe = await remote.next(1)
    await app.unsubscribe(TOPIC)
    await states(app, SUBSCRIBE_PENDING, UNSUBSCRIBED)
    leave = await remote.next(2)
    assert remote.asked == [(SUBSCRIBE, TOPIC), (UNSUBSCRIBE, TOPIC)]
    await remote.grant(subscribe)  # it comes late, and means nothing any more
    await remote.grant(leave)
    await states(app, SUBSCRIBE_PENDING, UNSUBSCRIBED)
    assert await app.subscribers(TOPIC) == ([], False)


async def test_last_one_whose_time_is_over_unsubscribes_there_too(devices: Devices, app: Client, remote: Remote) -> None:
    assert await app.subscribe(TOPIC, devices.clock.ms + DAY_MS) == SUBSCRIBE_PENDING
    await remote.grant(await remote.next(1))
    await states(app, SUBSCRIBE_PENDING, SUBSCRIBED)
    devices.pass_time(DAY_MS)
    await remote.grant(await remote.next(2))
    assert remote.asked == [(SUBSCRIBE, TOPIC), (UNSUBSCRIBE, TOPIC)]
    await states(app, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING, UNSUBSCRIBED)


# 8 Timeout and retry


async def test_remote_requests_have_five_minutes(app: Client, remote: Remote) -> None:
    await subscribed(app, remote)
    await app.unsubscribe(TOPIC)
    assert [ttl_ms(await remote.next(number)) >= FIVE_MINUTES_MS for number in (1, 2)] == [True, True]


@pytest.mark.parametrize("wanted_s", [299, 0, -1])
async def test_less_than_five_minutes_cannot_be_configured(devices: Devices, wanted_s: int) -> None:
    with pytest.raises(ValueError, match="remote_timeout_s"):
        await devices.device(2, remote_timeout_s=wanted_s)


async def test_subscribe_that_nobody_answers_is_repeated_for_ever_and_not_before_its_time(
    devices: Devices, device: Device, app: Client, remote: Remote
) -> None:
    await app.subscribe(TOPIC)
    for number in range(1, 20):
        asked = await remote.next(number)
        assert ttl_ms(asked) >= FIVE_MINUTES_MS
        devices.pass_time(ttl_ms(asked) - 1)
        await app.all_is_said()
        assert len(remote.asked) == number
        devices.pass_time(1)
    await remote.next(20)
    await restart(devices, device)  # what was not answered is asked again
    await remote.grant(await remote.next(21))
    await states(app, SUBSCRIBE_PENDING, SUBSCRIBED)
    assert {method for method, _ in remote.asked} == {SUBSCRIBE}


async def test_unsubscribe_that_nobody_answers_is_repeated_for_ever(
    devices: Devices, device: Device, app: Client, remote: Remote
) -> None:
    await subscribed(app, remote)
    await app.unsubscribe(TOPIC)
    for number in range(2, 10):
        devices.pass_time(ttl_ms(await remote.next(number)))
    await remote.next(10)
    await restart(devices, device)
    await remote.grant(await remote.next(11))
    await states(app, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING, UNSUBSCRIBED)
    assert remote.asked == [(SUBSCRIBE, TOPIC)] + [(UNSUBSCRIBE, TOPIC)] * 10


async def test_days_without_a_link_and_a_restart_lose_nothing(
    devices: Devices, device: Device, app: Client, remote: Remote
) -> None:
    device.far.lose_link()
    assert await app.subscribe(TOPIC) == SUBSCRIBE_PENDING
    for _ in range(3):
        devices.pass_time(DAY_MS)
        await app.all_is_said()
    device = await restart(devices, device)
    await remote.grant(await remote.next(1))
    await states(app, SUBSCRIBE_PENDING, SUBSCRIBED)
    assert {method for method, _ in remote.asked} == {SUBSCRIBE}


async def test_what_nobody_needs_any_more_is_not_repeated(devices: Devices, app: Client, remote: Remote) -> None:
    await app.subscribe(TOPIC)
    subscribe = await remote.next(1)
    await app.unsubscribe(TOPIC)
    await remote.grant(await remote.next(2))
    await app.all_is_said()
    devices.pass_time(ttl_ms(subscribe))  # until now it could still arrive, behind the Unsubscribe
    await remote.grant(await remote.next(3))
    await app.all_is_said()
    for _ in range(3):
        devices.pass_time(DAY_MS)
        await app.all_is_said()
    assert remote.asked == [(SUBSCRIBE, TOPIC), (UNSUBSCRIBE, TOPIC), (UNSUBSCRIBE, TOPIC)]


async def test_service_that_is_too_busy_is_asked_again(devices: Devices, app: Client, remote: Remote) -> None:
    await app.subscribe(TOPIC)
    await remote.refuse(await remote.next(1), UCode.RESOURCE_EXHAUSTED)
    await app.all_is_said()
    devices.pass_time(60_000)
    await remote.grant(await remote.next(2))
    await states(app, SUBSCRIBE_PENDING, SUBSCRIBED)


# Two devices, each with a service of ours (10.1.2, 10.2.2)


async def test_publish_of_another_device_arrives_from_the_subscription_to_its_end(devices: Devices, app: Client) -> None:
    far = await devices.device(2)
    publisher, observer = await devices.client(2, 0x10), await devices.client(2, 0xB)
    near = devices.devices["gw1"]
    await observer.register(TOPIC)
    await app.listen(TOPIC)
    await publisher.publish(TOPIC, b"before")
    assert await app.subscribe(TOPIC) == SUBSCRIBE_PENDING
    await states(app, SUBSCRIBE_PENDING, SUBSCRIBED)
    heard = ((near.far, TOPIC), (far.near, TOPIC))
    await until(lambda: all((topic, None) in t.registry.filters() for t, topic in heard), "the listeners")
    await publisher.publish(TOPIC, b"during")
    await app.unsubscribe(TOPIC)
    await states(app, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING, UNSUBSCRIBED)
    await until(lambda: not any((topic, None) in t.registry.filters() for t, topic in heard), "the end of the listeners")
    await publisher.publish(TOPIC, b"after")
    assert app.news == [b"during"]
    assert observer.updates == [(TOPIC, OURSELVES, SUBSCRIBED), (TOPIC, OURSELVES, UNSUBSCRIBED)]
