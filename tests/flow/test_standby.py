"""What a standby of a pair overhears, and takes when it takes over."""

from functools import partial
from typing import Any

from streamer.delivery.router import Additions
from streamer.features.pair.interest import HeardInterest, ToldInterest
from streamer.features.pair.overhearing import Overhearing, OverhearingStep
from streamer.features.pair.shadows import Shadows
from streamer.routing.interest import EVERY_MESSAGE
from streamer.transports.base import Refused
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.status import UCode
from tests.fake_network import FakeNetwork
from tests.flow.harness import SPEED, RouterHarness, configuration

ROUTES = [{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}]


def on_standby(**given: Any) -> tuple[RouterHarness, Overhearing]:
    """A router with a network that others hear as well, and what it overhears there."""
    overhearing = Overhearing(Shadows())
    additions = Additions(steps=(partial(OverhearingStep, overhearing),), is_not_alone=True)
    harness = RouterHarness(configuration(**given) if given else None, additions=additions)
    harness.transports["vehicle"].shared = FakeNetwork()
    return harness, overhearing


async def test_what_a_transport_refuses_on_standby_is_the_other_ones_to_report() -> None:
    harness, overhearing = on_standby()
    vehicle = harness.transports["vehicle"]
    await overhearing.begin(harness.router)
    vehicle.context.events.packets_received(1)
    harness.router.ingresses["vehicle"].refuse(
        [Refused(MemoryReceived(harness.speed()), UCode.RESOURCE_EXHAUSTED, "too large")]
    )
    account = next(each for each in harness.router.endpoint_accounts() if each.name == "vehicle")
    assert (dict(account.stats.unwanted), account.stats.received) == ({"overheard": 1}, 0)
    async with harness:
        overhearing.end(harness.router)
        harness.check_books()
        assert harness.sent("vehicle") == harness.sent("cloud") == []


async def test_what_expired_before_a_take_over_may_have_been_delivered_before_and_its_dead_letter_says_so() -> None:
    harness, overhearing = on_standby()
    await overhearing.begin(harness.router)
    harness.arrive("vehicle", harness.speed(ttl=1000), harness.speed())
    async with harness:
        harness.pass_time(3000)
        overhearing.end(harness.router)
        assert len(harness.sent("cloud")) == 1
        (letter,) = harness.dead_letters("vehicle")
        text = letter.status.message
        assert text == "its TTL had passed 2.000 s before it arrived again; it may have been delivered before"


async def test_a_standby_listens_to_what_was_subscribed_to_at_the_active_one() -> None:
    told, heard = ToldInterest(), HeardInterest()
    active = RouterHarness(configuration(routes=ROUTES), additions=Additions(interest=(told,)))
    standby, overhearing = on_standby(routes=ROUTES)
    await overhearing.begin(standby.router)
    async with active:
        active.router.set_interest(SPEED, {"cloud": EVERY_MESSAGE}, "somebody")
        told.tell_all(active.router.interest)
        first = told.take(active.router.interest)
        assert first is not None
        assert first.is_first
        heard.take(first, standby.router)
        await standby.router.listening.catch_up()
        standby.arrive("vehicle", message := standby.speed())
        assert len(overhearing.shadows) == 1
        active.router.set_interest(SPEED, {}, "somebody")
        then = told.take(active.router.interest)
        assert then is not None
        assert not then.is_first
        assert told.take(active.router.interest) is None
    async with standby:
        standby.router.set_interest(SPEED, {"cloud": EVERY_MESSAGE}, "its own service")
        overhearing.end(standby.router)
        heard.forget(standby.router)
        await standby.router.listening.catch_up()
        assert [each.id for each in standby.sent("cloud")] == [message.id]
        standby.arrive("vehicle", later := standby.speed())
        assert [each.id for each in standby.sent("cloud")] == [message.id, later.id]
        standby.router.set_interest(SPEED, {}, "its own service")
        assert list(standby.router.interest.topics()) == []


async def test_what_is_overheard_is_counted_and_what_is_taken_counts_once_more() -> None:
    harness, overhearing = on_standby()
    await overhearing.begin(harness.router)
    dealt_with, waiting = harness.speed(), harness.speed()
    harness.arrive("vehicle", dealt_with, waiting)
    account = next(each for each in harness.router.endpoint_accounts() if each.name == "vehicle")
    assert dict(account.stats.unwanted) == {"overheard": 2}
    overhearing.shadows.drop([dealt_with])
    async with harness:
        overhearing.end(harness.router)
        harness.check_books()
        assert [message.id for message in harness.sent("cloud")] == [waiting.id]
        assert (account.stats.packets, account.stats.received) == (3, 1)
        later = harness.speed()
        harness.arrive("vehicle", later)
        assert [message.id for message in harness.sent("cloud")] == [waiting.id, later.id]


ANYBODY = {"vehicle": {"transport": "memory", "authorities": ["*"]}, "cloud": {"transport": "memory", "authorities": ["*"]}}


async def test_where_everybody_may_be_a_standby_registers_nothing_that_could_be_taken_for_a_receiver() -> None:
    standby, overhearing = on_standby(endpoints=ANYBODY, routes=ROUTES)
    vehicle = standby.transports["vehicle"]
    await overhearing.begin(standby.router)
    assert vehicle.registry.filters() == []
    async with standby:
        overhearing.end(standby.router)
        assert vehicle.registry.filters()


async def test_endpoints_that_may_be_on_one_network_hear_only_their_own_side() -> None:
    endpoints = {name: {"transport": "memory", "authorities": [name]} for name in ("veh1", "veh2", "cloud")}
    harness = RouterHarness(configuration(endpoints=endpoints, routes=[{"from": "cloud", "to": "veh1"}]))
    for name in ("veh1", "veh2"):
        harness.transports[name].shared = FakeNetwork()
    async with harness:
        for name in ("veh1", "veh2"):
            assert {source.authority for source, _ in harness.transports[name].registry.filters()} == {name}
        assert {source.authority for source, _ in harness.transports["cloud"].registry.filters()} == {"*"}
