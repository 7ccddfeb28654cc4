"""Following a uSubscription service of version 4: everything is asked for at once, and one registration is for all."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from streamer.features.usubscription import v4, wire
from streamer.features.usubscription.config import UsubscriptionConfig
from streamer.uprotocol.message import notification
from streamer.uprotocol.proto import usubscription_v4_pb2 as pb
from streamer.uprotocol.protobuf import status_to_proto, uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTION_4
from tests.unit.features.usubscription.follower_harness import FollowerHarness
from tests.unit.features.usubscription.harness import APP, CLOUD, LOCAL, PLAIN, REMOTE, US

SERVICE = USUBSCRIPTION_4.at("dev1")


def entry(topic: UUri, subscriber: UUri, status: "pb.SubscriptionStatus", period_ms: int | None = None) -> pb.Subscription:
    named: dict[str, Any] = {"topic": uri_to_proto(topic), "subscriber": uri_to_proto(subscriber)}
    return pb.Subscription(status=status, sample_period=period_ms, **named)


@pytest.fixture
async def following(tmp_path: Path) -> AsyncIterator[FollowerHarness]:
    following = FollowerHarness(tmp_path / "state.db", SERVICE)
    await following.follower.run_once()
    yield following
    following.state.close()


async def test_everything_is_asked_for_and_one_registration_is_for_all(following: FollowerHarness) -> None:
    asked = [wire.read(each, pb.FetchSubscriptionsRequest) for each in following.asked(v4.FETCH_SUBSCRIPTIONS)]
    assert [each.HasField("subscriber_filter") for each in asked] == [False, False]
    assert [uri_from_proto(each.topic_filter) for each in asked if each.HasField("topic_filter")] == [LOCAL]
    assert [each.payload for each in following.asked(v4.REGISTER)] in ([b""], [None])
    assert {each.attributes.source for each in following.core.said} == {US}


async def test_what_is_listed_and_told_becomes_interest(following: FollowerHarness) -> None:
    [_, everything] = following.asked(v4.FETCH_SUBSCRIPTIONS)
    found = [entry(REMOTE, CLOUD, pb.STATUS_SUBSCRIBED, 40), entry(REMOTE, APP, pb.STATUS_UNSUBSCRIBE_PENDING)]
    await following.respond(everything, pb.FetchSubscriptionsResponse(subscriptions=found))
    assert following.router.interest == {REMOTE: {"cloud": 40}}
    source = SERVICE._replace(resource=0x8000)
    for status in (pb.STATUS_SUBSCRIBED, pb.STATUS_UNSUBSCRIBED):
        told = entry(LOCAL, APP, status).SerializeToString()
        await following.take(notification(following.clock.ms, source, US, told, PLAIN))
        expected = {LOCAL: {"dev1": 0}} if status == pb.STATUS_SUBSCRIBED else {}
        assert following.router.interest == {REMOTE: {"cloud": 40}} | expected


async def test_addresses_without_authority_are_at_the_device_of_the_service(following: FollowerHarness) -> None:
    [_, everything] = following.asked(v4.FETCH_SUBSCRIPTIONS)
    local, app = LOCAL._replace(authority=""), APP._replace(authority="")
    found = [entry(local, CLOUD, pb.STATUS_SUBSCRIBED), entry(REMOTE, app, pb.STATUS_SUBSCRIBE_PENDING)]
    nobody = pb.Subscription(topic=uri_to_proto(LOCAL), status=pb.STATUS_SUBSCRIBED)
    await following.respond(everything, pb.FetchSubscriptionsResponse(subscriptions=[*found, nobody]))
    assert following.router.interest == {LOCAL: {"cloud": 0}, REMOTE: {"dev1": 0}}
    told = entry(REMOTE, app, pb.STATUS_UNSUBSCRIBED).SerializeToString()
    await following.take(notification(following.clock.ms, SERVICE._replace(resource=0x8000), US, told, PLAIN))
    assert following.router.interest == {LOCAL: {"cloud": 0}}


@pytest.mark.parametrize("status", [pb.STATUS_UNSPECIFIED, 9])
async def test_a_change_whose_state_is_unspecified_or_unknown_changes_nothing(
    following: FollowerHarness, status: "pb.SubscriptionStatus"
) -> None:
    for told in (pb.STATUS_SUBSCRIBED, status):
        payload = entry(LOCAL, APP, told).SerializeToString()
        await following.take(notification(following.clock.ms, SERVICE._replace(resource=0x8000), US, payload, PLAIN))
    assert following.router.interest == {LOCAL: {"dev1": 0}}


async def test_a_service_that_does_not_list_everything_is_asked_for_what_is_configured(following: FollowerHarness) -> None:
    for _ in range(2):
        everything = following.asked(v4.FETCH_SUBSCRIPTIONS)[-1]
        await following.respond(everything, status_to_proto(UCode.PERMISSION_DENIED, "no"), UCode.PERMISSION_DENIED)
    following.core.said.clear()
    following.clock.advance(60_000)
    await following.follower.run_once()
    about_topic, everything = following.asked(v4.FETCH_SUBSCRIPTIONS)
    assert uri_from_proto(wire.read(about_topic, pb.FetchSubscriptionsRequest).topic_filter) == LOCAL
    found = [entry(REMOTE, CLOUD, pb.STATUS_SUBSCRIBED)]
    await following.respond(everything, pb.FetchSubscriptionsResponse(subscriptions=found))  # now it permits it
    assert following.router.interest == {REMOTE: {"cloud": 0}}


async def test_a_service_that_lists_less_to_who_asks_for_everything_is_followed_as_configured(
    following: FollowerHarness,
) -> None:
    about_topic, everything = following.asked(v4.FETCH_SUBSCRIPTIONS)
    found = pb.FetchSubscriptionsResponse(subscriptions=[entry(LOCAL, APP, pb.STATUS_SUBSCRIBED)])
    await following.respond(about_topic, found)
    await following.respond(everything, pb.FetchSubscriptionsResponse())
    assert following.router.interest == {LOCAL: {"dev1": 0}}


async def test_where_there_was_no_room_for_a_list_what_is_known_stays_and_is_asked_for_again(
    following: FollowerHarness,
) -> None:
    everything = following.asked(v4.FETCH_SUBSCRIPTIONS)[-1]
    found = [entry(REMOTE, CLOUD, pb.STATUS_SUBSCRIBED)]
    await following.respond(everything, pb.FetchSubscriptionsResponse(subscriptions=found))
    for _ in range(3):
        following.core.said.clear()
        following.clock.advance(600_000)
        await following.follower.run_once()
        everything = following.asked(v4.FETCH_SUBSCRIPTIONS)[-1]
        assert not wire.read(everything, pb.FetchSubscriptionsRequest).HasField("topic_filter")
        code = UCode.RESOURCE_EXHAUSTED
        await following.respond(everything, status_to_proto(code, "the egress queue is full"), code)
        assert following.router.interest == {REMOTE: {"cloud": 0}}


def test_other_versions_cannot_be_followed() -> None:
    with pytest.raises(ValidationError, match="version 3 or 4"):
        UsubscriptionConfig(external={"service": "//dev1/0/2/0"})  # type: ignore[arg-type]  # as in the file
