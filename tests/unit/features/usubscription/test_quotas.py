"""How much one uEntity, one authority and one topic may take; beyond that it is RESOURCE_EXHAUSTED, and others go on."""

from pathlib import Path

import pytest

from streamer.features.host.access import Access, SubscribeRule
from streamer.features.usubscription import rows, service, v3
from streamer.features.usubscription.config import UsubscriptionConfig
from streamer.features.usubscription.outbox import MAX_UNSAFE_MESSAGES
from streamer.features.usubscription.quotas import Limits
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.constants import with_constants
from tests.unit.features.host.patterns import entities_at
from tests.unit.features.usubscription.harness import (
    APP,
    APP2,
    CLOUD,
    LOCAL,
    SUBSCRIBED,
    UNSUBSCRIBED,
    WATCHER,
    UsubscriptionHarness,
)

OPEN = Access("gw1", frozenset({"gw1", "dev1"}), {"cloud": ()}, (SubscribeRule(entities_at("*"), (everything_at("*"),)),))
"""Everybody may subscribe; the cloud is named."""


def topic(number: int) -> UUri:
    return LOCAL._replace(resource=0x9000 + number)


@pytest.fixture
def limited(tmp_path: Path, request: pytest.FixtureRequest) -> UsubscriptionHarness:
    """The parameter has the limits."""
    harness = UsubscriptionHarness(tmp_path / "limited.db", **request.param)
    harness.access = OPEN
    harness.state.close()
    harness.open()
    return harness


