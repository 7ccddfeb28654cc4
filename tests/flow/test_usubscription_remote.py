"""uSubscription from outside, topics of another device, whose service the test plays (4.1, 4.2, 6, 8).

The link between the two devices can be cut, and the device's daemon can be stopped and started at any point.
"""

import pytest

from streamer.uprotocol.message import UMessage, UMessageType
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.devices import Device, Devices
from tests.flow.uentities import (
    DAY_MS,
    FIVE_MINUTES_MS,
    REMOTE_TOPIC,
    SUBSCRIBE,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    UNSUBSCRIBE,
    UNSUBSCRIBE_PENDING,
    UNSUBSCRIBED,
    Client,
    RemoteService,
    subscribed,
)
from tests.unit.features.usubscription.harness import version_of
from tests.waiting import until

OURSELVES = UUri("gw1", 0, 3, 0)


# 4.1 Subscribe


async def test_first_subscribe_is_sent_to_the_service_of_the_topics_authority_as_ourselves(
    app: Client, remote: RemoteService
) -> None:
    assert await app.subscribe(REMOTE_TOPIC) == SUBSCRIBE_PENDING
    asked = await remote.next(1)
    assert asked.attributes.type is UMessageType.REQUEST
    assert asked.attributes.source == OURSELVES
    assert asked.attributes.sink == UUri("dev2", 0, 4, SUBSCRIBE)
    assert remote.asked == [(SUBSCRIBE, REMOTE_TOPIC)]
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING)
    assert await app.subscriptions(REMOTE_TOPIC) == ([(REMOTE_TOPIC, app.uri, SUBSCRIBE_PENDING)], False)


async def test_all_who_subscribe_before_the_answer_are_pending_and_only_one_request_is_sent(
    app: Client, other: Client, remote: RemoteService
) -> None:
    assert await app.subscribe(REMOTE_TOPIC) == SUBSCRIBE_PENDING
    assert await other.subscribe(REMOTE_TOPIC) == SUBSCRIBE_PENDING
    assert await app.subscribe(REMOTE_TOPIC) == SUBSCRIBE_PENDING
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING)
    await other.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING)
    assert remote.asked == [(SUBSCRIBE, REMOTE_TOPIC)]


@pytest.mark.parametrize("answer", [SUBSCRIBED, UNSUBSCRIBED], ids=["subscribed", "unsubscribed"])
async def test_every_subscriber_follows_the_answer(app: Client, other: Client, remote: RemoteService, answer: int) -> None:
    for client in (app, other):
        await client.subscribe(REMOTE_TOPIC)
    await remote.grant(await remote.next(1), answer)
    for client in (app, other):
        await client.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, answer)
    entries, _ = await app.subscriptions(REMOTE_TOPIC)
    expected = [(REMOTE_TOPIC, client.uri, SUBSCRIBED) for client in (app, other)] if answer == SUBSCRIBED else []
    assert entries == expected


async def test_pending_as_answer_stays_pending_until_the_update_of_the_other_service(
    app: Client, remote: RemoteService
) -> None:
    await app.subscribe(REMOTE_TOPIC)
    await remote.grant(await remote.next(1), SUBSCRIBE_PENDING)
    await app.all_is_said()
    assert await app.subscribe(REMOTE_TOPIC) == SUBSCRIBE_PENDING
    await remote.update(REMOTE_TOPIC, OURSELVES, SUBSCRIBED)
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED)
    assert await app.subscribe(REMOTE_TOPIC) == SUBSCRIBED


async def test_subscriber_of_a_topic_that_is_subscribed_already_is_subscribed_at_once(
    app: Client, other: Client, remote: RemoteService
) -> None:
    await subscribed(app, remote)
    assert await other.subscribe(REMOTE_TOPIC) == SUBSCRIBED
    await other.is_told(REMOTE_TOPIC, SUBSCRIBED)
    assert await app.subscribe(REMOTE_TOPIC) == SUBSCRIBED
    assert remote.asked == [(SUBSCRIBE, REMOTE_TOPIC)]


@pytest.mark.parametrize("who", ["who has left", "another one"])
async def test_subscribe_while_the_topic_is_being_left_starts_over(
    app: Client, other: Client, remote: RemoteService, who: str
) -> None:
    await subscribed(app, remote)
    await app.unsubscribe(REMOTE_TOPIC)
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING)
    leave = await remote.next(2)
    comes = app if who == "who has left" else other
    assert await comes.subscribe(REMOTE_TOPIC) == SUBSCRIBE_PENDING
    again = await remote.next(3)
    assert remote.asked == [(SUBSCRIBE, REMOTE_TOPIC), (UNSUBSCRIBE, REMOTE_TOPIC), (SUBSCRIBE, REMOTE_TOPIC)]
    await remote.grant(leave)
    await remote.grant(again)
    await until(lambda: comes.updates[-1:] == [(REMOTE_TOPIC, comes.uri, SUBSCRIBED)], "the state after starting over")
    assert await comes.subscribe(REMOTE_TOPIC) == SUBSCRIBED
    assert await app.subscribers(REMOTE_TOPIC) == ([comes.uri], False)


