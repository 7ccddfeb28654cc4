"""Rates: a route, and each source authority on it, sends so much per second; what is faster waits, nothing is lost."""

import pytest

from streamer.delivery.lifecycle.departure import Drain
from streamer.delivery.lifecycle.reload import Reload
from streamer.transports.base import LinkState
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri
from tests.flow.harness import CLIMATE, CLOUD_APP, SPEED, VEHICLE_APP, RouterHarness, configuration, three_networks

TICK_MS = 50


def at_a_rate(messages: float | None = None, size: int | None = None, **more: object) -> dict[str, object]:
    """A queue policy with a rate for the route."""
    return {"rate": {"messages": messages, "bytes": size}, **more}


def numbered(harness: RouterHarness, count: int, authority: str = "cloud", size: int = 4) -> list[UMessage]:
    source = UUri(authority, 0xC0, 1, 0x9000)
    return [harness.notify(number.to_bytes(4, "big").ljust(size), VEHICLE_APP, source) for number in range(count)]


def pass_seconds(harness: RouterHarness, seconds: float) -> None:
    for _ in range(round(seconds * 1000 / TICK_MS)):
        harness.pass_time(TICK_MS)


async def test_a_route_sends_its_burst_at_once_and_then_at_its_rate_in_order_and_loses_nothing() -> None:
    async with RouterHarness(configuration(queue_policy=at_a_rate(100))) as harness:
        sent = numbered(harness, 300)
        harness.arrive("cloud", *sent)
        assert len(harness.sent("vehicle")) == 100
        pass_seconds(harness, 1)
        assert len(harness.sent("vehicle")) == 200
        pass_seconds(harness, 1)
        assert harness.sent("vehicle") == sent
        assert harness.outcomes("cloud-vehicle") == {"delivered": 300}


async def test_bytes_have_a_rate_too() -> None:
    async with RouterHarness(configuration(queue_policy=at_a_rate(size=100_000))) as harness:
        harness.arrive("cloud", *numbered(harness, 100, size=10_000 - 600))
        assert len(harness.sent("vehicle")) == 10
        pass_seconds(harness, 5)
        assert len(harness.sent("vehicle")) == 60


async def test_a_fleet_that_comes_back_after_an_outage_does_not_flood_its_cloud() -> None:
    config = configuration(queue_policy=at_a_rate(100))
    async with RouterHarness(config) as harness:
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", *(harness.notify(b"%d" % number) for number in range(1000)))
        pass_seconds(harness, 10)
        harness.transports["cloud"].restore_link()
        assert len(harness.sent("cloud")) == 100
        pass_seconds(harness, 1)
        assert len(harness.sent("cloud")) == 200


async def test_a_route_at_its_rate_holds_up_no_other_route_to_the_same_endpoint() -> None:
    config = three_networks(
        routes=[{"from": "phone", "to": "vehicle", "rate": {"messages": 1}}, {"from": "cloud", "to": "vehicle"}]
    )
    async with RouterHarness(config) as harness:
        phone = [harness.notify(b"", VEHICLE_APP, UUri("phone1", 1, 1, 0x8000)) for _ in range(50)]
        harness.arrive("phone", *phone)
        assert len(harness.sent("vehicle")) == 1
        harness.arrive("cloud", *numbered(harness, 50))
        assert len(harness.sent("vehicle")) == 51
        assert harness.queued("phone-vehicle") == 49


async def test_a_source_authority_at_its_rate_holds_up_nobody_else_on_the_route() -> None:
    config = configuration(queue_policy={"rate_per_authority": {"messages": 2}})
    async with RouterHarness(config) as harness:
        harness.arrive("cloud", *numbered(harness, 50, "flood"))
        assert len(harness.sent("vehicle")) == 2
        harness.arrive("cloud", *numbered(harness, 2, "honest"))
        assert len(harness.sent("vehicle")) == 4
        pass_seconds(harness, 10)
        assert len(harness.sent("vehicle")) == 24


