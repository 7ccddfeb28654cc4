"""uSubscription from outside: requests to another device's service have a long TTL, and are repeated while needed (8).

The test plays that service. The daemon can be stopped and started at any point.
"""

from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
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