async def test_subscriber_of_a_remote_topic_is_kept_across_restarts(
    devices: Devices, device: Device, app: Client, remote: RemoteService
) -> None:
    await subscribed(app, remote)
    device = await devices.restart(device)
    assert await app.subscribe(REMOTE_TOPIC) == SUBSCRIBED
    assert await app.subscriptions(app.uri) == ([(REMOTE_TOPIC, app.uri, SUBSCRIBED)], False)
    await until(lambda: (REMOTE_TOPIC, None) in device.far.registry.filters(), "the listener")


# 4.2 Unsubscribe


async def test_last_one_to_leave_unsubscribes_there_as_ourselves_and_the_others_do_not(
    app: Client, other: Client, remote: RemoteService
) -> None:
    await subscribed(app, remote)
    await other.subscribe(REMOTE_TOPIC)
    await app.unsubscribe(REMOTE_TOPIC)
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBED)
    assert remote.asked == [(SUBSCRIBE, REMOTE_TOPIC)]
    await other.unsubscribe(REMOTE_TOPIC)
    asked = await remote.next(2)
    assert (asked.attributes.source, asked.attributes.sink) == (OURSELVES, UUri("dev2", 0, 4, UNSUBSCRIBE))
    assert remote.asked == [(SUBSCRIBE, REMOTE_TOPIC), (UNSUBSCRIBE, REMOTE_TOPIC)]
    await other.is_told(REMOTE_TOPIC, SUBSCRIBED, UNSUBSCRIBE_PENDING)
    await remote.grant(asked)
    await other.is_told(REMOTE_TOPIC, SUBSCRIBED, UNSUBSCRIBE_PENDING, UNSUBSCRIBED)


@pytest.mark.parametrize(
    "code",
    [UCode.OK, UCode.NOT_FOUND, UCode.PERMISSION_DENIED, UCode.INVALID_ARGUMENT, UCode.INTERNAL],
    ids=lambda c: c.name,
)
async def test_left_topic_is_unsubscribed_whatever_the_answer(
    devices: Devices, app: Client, remote: RemoteService, code: UCode
) -> None:
    await subscribed(app, remote)
    await app.unsubscribe(REMOTE_TOPIC)
    asked = await remote.next(2)
    if code is UCode.OK:
        await remote.grant(asked)
    else:
        await remote.refuse(asked, code)
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING, UNSUBSCRIBED)
    devices.pass_time(DAY_MS)
    await app.all_is_said()
    assert len(remote.asked) == 2
    assert await app.subscribers(REMOTE_TOPIC) == ([], False)


async def test_unsubscribe_before_the_answer_is_unsubscribed_at_once_and_sent_to_the_other_service(
    app: Client, remote: RemoteService
) -> None:
    await app.subscribe(REMOTE_TOPIC)
    subscribe = await remote.next(1)
    await app.unsubscribe(REMOTE_TOPIC)
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, UNSUBSCRIBED)
    leave = await remote.next(2)
    assert remote.asked == [(SUBSCRIBE, REMOTE_TOPIC), (UNSUBSCRIBE, REMOTE_TOPIC)]
    await remote.grant(subscribe)  # too late to have an effect
    await remote.grant(leave)
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, UNSUBSCRIBED)
    assert await app.subscribers(REMOTE_TOPIC) == ([], False)


async def test_last_one_that_expires_unsubscribes_there_too(devices: Devices, app: Client, remote: RemoteService) -> None:
    assert await app.subscribe(REMOTE_TOPIC, devices.clock.ms + DAY_MS) == SUBSCRIBE_PENDING
    await remote.grant(await remote.next(1))
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED)
    devices.pass_time(DAY_MS)
    await remote.grant(await remote.next(2))
    assert remote.asked == [(SUBSCRIBE, REMOTE_TOPIC), (UNSUBSCRIBE, REMOTE_TOPIC)]
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING, UNSUBSCRIBED)


# Two devices, each with a service of ours (10.1.2, 10.2.2)