def limits(**options: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("limited", [options], indirect=True, ids=[""])


async def exhausted(harness: UsubscriptionHarness, topic: UUri, source: UUri, method: int = v3.SUBSCRIBE) -> None:
    kind = pb.SubscriptionRequest if method == v3.SUBSCRIBE else pb.NotificationsRequest
    assert await harness.refused(method, kind(topic=uri_to_proto(topic)), source) is UCode.RESOURCE_EXHAUSTED


def test_limits_are_those_of_the_configuration() -> None:
    assert Limits.of(UsubscriptionConfig(max_subscriptions=400_000)).of_authority == 40_000
    assert Limits.of(UsubscriptionConfig()) == Limits(100_000, 10_000, 300_000, 1000, 10_000, 64, 64, 1000)


@limits(max_subscriptions_per_subscriber=2)
async def test_one_subscriber_cannot_take_all(limited: UsubscriptionHarness, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(2):
        await limited.subscribe(topic(number))
    await exhausted(limited, topic(2), APP)
    said = [record.getMessage() for record in caplog.records if record.name == "ustreamer.services"]
    assert [line.partition(" reason=")[2] for line in said] == [f"{APP} has 2 subscriptions already"]
    await limited.subscribe(topic(0))  # again
    await limited.subscribe(topic(2), APP2)
    await limited.unsubscribe(topic(0))
    await limited.subscribe(topic(2))


@limits(max_subscriptions_per_subscriber=2)
async def test_service_subscribes_for_its_whole_device(limited: UsubscriptionHarness) -> None:
    for number in range(5):
        await limited.subscribe(topic(number), UUri("cloud", 0, 3, 0))


@limits(max_subscriptions_per_authority=3, max_subscriptions=30)
async def test_one_authority_that_invents_uentities_cannot_take_all(limited: UsubscriptionHarness) -> None:
    for number in range(3):
        await limited.subscribe(LOCAL, UUri("dev1", 0x100 + number, 1, 0))
    await exhausted(limited, LOCAL, UUri("dev1", 0x200, 1, 0))
    await exhausted(limited, LOCAL, UUri("dev1", 0, 3, 0))
    await limited.subscribe(LOCAL, CLOUD)
    await limited.unsubscribe(LOCAL, UUri("dev1", 0x100, 1, 0))
    await limited.subscribe(LOCAL)
    await limited.restart()  # what is on disk counts
    await exhausted(limited, LOCAL, APP2)


@limits(max_authorities_per_topic=2)
async def test_invented_authorities_are_bounded_for_each_topic_and_named_ones_are_not(limited: UsubscriptionHarness) -> None:
    for number in range(2):
        await limited.subscribe(LOCAL, UUri(f"evil{number}", 1, 1, 0))
    await exhausted(limited, LOCAL, UUri("evil2", 1, 1, 0))
    await limited.subscribe(LOCAL, UUri("evil1", 2, 1, 0))  # no further copy
    for named in (APP, CLOUD):
        await limited.subscribe(LOCAL, named)
    assert sorted(limited.router.interest[LOCAL]) == ["cloud", "dev1", "evil0", "evil1"]
    await limited.subscribe(topic(1), UUri("evil2", 1, 1, 0))
    await limited.unsubscribe(LOCAL, UUri("evil0", 1, 1, 0))
    await limited.subscribe(LOCAL, UUri("evil2", 1, 1, 0))


@limits(max_observers_per_topic=2, max_observers_per_authority=3)
async def test_observers_are_bounded_for_each_topic_and_each_authority(limited: UsubscriptionHarness) -> None:
    watchers = [WATCHER._replace(ue_id=0x300 + number) for number in range(3)]
    for watcher in watchers[:2]:
        await limited.register(LOCAL, watcher)
    await exhausted(limited, LOCAL, watchers[2], v3.REGISTER)
    await limited.register(topic(1), watchers[2])
    await exhausted(limited, topic(2), watchers[2], v3.REGISTER)
    await limited.register(LOCAL, watchers[0], "gw1")  # again, at another authority of the service
    await limited.register(topic(2), CLOUD)
    await limited.unregister(LOCAL, watchers[0])
    await limited.register(topic(2), watchers[2])


async def test_observer_hears_the_last_of_many_changes_that_are_handled_together(harness: UsubscriptionHarness) -> None:
    """Subscribing and unsubscribing in a loop: one notification for each observer, not one for each change."""
    await harness.register(LOCAL)
    harness.forget()
    for number in range(101):
        proto = pb.SubscriptionRequest if number % 2 == 0 else pb.UnsubscribeRequest
        method = v3.SUBSCRIBE if number % 2 == 0 else v3.UNSUBSCRIBE
        harness.take(harness.request(method, proto(topic=uri_to_proto(LOCAL))))
    harness.take(harness.request(v3.SUBSCRIBE, pb.SubscriptionRequest(topic=uri_to_proto(LOCAL)), APP2))
    await harness.service.run_once()
    assert harness.updates(WATCHER) == [(LOCAL, APP, SUBSCRIBED), (LOCAL, APP2, SUBSCRIBED)]
    assert len(harness.updates(APP)) == 101  # the subscriber itself hears of each


async def test_what_observers_hear_of_one_turn_is_bounded(
    harness: UsubscriptionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_MAX_OBSERVER_UPDATES", 6)  # each change is published, too
    await harness.register(LOCAL)
    apps = [APP._replace(ue_id=0x100 + number) for number in range(10)]
    for app in apps:
        await harness.subscribe(LOCAL, app, expire_ms=harness.clock.ms + 1000)
    harness.forget()
    await harness.pass_ms(1000)
    assert [subscriber for _, subscriber, _ in harness.updates(WATCHER)] == apps[:3]
    assert all(harness.states(app) == [UNSUBSCRIBED] for app in apps)  # each subscriber hears of its own


async def test_notifications_for_an_observer_that_is_away_are_bounded(
    harness: UsubscriptionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody subscribes and unsubscribes for ever; memory and file keep so much of it, and no more."""
    harness.service._outbox.max_bytes = 50_000
    await harness.register(LOCAL)
    harness.core.is_safe = False
    for number in range(500):
        app = APP._replace(ue_id=0x100 + number)
        await harness.subscribe(LOCAL, app)
        await harness.unsubscribe(LOCAL, app)
    assert harness.service.gauges()["unsent"] <= MAX_UNSAFE_MESSAGES + 50
    assert len(rows.outbox(harness.state)) <= MAX_UNSAFE_MESSAGES + 60


async def test_a_reload_takes_other_limits_and_leaves_what_is_there(harness: UsubscriptionHarness) -> None:
    for number in range(3):
        await harness.subscribe(topic(number))
    harness.service.use(with_constants(UsubscriptionConfig, max_subscriptions_per_subscriber=2), harness.access)
    await exhausted(harness, topic(3), APP)
    assert len(harness.router.interest) == 3
    harness.service.use(UsubscriptionConfig(), harness.access)
    await harness.subscribe(topic(3))