@pytest.mark.parametrize(("on_full", "outcome"), [("reject", "rejected"), ("evict", "dead_lettered")])
async def test_beyond_the_rate_the_queue_fills_and_its_policy_holds(on_full: str, outcome: str) -> None:
    policy = at_a_rate(10, queue={"messages": 20, "on_full": on_full})
    async with RouterHarness(configuration(queue_policy=policy)) as harness:
        harness.arrive("cloud", *numbered(harness, 10))
        harness.arrive("cloud", *numbered(harness, 50))
        assert harness.outcomes("cloud-vehicle") == {"delivered": 10, outcome: 30}
        pass_seconds(harness, 2)
        assert harness.outcomes("cloud-vehicle") == {"delivered": 30, outcome: 30}


async def test_beyond_the_rate_the_source_waits_under_backpressure() -> None:
    policy = at_a_rate(10, queue={"messages": 20})
    async with RouterHarness(configuration(queue_policy=policy)) as harness:
        harness.arrive("cloud", *numbered(harness, 60))
        assert len(harness.router.ingresses["cloud"].backlog) > 0
        pass_seconds(harness, 5)
        assert harness.outcomes("cloud-vehicle") == {"delivered": 60}


async def test_an_authority_with_a_rate_holds_nobody_up_outside_the_queue_either() -> None:
    policy = {"rate_per_authority": {"messages": 1}, "queue": {"messages": 40}}
    async with RouterHarness(configuration(queue_policy=policy)) as harness:
        harness.arrive("cloud", *numbered(harness, 100, "flood"))
        assert harness.outcomes("cloud-vehicle")["rejected"] == 80  # half of the queue is for others
        assert not harness.router.ingresses["cloud"].has_backlog
        harness.arrive("cloud", *numbered(harness, 1, "honest"))
        assert len(harness.sent("vehicle")) == 2


async def test_many_invented_authorities_with_a_rate_each_share_the_rate_of_their_route() -> None:
    policy = at_a_rate(10, rate_per_authority={"messages": 1})
    async with RouterHarness(configuration(queue_policy=policy)) as harness:
        harness.arrive("cloud", *(m for n in range(500) for m in numbered(harness, 1, f"invented-{n}")))
        pass_seconds(harness, 4)
        assert len(harness.sent("vehicle")) == 50


async def test_what_waits_for_its_rate_expires_as_usual() -> None:
    async with RouterHarness(configuration(queue_policy=at_a_rate(1))) as harness:
        harness.arrive("cloud", *(harness.ask(ttl=1000) for _ in range(5)))
        pass_seconds(harness, 2)
        assert harness.outcomes("cloud-vehicle") == {"delivered": 2, "expired": 3}
        assert len(harness.dead_letters("cloud")) == 3


async def test_reports_and_services_have_no_rate_of_a_route() -> None:
    policy = at_a_rate(1, rate_per_authority={"messages": 1}, queue={"messages": 1, "on_full": "reject"})
    async with RouterHarness(configuration(queue_policy=policy)) as harness:
        harness.arrive("cloud", *(harness.ask(CLOUD_APP, CLIMATE) for _ in range(20)))
        assert len(harness.dead_letters("cloud")) == 19


async def test_another_rate_holds_after_a_reload_and_what_waits_goes_on() -> None:
    async with RouterHarness(configuration(queue_policy=at_a_rate(1))) as harness:
        harness.arrive("cloud", *numbered(harness, 100))
        assert len(harness.sent("vehicle")) == 1
        await Reload(harness.router, configuration(queue_policy=at_a_rate(50))).run()
        assert len(harness.sent("vehicle")) == 51
        await Reload(harness.router, configuration()).run()
        assert len(harness.sent("vehicle")) == 100


async def test_how_often_a_rate_was_waited_for_is_counted() -> None:
    async with RouterHarness(configuration(queue_policy=at_a_rate(10))) as harness:
        harness.arrive("cloud", *numbered(harness, 5))
        (account,) = (each for each in harness.router.accounts() if each.name == "cloud-vehicle")
        assert account.stats.limited == 0
        harness.arrive("cloud", *numbered(harness, 20))
        assert account.stats.limited == 1


async def test_a_stop_leaves_what_waits_for_its_rate_where_it_was() -> None:
    async with RouterHarness(configuration(queue_policy=at_a_rate(1))) as harness:
        received = harness.arrive("cloud", *numbered(harness, 3))
        assert await Drain(harness.router).run(0) == 2
        assert [each.acknowledged for each in received] == [True, False, False]
        assert harness.transports["vehicle"].state is LinkState.UP
        assert SPEED not in {m.attributes.source for m in harness.sent("vehicle")}
