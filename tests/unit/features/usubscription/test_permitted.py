"""A subscription counts while the configuration permits it. What is not permitted any more is set aside, not deleted."""

import logging
from dataclasses import replace

import pytest

from streamer.features.host.access import Access, SubscribeRule
from streamer.features.usubscription import v3
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.unit.features.host.patterns import entities_at
from tests.unit.features.usubscription.harness import (
    ACCESS,
    APP,
    CLOUD,
    LOCAL,
    REMOTE,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    UNSUBSCRIBED,
    UsubscriptionHarness,
)

NOBODY = replace(ACCESS, subscribe=())
"""dev1 is local, and nobody else may subscribe."""

REMOTE_ONLY = replace(ACCESS, subscribe=(SubscribeRule(entities_at("cloud"), (REMOTE,)),))


async def use(harness: UsubscriptionHarness, access: Access, is_reload: bool) -> None:
    """With a reload, or with a restart."""
    harness.access = access
    if is_reload:
        harness.service.use(harness.options, access)
        await harness.service.run_once()
    else:
        await harness.restart()


def rows(harness: UsubscriptionHarness) -> list[tuple[str, int]]:
    """Subscriber and state of what is on disk."""
    sql = "SELECT subscriber, standing FROM usubscription_subscriptions ORDER BY number"
    return harness.state.read(sql, lambda row: (row[0], row[1]))


reload_or_restart = pytest.mark.parametrize("is_reload", [True, False], ids=["reload", "restart"])


