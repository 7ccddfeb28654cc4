"""Following a uSubscription service elsewhere: pages, notifications of changes, and a service that does not answer."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streamer.features.usubscription import v3, wire
from streamer.uprotocol.message import Options, UMessageType, notification, request
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTION
from tests.unit.features.usubscription.follower_harness import CHANGES, EMPTY, REFRESH_MS, SERVICE, FollowerHarness
from tests.unit.features.usubscription.harness import (
    APP,
    APP2,
    CLOUD,
    LOCAL,
    PLAIN,
    REMOTE,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    TIMEOUT_MS,
    UNSUBSCRIBED,
    US,
    status,
)

ALL = "//*/FFFFFFFF/FF/FFFF"


def entry(topic: UUri, subscriber: UUri, state: int = SUBSCRIBED, period_ms: int | None = None) -> pb.Subscription:
    found = pb.Subscription(
        topic=uri_to_proto(topic), subscriber=pb.SubscriberInfo(uri=uri_to_proto(subscriber)), status=status(state)
    )
    if period_ms is not None:
        found.attributes.sample_period_ms = period_ms
    return found


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[FollowerHarness]:
    found = FollowerHarness(tmp_path / "state.db")
    await found.follower.run_once()
    yield found
    found.state.close()


@pytest.fixture
async def narrow(harness: FollowerHarness) -> FollowerHarness:
    """A service that does not list everybody."""
    await harness.refuse(harness.queries()[ALL], UCode.INVALID_ARGUMENT)
    await harness.refuse(harness.queries()[EMPTY], UCode.INVALID_ARGUMENT)
    return harness


async def test_everything_configured_is_fetched_and_registered(harness: FollowerHarness) -> None:
    assert set(harness.queries()) == {str(LOCAL), str(CLOUD), ALL}
    assert harness.registered() == [LOCAL]
    for message in harness.core.said:
        assert message.attributes.source == US
        assert message.attributes.ttl == TIMEOUT_MS


async def test_fetched_subscriptions_become_interest(narrow: FollowerHarness) -> None:
    queries = narrow.queries()
    await narrow.answer(queries[str(LOCAL)], entry(LOCAL, APP, period_ms=20), entry(LOCAL, APP2, SUBSCRIBE_PENDING, 10))
    await narrow.answer(queries[str(CLOUD)], entry(REMOTE, CLOUD))
    assert narrow.router.interest == {LOCAL: {"dev1": 10}, REMOTE: {"cloud": 0}}
    assert narrow.registered() == [LOCAL, REMOTE]


async def test_subscribers_that_are_leaving_and_our_own_authority_are_not_interested(narrow: FollowerHarness) -> None:
    await narrow.answer(
        narrow.queries()[str(LOCAL)], entry(LOCAL, APP, UNSUBSCRIBED), entry(LOCAL, APP2, 3), entry(LOCAL, US)
    )
    assert narrow.router.interest == {}


async def test_pages_are_followed_to_the_last(narrow: FollowerHarness) -> None:
    await narrow.answer(narrow.queries()[str(LOCAL)], entry(LOCAL, APP), entry(LOCAL, CLOUD), has_more=True)
    assert narrow.router.interest == {}
    second = narrow.queries()[str(LOCAL)]
    assert wire.read(second, pb.FetchSubscriptionsRequest).offset == 2
    await narrow.answer(second, entry(LOCAL, UUri("dev1", 7, 1, 0)))
    assert narrow.router.interest == {LOCAL: {"dev1": 0, "cloud": 0}}


async def test_a_subscription_that_is_no_longer_listed_is_removed(narrow: FollowerHarness) -> None:
    await narrow.answer(narrow.queries()[str(LOCAL)], entry(LOCAL, APP), entry(LOCAL, CLOUD))
    await narrow.pass_ms(REFRESH_MS)
    await narrow.answer(narrow.queries()[str(LOCAL)], entry(LOCAL, CLOUD))
    assert narrow.router.interest == {LOCAL: {"cloud": 0}}
    await narrow.pass_ms(REFRESH_MS)
    await narrow.answer(narrow.queries()[str(LOCAL)])
    assert narrow.router.interest == {}


async def test_everything_is_fetched_and_registered_again_after_the_refresh_time(narrow: FollowerHarness) -> None:
    for message in narrow.queries().values():
        if message not in (narrow.queries()[ALL], narrow.queries()[EMPTY]):
            await narrow.answer(message)
    await narrow.pass_ms(REFRESH_MS - 1)
    assert narrow.core.said == []
    await narrow.pass_ms(1)
    assert set(narrow.queries()) == {str(LOCAL), str(CLOUD), ALL}
    assert narrow.registered() == [LOCAL]


async def test_an_unanswered_query_is_repeated_and_a_late_response_to_the_first_does_not_count(
    narrow: FollowerHarness,
) -> None:
    first = narrow.queries()[str(LOCAL)]
    await narrow.pass_ms(REFRESH_MS)
    second = narrow.queries()[str(LOCAL)]
    await narrow.answer(first, entry(LOCAL, APP))
    assert narrow.router.interest == {}
    await narrow.answer(second, entry(LOCAL, CLOUD))
    assert narrow.router.interest == {LOCAL: {"cloud": 0}}


async def test_a_service_that_is_always_slower_than_the_refresh_is_heard(narrow: FollowerHarness) -> None:
    narrow.core.said.clear()
    asked: dict[bytes, int] = {}
    for _ in range(9):
        narrow.clock.advance(REFRESH_MS // 2)
        await narrow.follower.run_once()
        for question in [each for each in narrow.asked(v3.FETCH_SUBSCRIPTIONS) if each.id not in asked]:
            if wire.read(question, pb.FetchSubscriptionsRequest).HasField("topic"):
                asked[question.id] = narrow.clock.ms
        for question in [each for each in narrow.asked(v3.FETCH_SUBSCRIPTIONS) if each.id in asked]:
            if narrow.clock.ms - asked[question.id] == REFRESH_MS * 3 // 2:
                await narrow.answer(question, entry(LOCAL, CLOUD))
    assert narrow.router.interest == {LOCAL: {"cloud": 0}}


async def test_an_unanswered_query_waits_no_longer_than_its_requests_live(narrow: FollowerHarness) -> None:
    at_ms, waits = narrow.clock.ms, []
    for _ in range(5):
        narrow.core.said.clear()
        while str(LOCAL) not in narrow.queries():
            narrow.clock.advance(REFRESH_MS)
            await narrow.follower.run_once()
        waits.append(narrow.clock.ms - at_ms)
        at_ms = narrow.clock.ms
    assert waits == [REFRESH_MS, 2 * REFRESH_MS, 4 * REFRESH_MS, TIMEOUT_MS, TIMEOUT_MS]
    await narrow.answer(narrow.queries()[str(LOCAL)], entry(LOCAL, CLOUD))
    await narrow.pass_ms(REFRESH_MS)
    assert str(LOCAL) in narrow.queries()


async def test_a_query_that_fails_is_repeated_with_growing_waits(narrow: FollowerHarness) -> None:
    pauses = []
    for _ in range(4):
        question = narrow.queries()[str(LOCAL)]
        await narrow.refuse(question, UCode.UNAVAILABLE)
        at_ms = narrow.clock.ms
        await narrow.pass_ms(500)
        while str(LOCAL) not in narrow.queries():
            await narrow.pass_ms(500)
        pauses.append(narrow.clock.ms - at_ms)
    assert pauses == [1000, 2000, 4000, 8000]


async def test_updates_are_applied(narrow: FollowerHarness) -> None:
    await narrow.tell(LOCAL, APP, SUBSCRIBED)
    assert narrow.router.interest == {LOCAL: {"dev1": 0}}
    await narrow.tell(LOCAL, APP, UNSUBSCRIBED)
    assert narrow.router.interest == {}


async def test_updates_from_others_or_about_what_is_not_followed_are_ignored(narrow: FollowerHarness) -> None:
    await narrow.tell(LOCAL, APP, SUBSCRIBED, source=UUri.parse("//dev2/0/3/8000"))
    await narrow.tell(REMOTE, APP, SUBSCRIBED)
    assert narrow.router.interest == {}


@pytest.mark.parametrize("known", [None, pb.SubscriptionStatus(state=7)], ids=["absent", "unknown"])  # type: ignore[arg-type]  # no state
async def test_an_update_whose_state_is_absent_or_unknown_changes_nothing(
    narrow: FollowerHarness, known: pb.SubscriptionStatus | None
) -> None:
    await narrow.tell(LOCAL, APP, SUBSCRIBED)
    name, subscriber = uri_to_proto(LOCAL), pb.SubscriberInfo(uri=uri_to_proto(APP))
    proto = pb.Update(topic=name, subscriber=subscriber, status=known)
    await narrow.take(notification(narrow.clock.ms, CHANGES, US, proto.SerializeToString(), PLAIN))
    assert narrow.router.interest == {LOCAL: {"dev1": 0}}


async def test_an_update_overrides_pages_that_are_still_arriving(narrow: FollowerHarness) -> None:
    question = narrow.queries()[str(LOCAL)]
    await narrow.tell(LOCAL, APP, UNSUBSCRIBED)
    await narrow.tell(LOCAL, CLOUD, SUBSCRIBED)
    await narrow.answer(question, entry(LOCAL, APP))
    assert narrow.router.interest == {LOCAL: {"cloud": 0}}


async def test_a_service_that_lists_everybody_is_queried_for_everybody(harness: FollowerHarness) -> None:
    await harness.answer(harness.queries()[ALL], entry(REMOTE, APP))
    assert harness.router.interest == {REMOTE: {"dev1": 0}}
    await harness.pass_ms(REFRESH_MS)
    assert ALL in harness.queries()


async def test_a_service_that_takes_a_wildcard_for_a_name_is_followed_as_configured(harness: FollowerHarness) -> None:
    await harness.answer(harness.queries()[str(LOCAL)], entry(LOCAL, APP))
    await harness.answer(harness.queries()[ALL])
    assert harness.router.interest == {LOCAL: {"dev1": 0}}


async def test_a_service_that_refuses_a_wildcard_is_queried_without_topic_and_subscriber(harness: FollowerHarness) -> None:
    await harness.refuse(harness.queries()[ALL], UCode.INVALID_ARGUMENT)
    await harness.answer(harness.queries()[EMPTY], entry(REMOTE, APP), has_more=True)
    assert wire.read(harness.queries()[EMPTY], pb.FetchSubscriptionsRequest).offset == 1
    await harness.answer(harness.queries()[EMPTY], entry(REMOTE, CLOUD))
    assert harness.router.interest == {REMOTE: {"dev1": 0, "cloud": 0}}
    await harness.pass_ms(REFRESH_MS)
    assert {ALL, EMPTY} & set(harness.queries()) == {EMPTY}


async def test_a_service_that_does_not_list_everybody_is_queried_in_each_way_at_each_refresh(
    narrow: FollowerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        await narrow.pass_ms(REFRESH_MS)
        assert {ALL, EMPTY} & set(narrow.queries()) == {ALL}
        await narrow.refuse(narrow.queries()[ALL], UCode.INVALID_ARGUMENT)
        await narrow.refuse(narrow.queries()[EMPTY], UCode.INVALID_ARGUMENT)
    assert caplog.text == ""


async def test_a_service_that_lists_everybody_later_is_followed_from_then_on(narrow: FollowerHarness) -> None:
    await narrow.pass_ms(REFRESH_MS)
    question = narrow.queries()[ALL]
    await narrow.tell(REMOTE, CLOUD, UNSUBSCRIBED)  # newer than the list that is on its way
    await narrow.answer(question, entry(REMOTE, APP), entry(REMOTE, CLOUD))
    assert narrow.router.interest == {REMOTE: {"dev1": 0}}
    await narrow.tell(REMOTE, APP, UNSUBSCRIBED)
    assert narrow.router.interest == {}


async def test_addresses_without_authority_are_at_the_device_of_the_service(narrow: FollowerHarness) -> None:
    local, app = LOCAL._replace(authority=""), APP._replace(authority="")
    await narrow.answer(narrow.queries()[str(LOCAL)], entry(local, CLOUD), entry(LOCAL, app))
    assert narrow.router.interest == {LOCAL: {"cloud": 0, "dev1": 0}}
    await narrow.tell(local, app, UNSUBSCRIBED)
    assert narrow.router.interest == {LOCAL: {"cloud": 0}}


async def test_invalid_subscriptions_in_a_response_are_left_out(narrow: FollowerHarness) -> None:
    bad = [entry(LOCAL._replace(authority="*"), APP), entry(LOCAL, APP._replace(authority="DEV")), pb.Subscription()]
    bad[2].status.state = pb.SubscriptionStatus.SUBSCRIBED
    await narrow.answer(narrow.queries()[str(LOCAL)], *bad, entry(LOCAL, CLOUD))
    assert narrow.router.interest == {LOCAL: {"cloud": 0}}


async def test_the_last_result_counts_after_a_restart_until_the_service_answers(narrow: FollowerHarness) -> None:
    await narrow.answer(narrow.queries()[str(LOCAL)], entry(LOCAL, APP, period_ms=20), entry(LOCAL, CLOUD))
    await narrow.tell(LOCAL, CLOUD, UNSUBSCRIBED)
    assert narrow.router.news == [LOCAL, LOCAL]
    narrow.state.close()
    narrow.open()
    assert narrow.router.interest == {LOCAL: {"dev1": 20}}
    assert narrow.router.news == []
    await narrow.follower.run_once()
    await narrow.answer(narrow.queries()[str(LOCAL)])
    assert narrow.router.interest == {}


async def test_a_topic_without_subscriptions_is_unregistered(narrow: FollowerHarness) -> None:
    await narrow.answer(narrow.queries()[str(CLOUD)], entry(REMOTE, CLOUD))
    await narrow.tell(REMOTE, CLOUD, UNSUBSCRIBED)
    [message] = narrow.asked(v3.UNREGISTER)
    assert uri_from_proto(wire.read(message, pb.NotificationsRequest).topic) == REMOTE


async def test_a_request_to_us_is_answered_with_the_address_of_the_service(harness: FollowerHarness) -> None:
    await harness.take(request(harness.clock.ms, APP, USUBSCRIPTION.at("gw1", 1), 5000, b"", Options()))
    [answer] = [message for message in harness.core.said if message.attributes.type is UMessageType.RESPONSE]
    assert answer.attributes.commstatus is UCode.UNAVAILABLE
    assert str(SERVICE).encode() in (answer.payload or b"")


async def test_a_clock_that_is_set_back_does_not_stop_the_queries(narrow: FollowerHarness) -> None:
    await narrow.pass_ms(-100 * REFRESH_MS)
    await narrow.pass_ms(REFRESH_MS)
    assert str(LOCAL) in narrow.queries()
    assert narrow.registered() == [LOCAL]


@pytest.mark.parametrize("turns", range(6))
async def test_it_ends_when_cancelled_even_if_a_change_arrives_at_the_same_moment(
    harness: FollowerHarness, turns: int
) -> None:
    task = asyncio.create_task(harness.follower.run())
    for _ in range(3):
        await asyncio.sleep(0)
    assert harness.core.handler is not None
    harness.core.handler(harness.update(LOCAL, APP, SUBSCRIBED), lambda: None)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait((task,), timeout=10)
    assert task in done
    assert task.cancelled()