async def test_publish_of_another_device_arrives_from_the_subscription_to_its_end(devices: Devices, app: Client) -> None:
    far = await devices.device(2)
    publisher, observer = await devices.client(2, 0x10), await devices.client(2, 0xB)
    near = devices.devices["gw1"]
    await observer.register(REMOTE_TOPIC)
    await app.listen(REMOTE_TOPIC)
    await publisher.publish(REMOTE_TOPIC, b"before")
    assert await app.subscribe(REMOTE_TOPIC) == SUBSCRIBE_PENDING
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED)
    heard = ((near.far, REMOTE_TOPIC), (far.near, REMOTE_TOPIC))
    await until(lambda: all((topic, None) in t.registry.filters() for t, topic in heard), "the listeners")
    await publisher.publish(REMOTE_TOPIC, b"during")
    await app.unsubscribe(REMOTE_TOPIC)
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING, UNSUBSCRIBED)
    await until(lambda: not any((topic, None) in t.registry.filters() for t, topic in heard), "the end of the listeners")
    await publisher.publish(REMOTE_TOPIC, b"after")
    assert app.news == [b"during"]
    assert observer.updates == [(REMOTE_TOPIC, OURSELVES, SUBSCRIBED), (REMOTE_TOPIC, OURSELVES, UNSUBSCRIBED)]


def ttl_ms(asked: UMessage) -> int:
    return asked.attributes.ttl or 0


async def test_remote_requests_have_a_ttl_of_five_minutes(app: Client, remote: RemoteService) -> None:
    await subscribed(app, remote)
    await app.unsubscribe(REMOTE_TOPIC)
    assert [ttl_ms(await remote.next(number)) >= FIVE_MINUTES_MS for number in (1, 2)] == [True, True]


async def test_unanswered_subscribe_is_repeated_for_ever_and_not_before_its_time(
    devices: Devices, device: Device, app: Client, remote: RemoteService
) -> None:
    await app.subscribe(REMOTE_TOPIC)
    for number in range(1, 11):
        asked = await remote.next(number)
        assert (version_of(asked), ttl_ms(asked)) == (4, FIVE_MINUTES_MS)
        devices.pass_time(ttl_ms(asked) - 1)
        await app.all_is_said()
        assert len(remote.asked) == number
        devices.pass_time(1)
        await app.all_is_said()
    await remote.next(11)
    await devices.restart(device)  # unanswered commands are sent again
    await remote.grant(await remote.next(12))
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED)
    assert {method for method, _ in remote.asked} == {SUBSCRIBE}


async def test_unanswered_unsubscribe_is_repeated_for_ever(
    devices: Devices, device: Device, app: Client, remote: RemoteService
) -> None:
    await subscribed(app, remote)
    await app.unsubscribe(REMOTE_TOPIC)
    for number in range(2, 10):
        devices.pass_time(ttl_ms(await remote.next(number)))
    await remote.next(10)
    await devices.restart(device)
    await remote.grant(await remote.next(11))
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING, UNSUBSCRIBED)
    assert remote.asked == [(SUBSCRIBE, REMOTE_TOPIC)] + [(UNSUBSCRIBE, REMOTE_TOPIC)] * 10


async def test_days_without_a_link_and_a_restart_lose_nothing(
    devices: Devices, device: Device, app: Client, remote: RemoteService
) -> None:
    device.far.lose_link()
    assert await app.subscribe(REMOTE_TOPIC) == SUBSCRIBE_PENDING
    for _ in range(3):
        devices.pass_time(DAY_MS)
        await app.all_is_said()
    device = await devices.restart(device)
    await remote.grant(await remote.next(1))
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED)
    assert {method for method, _ in remote.asked} == {SUBSCRIBE}


async def test_command_that_is_no_longer_needed_is_not_repeated(
    devices: Devices, app: Client, remote: RemoteService
) -> None:
    await app.subscribe(REMOTE_TOPIC)
    subscribe = await remote.next(1)
    await app.unsubscribe(REMOTE_TOPIC)
    await remote.grant(await remote.next(2))
    await app.all_is_said()
    devices.pass_time(ttl_ms(subscribe))  # until now it could still have arrived after the Unsubscribe
    await remote.grant(await remote.next(3))
    await app.all_is_said()
    for _ in range(3):
        devices.pass_time(DAY_MS)
        await app.all_is_said()
    assert remote.asked == [(SUBSCRIBE, REMOTE_TOPIC), (UNSUBSCRIBE, REMOTE_TOPIC), (UNSUBSCRIBE, REMOTE_TOPIC)]


async def test_service_that_is_too_busy_is_called_again(devices: Devices, app: Client, remote: RemoteService) -> None:
    await app.subscribe(REMOTE_TOPIC)
    await remote.refuse(await remote.next(1), UCode.RESOURCE_EXHAUSTED)
    await app.all_is_said()
    devices.pass_time(60_000)
    await remote.grant(await remote.next(2))
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED)