@reload_or_restart
async def test_what_is_no_longer_permitted_does_not_count_but_stays_on_disk_until_it_is_again(
    harness: UsubscriptionHarness, is_reload: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await harness.subscribe(LOCAL, CLOUD)
    await harness.subscribe(LOCAL)
    harness.forget()
    await use(harness, NOBODY, is_reload)
    assert harness.router.interest == {LOCAL: {"dev1": 0}}
    assert await harness.subscribers(LOCAL) == {APP: SUBSCRIBED}
    assert harness.updates(CLOUD) == [(LOCAL, CLOUD, UNSUBSCRIBED)]
    assert rows(harness) == [(str(CLOUD), 0), (str(APP), 2)]
    assert harness.service.gauges()["set_aside"] == 1
    assert any("usubscription_set_aside entries=1" in record.getMessage() for record in caplog.records)
    harness.forget()
    await use(harness, NOBODY, is_reload)
    assert harness.updates(CLOUD) == []  # it has been told
    await use(harness, ACCESS, is_reload)
    assert harness.router.interest == {LOCAL: {"dev1": 0, "cloud": 0}}
    assert harness.updates(CLOUD) == [(LOCAL, CLOUD, SUBSCRIBED)]
    assert rows(harness) == [(str(CLOUD), 2), (str(APP), 2)]
    assert harness.service.gauges()["set_aside"] == 0


@reload_or_restart
async def test_remote_topic_is_left_and_subscribed_again(harness: UsubscriptionHarness, is_reload: bool) -> None:
    await harness.subscribe(REMOTE, CLOUD)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    harness.forget()
    await use(harness, NOBODY, is_reload)
    (command,) = harness.commands(v3.UNSUBSCRIBE)
    await harness.answered(command)
    assert harness.router.interest == {}
    assert harness.service.gauges()["remote_topics"] == 0
    harness.forget()
    await use(harness, ACCESS, is_reload)
    (command,) = harness.commands(v3.SUBSCRIBE)
    await harness.answered(command, SUBSCRIBED)
    assert harness.states(CLOUD) == [SUBSCRIBE_PENDING, SUBSCRIBED]
    assert harness.router.interest == {REMOTE: {"cloud": 0}}


@reload_or_restart
async def test_remote_topic_with_others_is_kept(harness: UsubscriptionHarness, is_reload: bool) -> None:
    await harness.subscribe(REMOTE, CLOUD)
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    harness.forget()
    await use(harness, NOBODY, is_reload)
    await use(harness, ACCESS, is_reload)
    assert harness.commands() == []
    assert await harness.subscribers(REMOTE) == {CLOUD: SUBSCRIBED, APP: SUBSCRIBED}
    assert harness.router.interest == {REMOTE: {"cloud": 0, "dev1": 0}}


@reload_or_restart
@pytest.mark.parametrize(("set_aside_ms", "kept_ms", "asked"), [(20, 100, [100, 20]), (100, 20, [])])
async def test_the_shortest_period_is_that_of_those_who_count(
    harness: UsubscriptionHarness, set_aside_ms: int, kept_ms: int, asked: list[int], is_reload: bool
) -> None:
    await harness.subscribe(REMOTE, CLOUD, sample_period_ms=set_aside_ms)
    await harness.subscribe(REMOTE, sample_period_ms=kept_ms)
    for command in harness.commands(v3.SUBSCRIBE):
        await harness.answered(command, SUBSCRIBED)
    sent: list[pb.SubscriptionRequest] = []
    for access in (NOBODY, ACCESS):
        harness.forget()
        await use(harness, access, is_reload)
        for command in harness.commands(v3.SUBSCRIBE):
            sent.append(pb.SubscriptionRequest.FromString(command.payload or b""))
            await harness.answered(command, SUBSCRIBED)
    assert [each.attributes.sample_period_ms for each in sent] == asked


async def test_who_counts_again_after_a_restart_gets_its_period_though_a_reload_had_set_it_aside(
    harness: UsubscriptionHarness,
) -> None:
    await harness.subscribe(REMOTE, CLOUD, sample_period_ms=20)
    await harness.subscribe(REMOTE, sample_period_ms=100)
    await use(harness, NOBODY, True)
    await use(harness, ACCESS, False)
    latest = pb.SubscriptionRequest.FromString(harness.commands(v3.SUBSCRIBE)[-1].payload or b"")
    assert latest.attributes.sample_period_ms == 20


async def test_remote_topic_that_is_being_left_is_subscribed_again(harness: UsubscriptionHarness) -> None:
    """The last local subscriber is leaving when the one that was set aside comes back."""
    await harness.subscribe(REMOTE, CLOUD)
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await use(harness, NOBODY, True)
    await harness.unsubscribe(REMOTE)
    harness.forget()
    await use(harness, ACCESS, True)
    (command,) = harness.commands(v3.SUBSCRIBE)
    await harness.answered(command, SUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {CLOUD: SUBSCRIBED}
    assert harness.states(APP)[-1] is UNSUBSCRIBED


@pytest.mark.parametrize("is_observed", [False, True])
async def test_who_is_set_aside_can_still_leave(harness: UsubscriptionHarness, is_observed: bool) -> None:
    await harness.subscribe(LOCAL, CLOUD)
    await harness.register(LOCAL, CLOUD)
    await use(harness, NOBODY, True)
    if is_observed:
        await harness.unregister(LOCAL, CLOUD)
    await harness.unsubscribe(LOCAL, CLOUD)
    assert rows(harness) == []
    await use(harness, ACCESS, True)
    assert harness.router.interest == {}
    assert harness.service.gauges()["observers"] == (not is_observed)


async def test_subscription_that_is_set_aside_expires_as_any_other(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL, CLOUD, expire_ms=harness.clock.ms + 1000)
    await use(harness, NOBODY, True)
    await harness.restart()
    harness.forget()
    await harness.pass_ms(1000)
    assert rows(harness) == []
    assert harness.updates(CLOUD) == []
    assert harness.service.gauges()["set_aside"] == 0


@reload_or_restart
async def test_observer_that_may_not_have_the_topic_hears_nothing(harness: UsubscriptionHarness, is_reload: bool) -> None:
    await harness.register(LOCAL, CLOUD)
    await use(harness, NOBODY, is_reload)
    harness.forget()
    await harness.subscribe(LOCAL)
    assert harness.updates(CLOUD) == []
    await use(harness, ACCESS, is_reload)
    await harness.unsubscribe(LOCAL)
    assert harness.states(CLOUD) == [UNSUBSCRIBED]


async def test_permission_can_be_for_one_topic_only(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL, CLOUD)
    await harness.subscribe(REMOTE, CLOUD)
    await use(harness, REMOTE_ONLY, True)
    assert harness.router.interest == {REMOTE: {"cloud": 0}}
    proto = pb.SubscriptionRequest(topic=uri_to_proto(LOCAL))
    assert await harness.refused(v3.SUBSCRIBE, proto, CLOUD) is UCode.PERMISSION_DENIED


async def test_topic_becomes_local_by_a_reload(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    assert harness.commands(v3.SUBSCRIBE)
    await use(harness, replace(ACCESS, local=ACCESS.local | {"dev2"}), True)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}
    assert harness.service.gauges()["remote_topics"] == 0


async def test_reset_of_a_service_elsewhere_deletes_what_belongs_to_its_authority(
    harness: UsubscriptionHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    far = UUri("cloud", 0, 3, 0)
    await harness.subscribe(LOCAL, CLOUD)
    await harness.subscribe(LOCAL)
    await harness.subscribe(REMOTE, CLOUD)
    await harness.register(LOCAL, CLOUD)
    await harness.register(LOCAL)
    assert await harness.refused(v3.RESET, pb.ResetRequest(), far) is UCode.PERMISSION_DENIED
    await use(harness, replace(REMOTE_ONLY, reset=(far,)), True)
    harness.forget()
    await harness.call(v3.RESET, pb.ResetRequest(), far)
    assert harness.router.interest == {LOCAL: {"dev1": 0}}
    assert harness.updates(CLOUD) == [(REMOTE, CLOUD, UNSUBSCRIBED)]
    assert [uri_of.attributes.sink for uri_of in harness.commands(v3.UNSUBSCRIBE)] == [UUri("dev2", 0, 3, 2)]
    assert rows(harness) == [(str(APP), 2)]
    gauges = harness.service.gauges()
    assert (gauges["observers"], gauges["set_aside"]) == (1, 0)
    said = [record.getMessage() for record in caplog.records if record.name == "streamer.audit"]
    assert said[0].startswith(f"denied who={far} where=nowhere reason=")
    assert said[1] == f"reset who={far} where=nowhere subscriptions=2"
